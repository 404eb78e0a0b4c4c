#ifndef GUEST_USERS_H
#define GUEST_USERS_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "core/err.h"
/* users -- the computer's /etc/passwd and /etc/group, read by our own parser (no NSS in a static program), again when they change.
 *
 * Where only one id is mapped (rootless without a range), everybody is uid 0: names, homes and shells are still theirs. */
#define USER_GROUPS 32
#define USER_DEFAULT "user"
#define USER_DEFAULT_UID 1000

struct user {
	char name[64], home[1024], shell[256];
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS];
	unsigned ngroups;
	bool admin;                 /* may use sudo: root and the default user. Acts on files with root's rights; what it makes is its own */
	bool single;                /* ids can't be changed: everybody is 0 */
};
struct users_file { char *text; size_t len; struct stat st; };
struct users {
	struct users_file passwd, group;
	bool single, no_setgroups;
};
void users_init(struct users *u);
void users_done(struct users *u);
/* name "" = the default user (root where a template has none); "#1000" = by uid. -EACCES when unknown. */
int users_find(struct users *u, const char *name, struct user *ret, struct err *e);
int users_find_uid(struct users *u, uid_t uid, struct user *ret, struct err *e);
void users_name(struct users *u, uid_t uid, char *out, size_t size);    /* the number when there's no name */
void users_group(struct users *u, gid_t gid, char *out, size_t size);
/* Is a uid of a peer allowed to use sudo? */
bool users_may_sudo(const struct users *u, uid_t uid);

/* One line "name:x:id:..." cut into fields; returns the number of them (at most max). For the tests too. */
size_t users_fields(char *line, char **f, size_t max);
#endif
