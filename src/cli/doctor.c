#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/buf.h"
#include "core/fd.h"
#include "core/str.h"

#define CHECK_MS 10000

static const struct { const char *word, *mark, *colour; } looks[] = {
	[HEALTH_OK] = { "ok", "ok", "32" }, [HEALTH_NOTE] = { "note", "note", "36" }, [HEALTH_LESS] = { "less", "less", "33" }, [HEALTH_BAD] = { "bad", "BAD", "31" },
};

void finding_set(struct finding *f, enum health h, const char *fmt, ...)
{
	va_list ap;

	f->health = h;
	va_start(ap, fmt);
	vsnprintf(f->detail, sizeof f->detail, fmt, ap);
	va_end(ap);
}

void finding_fix(struct finding *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->fix, sizeof f->fix, fmt, ap);
	va_end(ap);
}

/* In a child: it enters namespaces, drops rights and may be killed by what it tries. */
static void check_in_child(const struct check *c, struct finding *f)
{
	int pipefd[2], status;
	struct finding got = { 0 };

	if (pipe2(pipefd, O_CLOEXEC) < 0) {
		finding_set(f, HEALTH_BAD, "can't be tried: %s", strerror(errno));
		return;
	}
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
		c->run(&got);
		_exit(write(pipefd[1], &got, sizeof got) == sizeof got ? 0 : 1);
	}
	close(pipefd[1]);
	struct pollfd p = { .fd = pipefd[0], .events = POLLIN };

	if (pid < 0 || poll(&p, 1, CHECK_MS) <= 0 || read(pipefd[0], &got, sizeof got) != sizeof got) {
		finding_set(f, HEALTH_BAD, pid < 0 ? "no process can be started" : "the try hung or was killed");
	} else {
		got.detail[sizeof got.detail - 1] = got.fix[sizeof got.fix - 1] = '\0';
		*f = got;
	}
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	close(pipefd[0]);
}

static void print_line(const struct check *c, const struct finding *f, bool colour)
{
	printf(colour ? "\033[%sm%-4s\033[0m  %-18s %s\n" : "%.0s%-4s  %-18s %s\n", looks[f->health].colour, looks[f->health].mark, c->name, f->detail);
	if (f->fix[0])
		printf("      %-18s -> %s\n", "", f->fix);
}

static void json_pair(struct buf *b, const char *key, const char *value, const char *end)
{
	str_json(b, key, strlen(key));
	buf_adds(b, ": ");
	str_json(b, value, strlen(value));
	buf_adds(b, end);
}

static void print_json(const struct finding *f, bool ready)
{
	AUTO_BUF struct buf b = BUF_INIT(1 << 20);
	struct utsname u;

	uname(&u);
	buf_printf(&b, "{\n  \"ready\": %s,\n  ", ready ? "true" : "false");
	json_pair(&b, "version", BUREAU_VERSION, ",\n  ");
	json_pair(&b, "kernel", u.release, ",\n  ");
	buf_printf(&b, "\"root\": %s,\n  \"checks\": [\n", geteuid() == 0 ? "true" : "false");
	for (size_t i = 0; i < doctor_nchecks; i++) {
		buf_adds(&b, "    {");
		json_pair(&b, "name", doctor_checks[i].name, ", ");
		json_pair(&b, "health", looks[f[i].health].word, ", ");
		buf_printf(&b, "\"required\": %s, ", doctor_checks[i].required ? "true" : "false");
		json_pair(&b, "detail", f[i].detail, ", ");
		json_pair(&b, "fix", f[i].fix, i + 1 < doctor_nchecks ? "},\n" : "}\n");
	}
	buf_adds(&b, "  ]\n}\n");
	fwrite(buf_at(&b), 1, b.len, stdout);
}

static int on_json(void *ctx, const char *value, struct err *e)
{
	*(bool *)ctx = true;
	return 0;
}

static const struct cli_option options[] = { { "json", 0, NULL, "for programs: one object, with a health for each check", on_json } };

static void help(void)
{
	printf("bureau doctor: what this host can and can't do, found by trying, and how to fix it.\n\nusage: bureau doctor [--json]\n\n");
	cli_print_options(options, 1);
	printf("\nok = fine; note = worth knowing; less = works, with less; BAD = must be fixed.\nExit code 0: sandboxes can run; 1: they can't.\n\n"
	       "Examples\n  bureau doctor\n  bureau doctor --json | jq '.checks[] | select(.health != \"ok\")'\n");
}

int doctor_main(int argc, char **argv)
{
	struct finding found[32] = { 0 };
	bool json = false, wants_help, ready = true;
	bool colour = isatty(1) && !getenv("NO_COLOR");
	struct err e = { 0 };
	int rest;

	if (cli_options(options, 1, argc, argv, &json, &rest, &wants_help, &e) == 0 && !wants_help && rest < argc)
		err_set(&e, EINVAL, "'%s' is one word too many", argv[rest]), err_hint(&e, "see: bureau doctor --help");
	if (e.code) {
		cli_error("doctor", &e);
		return CLI_USAGE;
	}
	if (wants_help) {
		help();
		return CLI_OK;
	}
	for (size_t i = 0; i < doctor_nchecks && i < sizeof found / sizeof *found; i++) {
		check_in_child(&doctor_checks[i], &found[i]);
		if (doctor_checks[i].required && found[i].health == HEALTH_BAD)
			ready = false;
		if (!json) {
			print_line(&doctor_checks[i], &found[i], colour);
			fflush(stdout);
		}
	}
	if (json)
		print_json(found, ready);
	else
		printf("\n%s\n", ready ? "Sandboxes can run on this machine." : "Sandboxes can't run on this machine until what is marked BAD is fixed.");
	return ready ? CLI_OK : CLI_FAILED;
}
