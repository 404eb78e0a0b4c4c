#ifndef CORE_MAP_H
#define CORE_MAP_H
#include <stddef.h>
#include <stdint.h>
/* map -- string or integer keys to pointers; open hashing with a random seed (peers choose keys). Owns copies of string keys. */
struct map;
int map_create(struct map **ret);                       /* 0 or -ENOMEM */
void map_free(struct map *m);                           /* values are the caller's */
int map_put(struct map *m, const char *key, void *value);      /* replaces; 0 or -ENOMEM */
void *map_get(const struct map *m, const char *key);           /* NULL when absent */
void *map_del(struct map *m, const char *key);                 /* the value that was there, or NULL */
int map_put_u64(struct map *m, uint64_t key, void *value);     /* a map holds either kind of key, not both */
void *map_get_u64(const struct map *m, uint64_t key);
void *map_del_u64(struct map *m, uint64_t key);
size_t map_count(const struct map *m);
/* Calls fn for each entry; fn may delete the entry it is given and no other. */
void map_each(struct map *m, void (*fn)(void *ctx, const char *key, uint64_t num, void *value), void *ctx);
#endif
