#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include <grp.h>

#include "core/fd.h"
#include "core/log.h"
#include "core/loop.h"
#include "core/proc.h"
#include "core/str.h"
#include "door/door.h"
#define WANT_seccomp_door
#include "core/filters.h"

/* bureau-door: reads its arguments, gives up what it doesn't need, then serves its one asker. */
static const char usage[] =
	"usage: bureau-door --fd N [--resolver ADDR[:PORT][,...]] [--allow CIDR]... [--uid UID --gid GID]\n"
	"       bureau-door --check [--resolver ADDR[:PORT][,...]] [--allow CIDR]...\n"
	"Started by the server and by `bureau run`; not for use by hand. --check only says whether it could use these values.\n";

struct args {
	struct door_options door;
	const char *allow[64];
	uint64_t uid, gid;
	bool ids, check;
};

static const struct option long_options[] = {
	{ "fd", required_argument, NULL, 'f' }, { "resolver", required_argument, NULL, 'r' }, { "allow", required_argument, NULL, 'a' },
	{ "uid", required_argument, NULL, 'u' }, { "gid", required_argument, NULL, 'g' }, { "check", no_argument, NULL, 'c' }, { 0 },
};

static int parse(int argc, char **argv, struct args *a)
{
	bool uid = false, gid = false;
	uint64_t n;
	int opt;

	a->door.asker_fd = -1;
	while ((opt = getopt_long(argc, argv, "", long_options, NULL)) >= 0) {
		switch (opt) {
		case 'f':
			if (str_u64(optarg, 1 << 20, &n) < 0)
				return -EINVAL;
			a->door.asker_fd = (int)n;
			break;
		case 'r':
			a->door.resolver = optarg;
			break;
		case 'a':
			if (a->door.nallow == sizeof a->allow / sizeof *a->allow)
				return -E2BIG;
			a->allow[a->door.nallow++] = optarg;
			break;
		case 'c':
			a->check = true;
			break;
		case 'u':
			if (str_u64(optarg, UINT32_MAX - 1, &a->uid) < 0)
				return -EINVAL;
			uid = true;
			break;
		case 'g':
			if (str_u64(optarg, UINT32_MAX - 1, &a->gid) < 0)
				return -EINVAL;
			gid = true;
			break;
		default:
			return -EINVAL;
		}
	}
	a->door.allow = a->allow;
	a->ids = uid;
	return optind == argc && (a->check || a->door.asker_fd >= 0) && uid == gid ? 0 : -EINVAL;
}

/* Everything that may be given up: the user, groups and capabilities of root, new privileges, and the system calls that no
 * door needs. After this the first request is read. */
static int confine(const struct args *a, struct err *e)
{
	if (a->ids && (setgroups(0, NULL) < 0 || setresgid((gid_t)a->gid, (gid_t)a->gid, (gid_t)a->gid) < 0 ||
		       setresuid((uid_t)a->uid, (uid_t)a->uid, (uid_t)a->uid) < 0))
		return err_sys(e, "become user %u", (unsigned)a->uid);
	if (proc_harden(e) < 0)
		return -e->code;
	return proc_seccomp(seccomp_door, sizeof seccomp_door / sizeof *seccomp_door, e);
}

int main(int argc, char **argv)
{
	struct args a = { 0 };
	struct loop *l = NULL;
	struct door *d = NULL;
	struct err e = { 0 };
	int code;

	log_init("bureau-door", LOG_WARN);
	if (parse(argc, argv, &a) < 0) {
		fputs(usage, stderr);
		return 2;
	}
	if (a.check) {
		if (door_check(&a.door, &e) < 0)
			printf("--%s\n%s\n", e.msg, e.hint);
		return e.code ? 2 : 0;
	}
	signal(SIGPIPE, SIG_IGN);
	fd_raise_limit();
	if (confine(&a, &e) < 0 || loop_create(&l, &e) < 0 || door_create(l, &a.door, &d, &e) < 0) {
		log_error("%s%s%s", e.msg, e.hint[0] ? ": " : "", e.hint);
		return 1;
	}
	code = loop_run(l);
	door_free(d);
	loop_turn(l, 0);
	return code;
}
