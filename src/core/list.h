#ifndef CORE_LIST_H
#define CORE_LIST_H
#include <stdbool.h>
#include <stddef.h>
/* list -- intrusive, circular, doubly linked. An unlinked node points at itself, so unlinking twice is safe. */
struct list { struct list *next, *prev; };
#define LIST_INIT(l) { &(l), &(l) }
static inline void list_init(struct list *l) { l->next = l->prev = l; }
static inline bool list_empty(const struct list *l) { return l->next == l; }
static inline void list_insert(struct list *after, struct list *n)
{ n->next = after->next; n->prev = after; after->next->prev = n; after->next = n; }
static inline void list_append(struct list *head, struct list *n) { list_insert(head->prev, n); }
static inline void list_unlink(struct list *n)
{ n->prev->next = n->next; n->next->prev = n->prev; list_init(n); }
/* Safe against unlinking of the current node. */
#define list_each(it, head) for (struct list *it = (head)->next, *it##_n = it->next; it != (head); it = it##_n, it##_n = it->next)
#endif
