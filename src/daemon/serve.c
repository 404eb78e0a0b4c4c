/* bureau-serve -- what 'bureau serve' runs: prepares the state folder and the sockets, then supervises keeper and bureaud. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define WANT_seccomp_serve
#include "core/fd.h"
#include "core/filters.h"
#include "core/log.h"
#include "core/proc.h"
#include "core/str.h"
#include "daemon/serve.h"

static const char usage[] =
	"usage: bureau serve [options]\n"
	"\n"
	"Runs the server: the API, the E2B API and the rest on one port. Stop it with Ctrl-C or 'bureau stop'.\n"
	"\n"
	"  --listen ADDR:PORT   where to listen (else BUREAU_LISTEN, else 127.0.0.1:7070; port 0 = any free one)\n"
	"  --state DIR          where everything is kept (else BUREAU_STATE; root: /var/lib/bureau; else XDG_STATE_HOME/bureau or\n"
	"                       ~/.local/state/bureau)\n"
	"  --tls-cert FILE --tls-key FILE\n"
	"                       serve https\n"
	"  --domain NAME        hosts PORT-ID.NAME reach the ports of computers (wildcard DNS must point here)\n"
	"  --pool N             computers kept ready for each template in use (24, under 1 MiB each; 0 = none)\n"
	"  --max N              computers at once\n"
	"  --allow CIDR         private addresses that computers may reach all the same (may be given again)\n"
	"  --resolver ADDR      the DNS server to ask instead of this host's\n"
	"  --no-key             no API key; loopback only: everybody on this machine may use it\n"
	"  --keep-computers     computers go on when the server stops, and are found again at the next start\n"
	"  --detach             go to the background once it is ready; what it has to say is then in DIR/server.log\n"
	"  --pid-file FILE      write its process number there\n"
	"\n"
	"The API key is made at the first start and kept in DIR/api-key ('bureau api-key' prints it).\n"
	"Exit code: 0 stopped, 1 failed, 2 wrong use, 3 a server of this DIR runs already, or something else listens there.\n"
	"\n"
	"Examples\n"
	"  bureau serve --detach\n"
	"  bureau serve --listen 0.0.0.0:443 --domain box.example --tls-cert cert.pem --tls-key key.pem\n";

static int value_of(struct serve *s, const char *a, const char *v)
{
	uint64_t n;

	if (str_eq(a, "--listen"))
		s->listen = v;
	else if (str_eq(a, "--state"))
		s->state = v;
	else if (str_eq(a, "--tls-cert"))
		s->cert = v;
	else if (str_eq(a, "--tls-key"))
		s->key = v;
	else if (str_eq(a, "--domain"))
		s->domain = v;
	else if (str_eq(a, "--pid-file"))
		s->pid_file = v;
	else if (str_eq(a, "--resolver"))
		s->resolver = v;
	else if (str_eq(a, "--allow") && s->nallow < SERVE_ALLOW)
		s->allow[s->nallow++] = v;
	else if ((str_eq(a, "--pool") || str_eq(a, "--max")) && str_u64(v, 65000, &n) == 0)
		*(a[2] == 'p' ? &s->pool : &s->max) = n;
	else
		return -1;
	s->pool_given = s->pool_given || str_eq(a, "--pool");
	return 0;
}

static int flag_of(struct serve *s, const char *a)
{
	if (str_eq(a, "--no-key"))
		s->no_key = true;
	else if (str_eq(a, "--detach"))
		s->detach = true;
	else if (str_eq(a, "--keep-computers"))
		s->keep = true;
	else
		return -1;
	return 0;
}

static void bad_option(const char *a, const char *v)
{
	static const char *const valued[] = { "--listen", "--state", "--tls-cert", "--tls-key", "--domain", "--pid-file", "--resolver", "--allow", "--pool", "--max" };
	bool known = false;

	for (size_t i = 0; i < sizeof valued / sizeof *valued; i++)
		known = known || str_eq(a, valued[i]);
	if (!known)
		fprintf(stderr, "bureau serve: '%s' is not known here\n", a);
	else if (!v)
		fprintf(stderr, "bureau serve: '%s' needs a value\n", a);
	else if (str_eq(a, "--allow"))
		fprintf(stderr, "bureau serve: --allow may be given %d times at most\n", SERVE_ALLOW);
	else
		fprintf(stderr, "bureau serve: %s: '%s' is not a number from 0 to 65000\n", a, v);
	fprintf(stderr, "  see: bureau serve --help\n");
}

static int parse(int argc, char **argv, struct serve *s)
{
	int i = 1;

	if (i < argc && str_eq(argv[i], "serve"))
		i++;
	for (; i < argc; i++) {
		const char *a = argv[i];

		if (str_eq(a, "--help") || str_eq(a, "-h")) {
			fputs(usage, stdout);
			exit(0);
		}
		if (flag_of(s, a) == 0)
			continue;
		if (i + 1 >= argc || value_of(s, a, argv[i + 1]) < 0) {
			bad_option(a, argv[i + 1]);
			return -1;
		}
		i++;
	}
	if (!s->cert != !s->key) {
		fprintf(stderr, "bureau serve: --tls-cert and --tls-key go together\n");
		return -1;
	}
	if (!s->pool_given)
		s->pool = 24;
	return 0;
}

/* A door that can't use them would end, again and again. */
static int check_door(const struct serve *s, struct err *e)
{
	const char *argv[2 * SERVE_ALLOW + 5] = { "bureau-door", "--check" };
	size_t n = 2;

	for (unsigned i = 0; i < s->nallow; i++) {
		argv[n++] = "--allow";
		argv[n++] = s->allow[i];
	}
	if (s->resolver) {
		argv[n++] = "--resolver";
		argv[n++] = s->resolver;
	}
	return n > 2 ? proc_ask("bureau-door", argv, e) : 0;
}

