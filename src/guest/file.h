#ifndef GUEST_FILE_H
#define GUEST_FILE_H
#include "guest/guest.h"
/* file -- requests about files.
 *
 * Root and the default user (who has sudo anyway) act with root's rights, and what they make is given to the asked-for
 * user: an agent that writes to /app or /opt gets what it means. Everybody else has just his own rights. */
void file_stat(struct conn *c, struct msg_reader *r);
void file_dir(struct conn *c, struct msg_reader *r);
void file_mkdir(struct conn *c, struct msg_reader *r);
void file_move(struct conn *c, struct msg_reader *r);
void file_remove(struct conn *c, struct msg_reader *r);
void file_read(struct conn *c, struct msg_reader *r);
void file_write(struct conn *c, struct msg_reader *r);

/* act.c: this process as a user, for a few system calls on files */
void act_begin(const struct user *u);
void act_end(const struct user *u);
const struct user *act_user(const struct user *u);     /* for a helper: NULL when it acts with our rights */
/* Make the folders above path (all = path itself too), each new one the user's. */
int act_mkdirs(const char *path, bool all, const struct user *u, struct err *e);

/* entry.c */
#define ENTRY_META GUEST_META_BYTES                                 /* bytes of metadata in an entry */
int entry_put(struct users *users, struct msg_writer *w, const char *path, struct err *e);
int entry_set_meta(int fd, const char *const *kv, size_t n, struct err *e);   /* replaces all user.e2b.* */

/* tree.c: in helpers */
struct tree_dir { struct users *users; const char *path; uint32_t depth; };
void tree_dir(int sock, uint32_t id, void *dir);
struct tree_move { struct users *users; const char *from, *to; };
void tree_move(int sock, uint32_t id, void *move);
void tree_remove(int sock, uint32_t id, void *path);
struct tree_room { struct users *users; const char *path; int fd; uint64_t size; };
void tree_room(int sock, uint32_t id, void *room);
struct tree_fill { int from, to; };
void tree_fill(int sock, uint32_t id, void *fill);
#endif
