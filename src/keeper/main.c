/* bureau-keeper -- makes computers, for bureaud (--serve) or for one `bureau run` (--once). See wire/keeper_proto.h. */
#include "keeper/keeper.h"
#include "core/fd.h"
#include "core/log.h"
#include "core/proc.h"
#include "core/str.h"
#include "isolate/host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static const char usage[] =
	"usage: bureau-keeper --serve --state DIR --listen-fd N [--daemon-uid UID] [--ids-fd N]\n"
	"       bureau-keeper --make-ids --fd N\n"
	"       bureau-keeper --once --fd N [--state DIR]\n";

struct options { bool serve, once, ids; const char *state, *guest; uint64_t fd, uid, ids_fd; bool have_fd, have_ids; };

static int number(const char *s, uint64_t *ret)
{
	return s && str_u64(s, INT32_MAX, ret) == 0 ? 0 : -1;
}

static int parse(int argc, char **argv, struct options *o)
{
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i], *next = argv[i + 1];

		if (str_eq(a, "--serve")) {
			o->serve = true;
		} else if (str_eq(a, "--once")) {
			o->once = true;
		} else if (str_eq(a, "--make-ids")) {
			o->ids = true;
		} else if (str_eq(a, "--state") && next) {
			o->state = argv[++i];
		} else if (str_eq(a, "--guest") && next) {
			o->guest = argv[++i];
		} else if ((str_eq(a, "--fd") || str_eq(a, "--listen-fd")) && number(next, &o->fd) == 0) {
			o->have_fd = true;
			i++;
		} else if (str_eq(a, "--ids-fd") && number(next, &o->ids_fd) == 0) {
			o->have_ids = true;
			i++;
		} else if (str_eq(a, "--daemon-uid") && number(next, &o->uid) == 0) {
			i++;
		} else {
			return -1;
		}
	}
	return o->serve + o->once + o->ids == 1 && o->have_fd && (!o->serve || o->state) ? 0 : -1;
}

static int open_folder(int dir, const char *name, mode_t mode, int *ret, struct err *e)
{
	if (mkdirat(dir, name, mode) == 0)
		fchmodat(dir, name, mode, 0);     /* our umask is for files */
	else if (errno != EEXIST)
		return err_sys(e, "make '%s' in the state folder", name);
	*ret = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret < 0 ? err_sys(e, "open '%s' in the state folder", name) : 0;
}

static int open_state(struct keeper *k, const char *dir, struct err *e)
{
	k->state_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (k->state_fd < 0)
		return err_sys(e, "open the state folder '%s'", dir);
	if (k->once) {
		k->templates_fd = openat(k->state_fd, "templates", O_PATH | O_DIRECTORY | O_CLOEXEC);
		return 0;
	}
	if (open_folder(k->state_fd, "templates", 0755, &k->templates_fd, e) < 0 || open_folder(k->state_fd, "run", 0711, &k->run_fd, e) < 0)
		return -e->code;
	return open_folder(k->state_fd, "keeper", 0700, &k->records_fd, e);
}

/* The same state folder has the same tag, whoever starts us and from where. */
static void state_tag(int state_fd, char out[24])
{
	struct stat st = { .st_ino = 0 };

	fstat(state_fd, &st);
	snprintf(out, 24, "%llx", (unsigned long long)(st.st_ino ^ (unsigned long long)st.st_dev << 40));
}

static void on_signal(void *ctx, int signo)
{
	struct keeper *k = ctx;

	if (signo == SIGCHLD) {
		keeper_reap(k);
		return;
	}
	/* --serve: computers go on; the next keeper adopts them. --once: die_with_us ends them. */
	loop_quit(k->loop, 0);
}

static int set_up(struct keeper *k, const struct options *o, struct err *e)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGCHLD };
	char guest[4096], tag[24], *boot = NULL;
	uid_t before = geteuid();
	pid_t living[256];
	size_t nliving;
	int r;

	if ((r = o->guest ? str_copy(guest, sizeof guest, o->guest) : proc_sibling("bureau-guest", guest, sizeof guest, e)) < 0)
		return r;
	if (o->state && (r = open_state(k, o->state, e)) < 0)
		return r;
	if (o->serve)
		state_tag(k->state_fd, tag);
	if (o->serve && fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64, &boot, NULL, e) == 0) {
		boot[strcspn(boot, "\n")] = 0;
		str_copy(k->boot, sizeof k->boot, boot);
		free(boot);
	}
	nliving = o->serve ? keeper_living(k, living, sizeof living / sizeof *living) : 0;
	if ((r = isolate_create(guest, o->serve ? tag : NULL, living, nliving, o->have_ids ? (int)o->ids_fd : -1, &k->host, e)) < 0 || (r = loop_create(&k->loop, e)) < 0)
		return r;
	/* a plain user's keeper may have entered a user namespace: ids have other numbers from here on */
	k->daemon_uid = o->uid == (uint64_t)before ? geteuid() : (uid_t)o->uid;
	if (map_create(&k->by_id) < 0 || map_create(&k->by_slot) < 0 || map_create(&k->by_pid) < 0)
		return err_set(e, ENOMEM, "no memory");
	if ((r = k->backend->probe(k->host, &k->features, k->missing, sizeof k->missing)) < 0)
		return r;
	if ((r = isolate_confine(k->host, e)) < 0)
		return r;
	if ((r = loop_signals(k->loop, signals, 3, on_signal, k, e)) < 0)
		return r;
	return o->serve ? keeper_sweep(k, e) : 0;
}

/* One errand for a supervisor that will not be able to do it later (src/isolate/subid.c): no ids, no message. */
static int make_ids(int fd)
{
	AUTO_FD int userns = isolate_ids();
	struct msg_writer w;
	uint8_t mem[64];

	if (userns < 0)
		return 0;
	msg_writer_init(&w, mem, sizeof mem, K_OK, 0);
	msg_put_fd(&w, userns);
	return msg_send(fd, &w) < 0;
}

/* One that comes while we are set up is for on_signal(): an end by it would leave what an earlier keeper made. */
static void hold_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

int main(int argc, char **argv)
{
	struct options o = { .uid = geteuid() };
	struct keeper k = { .backend = &backend_ns, .state_fd = -1, .templates_fd = -1, .run_fd = -1, .records_fd = -1,
		.stock.fire = keeper_stock };
	struct err e = { .code = 0 };
	int code;

	hold_signals();
	if (parse(argc, argv, &o) < 0) {
		fputs(usage, stderr);
		return 2;
	}
	log_init("bureau-keeper", LOG_INFO);
	signal(SIGPIPE, SIG_IGN);
	umask(077);
	if (o.ids)
		return make_ids((int)o.fd);
	if (o.have_ids)
		fcntl((int)o.ids_fd, F_SETFD, FD_CLOEXEC);
	fd_raise_limit();      /* one for each computer that is adopted; the computers' own limit is set in them */
	k.once = o.once;
	list_init(&k.peers);
	fcntl((int)o.fd, F_SETFD, FD_CLOEXEC);
	if (set_up(&k, &o, &e) < 0 || (o.once ? keeper_peer(&k, (int)o.fd, &e) : keeper_listen(&k, (int)o.fd, &e)) < 0) {
		log_error("%s%s%s", e.msg, *e.hint ? "; " : "", e.hint);
		return 1;
	}
	code = loop_run(k.loop);
	isolate_free(k.host);
	return code;
}