/* The parent waits until the server is ready, or has ended. */
static int detach(struct serve *s)
{
	int p[2], null;
	pid_t pid;
	char url[sizeof s->url + 1];
	ssize_t n;

	if (pipe2(p, O_CLOEXEC) < 0)
		return -1;
	pid = fork();
	if (pid < 0)
		return -1;
	if (pid > 0) {
		close(p[1]);
		n = read(p[0], url, sizeof url - 1);
		if (n > 0) {
			printf("the server is ready: %.*s\n", (int)n, url);
			exit(0);
		}
		fprintf(stderr, "bureau serve: the server didn't start; see '%s/server.log'\n", s->state);
		_exit(1);
	}
	close(p[0]);
	s->ready_fd = p[1];
	setsid();
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
		fd_drop(&null);
	}
	null = openat(s->state_fd, "server.log", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (null >= 0)
		dup2(null, 2);
	fd_drop(&null);
	return 0;
}

/* What we give up for good, and with us all our parts and what they start: src/isolate/caps.c says what the keeper, the one with the most,
 * wants its capabilities for. bureaud and the door lose all of theirs. */
static int give_up(const struct serve *s, struct err *e)
{
	static const uint8_t caps[] = {
		CAP_SYS_ADMIN, CAP_SETUID, CAP_SETGID, CAP_SETFCAP, CAP_DAC_OVERRIDE, CAP_CHOWN, CAP_FOWNER, CAP_KILL, CAP_SYS_PTRACE, CAP_NET_ADMIN,
		CAP_SYS_RESOURCE,
	};

	if ((s->root && proc_keep_caps(caps, sizeof caps, e) < 0) || proc_harden(e) < 0)
		return -e->code;
	return proc_seccomp(seccomp_serve, sizeof seccomp_serve / sizeof *seccomp_serve, e);
}

static int write_pid(const struct serve *s, struct err *e)
{
	char text[24];

	if (!s->pid_file)
		return 0;
	snprintf(text, sizeof text, "%d\n", (int)getpid());
	return fd_write_file(AT_FDCWD, s->pid_file, 0644, text, strlen(text), e);
}

int main(int argc, char **argv)
{
	struct serve s = { .listen = "127.0.0.1:7070", .state_fd = -1, .lock_fd = -1, .http_fd = -1, .keeper_fd = -1, .ready_fd = -1, .ids_fd = -1 };
	struct err e = { .code = 0 };
	const char *listen = getenv("BUREAU_LISTEN");
	int r;

	if (listen && *listen)
		s.listen = listen;
	if (parse(argc, argv, &s) < 0)
		return 2;
	close_range(3, ~0u, 0);      /* a server outlives whoever started it, and must not hold their pipes */
	log_init("bureau-serve", LOG_INFO);
	proc_title("bureau-serve");
	signal(SIGPIPE, SIG_IGN);
	umask(022);
	fd_raise_limit();
	r = check_door(&s, &e);
	if (r == 0)
		r = place_prepare(&s, &e);
	if (r < 0) {                 /* nothing runs yet: this is for whoever typed it, not for a log */
		fprintf(stderr, "bureau serve: %s%s%s\n", e.msg, e.hint[0] ? "\n  " : "", e.hint);
		return e.code == EBUSY || e.code == EADDRINUSE ? 3 : e.code == EINVAL ? 2 : 1;
	}
	if (s.detach && detach(&s) < 0)
		r = err_sys(&e, "go to the background");
	if (r == 0)
		r = write_pid(&s, &e);
	if (r == 0)
		r = ids_make(&s, &e);
	if (r == 0)
		r = give_up(&s, &e);
	if (r == 0)
		r = supervise(&s, &e);
	if (r < 0) {
		log_error("%s%s%s", e.msg, e.hint[0] ? "; " : "", e.hint);
		return 1;
	}
	if (s.pid_file)
		unlink(s.pid_file);
	return r;
}
