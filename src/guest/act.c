#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fd.h"
#include "guest/file.h"

/* setfsuid() can't report a failure; but from root it can't fail, and away from uid 0 it takes the file capabilities along. */
static unsigned act_depth;      /* a watch tells about files while it already acts */

void act_begin(const struct user *u)
{
	if (u->admin || u->single || act_depth++)
		return;
	if (setgroups(u->ngroups, u->groups) < 0)
		errno = 0;
	setfsgid(u->gid);
	setfsuid(u->uid);
}

void act_end(const struct user *u)
{
	if (u->admin || u->single || --act_depth)
		return;
	setfsuid(0);
	setfsgid(0);
	if (setgroups(0, NULL) < 0)
		errno = 0;
}

const struct user *act_user(const struct user *u)
{
	return u->admin ? NULL : u;
}

static int make_one(const char *path, const struct user *u)
{
	if (mkdir(path, 0755) < 0)
		return errno == EEXIST ? 0 : -errno;
	if (u->admin && !u->single && lchown(path, u->uid, u->gid) < 0)
		return -errno;
	return 0;
}

int act_mkdirs(const char *path, bool all, const struct user *u, struct err *e)
{
	AUTO_FREE char *p = strdup(path);
	struct stat st;
	int rc = 0;

	if (!p)
		return err_set(e, ENOMEM, "make folder '%s': no memory", path);
	for (char *at = strchr(p + 1, '/'); at && rc == 0; at = strchr(at + 1, '/')) {
		*at = '\0';
		rc = make_one(p, u);
		if (rc < 0)
			break;
		*at = '/';
	}
	if (all && rc == 0)
		rc = make_one(p, u);
	if (rc < 0) {
		errno = -rc;
		return err_sys(e, "make folder '%s'", p);
	}
	if (all && stat(p, &st) == 0 && !S_ISDIR(st.st_mode))
		return err_set(e, ENOTDIR, "path '%s' is not a folder", p);
	return 0;
}
