#include "cli/run_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/proc.h"
#include "core/str.h"

static int on_template(void *ctx, const char *v, struct err *e)
{
	struct run_options *o = ctx;

	if (!str_name(v))
		return err_set(e, EINVAL, "'%s' can't be a template's name", v);
	o->template_name = v;
	return 0;
}

static int on_net(void *ctx, const char *v, struct err *e)
{
	struct run_options *o = ctx;

	if (!str_eq(v, "none") && !str_eq(v, "all"))
		return err_set(e, EINVAL, "--net is none or all, not '%s'", v);
	o->net = str_eq(v, "all") ? KEEPER_NET_ALL : KEEPER_NET_NONE;
	return 0;
}

static int size_option(const char *name, const char *v, uint64_t min, uint64_t *ret, struct err *e)
{
	if (str_size(v, ret, e) < 0)
		return err_wrap(e, "--%s", name);
	if (*ret < min)
		return err_set(e, EINVAL, "--%s %s is too little to start anything", name, v);
	return 0;
}

static int on_memory(void *ctx, const char *v, struct err *e)
{
	return size_option("memory", v, 4 << 20, &((struct run_options *)ctx)->memory, e);
}

static int on_disk(void *ctx, const char *v, struct err *e)
{
	struct run_options *o = ctx;

	o->disk_given = true;
	o->disk = 0;
	return str_eq(v, "0") ? 0 : size_option("disk", v, 1 << 20, &o->disk, e);
}

/* "1.5" → 1500 */
static int on_cpus(void *ctx, const char *v, struct err *e)
{
	uint64_t whole = 0, part = 0, scale = 100;
	const char *s = v;

	for (; *s >= '0' && *s <= '9' && whole < 100000; s++)
		whole = whole * 10 + (uint64_t)(*s - '0');
	if (s != v && *s == '.')
		for (s++; *s >= '0' && *s <= '9' && scale; s++, scale /= 10)
			part += (uint64_t)(*s - '0') * scale;
	if (*s || s == v || whole * 1000 + part < 10)
		return err_set(e, EINVAL, "--cpus is a number of processors such as 2 or 0.5, not '%s'", v);
	((struct run_options *)ctx)->cpu = whole * 1000 + part;
	return 0;
}

static int on_pids(void *ctx, const char *v, struct err *e)
{
	if (str_u64(v, 4194304, &((struct run_options *)ctx)->pids) < 0 || ((struct run_options *)ctx)->pids < 2)
		return err_set(e, EINVAL, "--pids is how many processes at most, 2 or more, not '%s'", v);
	return 0;
}

static int on_timeout(void *ctx, const char *v, struct err *e)
{
	if (str_duration(v, &((struct run_options *)ctx)->timeout_ms, e) < 0)
		return err_wrap(e, "--timeout");
	return 0;
}

static int on_mount(void *ctx, const char *v, struct err *e)
{
	struct run_options *o = ctx;
	const char *colon = strchr(v, ':');
	const char *dst = colon ? colon + 1 : NULL;
	char cwd[4096] = "", *words[2];
	bool ro = false;
	size_t len;

	if (!colon || colon == v || *dst != '/') {
		err_set(e, EINVAL, "--mount '%s' isn't SOURCE:DESTINATION", v);
		return err_hint(e, "such as --mount .:/work or --mount /data:/data:ro; the destination starts with a slash");
	}
	len = strlen(dst);
	if (str_ends(dst, ":ro") || str_ends(dst, ":rw")) {
		ro = dst[len - 1] == 'o';
		len -= 3;
	}
	if (memchr(dst, ':', len) || len < 2)
		return err_set(e, EINVAL, "--mount '%s': the destination is a path below /, then :ro or nothing", v);
	if (o->nmounts + 2 > KEEPER_MOUNTS * 2)
		return err_set(e, E2BIG, "--mount: more than %d", KEEPER_MOUNTS);
	if (*v != '/' && !getcwd(cwd, sizeof cwd))
		return err_sys(e, "--mount '%s': find the current folder", v);
	if (asprintf(&words[0], "%s%s%.*s", cwd, *v == '/' ? "" : "/", (int)(colon - v), v) < 0)
		return err_set(e, ENOMEM, "--mount '%s': no memory", v);
	o->mount_words[o->nmounts] = words[0];
	o->mounts[o->nmounts++] = words[0];
	if (access(words[0], F_OK) < 0) {
		err_sys(e, "--mount '%s'", words[0]);
		return err_hint(e, "the source must be there already");
	}
	if (asprintf(&words[1], "%s:%.*s", ro ? "ro" : "rw", (int)len, dst) < 0)
		return err_set(e, ENOMEM, "--mount '%s': no memory", v);
	o->mount_words[o->nmounts] = words[1];
	o->mounts[o->nmounts++] = words[1];
	return 0;
}

static int on_env(void *ctx, const char *v, struct err *e)
{
	struct run_options *o = ctx;
	size_t len = strcspn(v, "=");

	if (!len)
		return err_set(e, EINVAL, "--env '%s' has no name", v);
	if (o->nenvs >= RUN_ENVS - 1)   /* one is kept for TERM */
		return err_set(e, E2BIG, "--env: more than %d", RUN_ENVS - 1);
	if (v[len]) {
		o->envs[o->nenvs++] = v;
		return 0;
	}
	for (char **env = environ; *env; env++)         /* --env NAME: as it is here */
		if (strncmp(*env, v, len) == 0 && (*env)[len] == '=') {
			o->envs[o->nenvs++] = *env;
			return 0;
		}
	return 0;
}

static int on_workdir(void *ctx, const char *v, struct err *e)
{
	((struct run_options *)ctx)->workdir = v;
	return 0;
}

static int on_user(void *ctx, const char *v, struct err *e)
{
	((struct run_options *)ctx)->user = v;
	return 0;
}

static int on_name(void *ctx, const char *v, struct err *e)
{
	if (!str_name(v))
		return err_set(e, EINVAL, "--name '%s': a-z, 0-9, dot, dash, at most 64", v);
	((struct run_options *)ctx)->hostname = v;
	return 0;
}

static int on_state(void *ctx, const char *v, struct err *e)
{
	((struct run_options *)ctx)->state = v;
	return 0;
}

static int on_allow(void *ctx, const char *v, struct err *e)
{
	struct run_options *o = ctx;

	if (o->nallow == RUN_ALLOW)
		return err_set(e, E2BIG, "--allow: more than %d", RUN_ALLOW);
	o->allow[o->nallow++] = v;
	return 0;
}

static int on_resolver(void *ctx, const char *v, struct err *e)
{
	((struct run_options *)ctx)->resolver = v;
	return 0;
}

static int on_quiet(void *ctx, const char *v, struct err *e)
{
	((struct run_options *)ctx)->quiet = true;
	return 0;
}

static const struct cli_option options[] = {
	{ "template", 't', "NAME", "what it starts from (host: this machine's /usr; see bureau template)", on_template },
	{ "net", 0, "none|all", "network: none (default), or all public addresses through the door", on_net },
	{ "mount", 'v', "SRC:DST[:ro]", "a folder or file of yours, seen inside at DST", on_mount },
	{ "env", 'e', "NAME[=VALUE]", "set a variable, or pass on yours", on_env },
	{ "workdir", 'w', "DIR", "start there (default: the home folder)", on_workdir },
	{ "user", 'u', "NAME", "run as user (default) or root; both are walled in the same", on_user },
	{ "memory", 'm', "SIZE", "memory at most, such as 512M", on_memory },
	{ "cpus", 0, "N", "processors at most, such as 0.5", on_cpus },
	{ "pids", 0, "N", "processes at most", on_pids },
	{ "disk", 0, "SIZE", "what it may write at most, kept in memory (default: half of --memory, else a quarter of the machine's, 2 GiB at most; 0: none)", on_disk },
	{ "timeout", 0, "TIME", "kill it after that long, such as 30s or 5m: exit code 124", on_timeout },
	{ "name", 0, "NAME", "its host name", on_name },
	{ "allow", 0, "CIDR", "with --net all: a private address range that may be reached too", on_allow },
	{ "resolver", 0, "ADDR[:PORT]", "with --net all: ask this name server", on_resolver },
	{ "state", 0, "DIR", "where templates are (default: $BUREAU_STATE or the usual place)", on_state },
	{ "quiet", 'q', NULL, "no lines of our own about refused connections, limits, a template that stands in", on_quiet },
};
enum { OPTIONS = sizeof options / sizeof *options };

static void help(void)
{
	printf("bureau run: run a program in a disposable sandbox. No server needed.\n\n"
	       "usage: bureau run [options] [--] COMMAND [ARGUMENT...]\n\n"
	       "It starts clean, sees nothing of this machine but what you mount, and is deleted with all that ran in it. Input, output\n"
	       "and the exit code pass through; with a terminal on both sides the program gets one of its own.\n\n");
	cli_print_options(options, OPTIONS);
	printf("\nExit codes: the program's; 128+N when signal N ended it; 124 timeout; 137 with a line: memory limit;\n"
	       "127 no such program; 126 can't be run; 125 the sandbox couldn't be made; 2 wrong use.\n\n"
	       "Examples\n"
	       "  bureau run -- python3 -c 'print(6 * 7)'\n"
	       "  cat data.json | bureau run -- jq .items > items.json\n"
	       "  bureau run --mount .:/work --workdir /work -- make test\n"
	       "  bureau run --memory 1G --cpus 2 --timeout 5m --net all -t base -- pip download requests\n"
	       "  bureau run -u root -t base -- bash                  a shell to look around in\n");
}

static const char *const shell_args[] = { "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l" };

/* What other tools want and this one does by itself. */
static void needless_option(struct err *e)
{
	static const char *const terminal[] = { "-i", "-it", "--interactive", "--tty" };
	char msg[64];

	for (size_t i = 0; i < sizeof terminal / sizeof *terminal; i++) {
		snprintf(msg, sizeof msg, "there is no option '%s'", terminal[i]);
		if (str_eq(e->msg, msg))
			err_hint(e, "leave it out: stdin is passed on, and with a terminal on both sides the program gets one");
	}
	if (str_eq(e->msg, "there is no option '--rm'"))
		err_hint(e, "leave it out: a sandbox of bureau run is always deleted at its end");
}

/* A door that can't use them would end, and the sandbox would have no network. */
static int check_door(const struct run_options *o, struct err *e)
{
	const char *argv[2 * RUN_ALLOW + 5] = { "bureau-door", "--check" };
	size_t n = 2;

	if (!o->nallow && !o->resolver)
		return 0;
	if (!o->net)
		return err_set(e, EINVAL, "--allow and --resolver need --net all");
	for (size_t i = 0; i < o->nallow; i++) {
		argv[n++] = "--allow";
		argv[n++] = o->allow[i];
	}
	if (o->resolver) {
		argv[n++] = "--resolver";
		argv[n++] = o->resolver;
	}
	return proc_ask("bureau-door", argv, e);
}

int run_parse(int argc, char **argv, struct run_options *o, struct err *e)
{
	bool wants_help;
	int rest;

	o->template_name = "host";
	o->hostname = "sandbox";
	if (cli_options(options, OPTIONS, argc, argv, o, &rest, &wants_help, e) < 0) {
		needless_option(e);
		return -e->code;
	}
	if (wants_help) {
		help();
		return 1;
	}
	if (rest < argc) {
		o->cmd = argv[rest];
		o->args = (const char *const *)argv + rest + 1;
		o->nargs = (size_t)(argc - rest - 1);
	} else if (isatty(0) && isatty(1)) {
		o->cmd = "/bin/sh";
		o->args = shell_args;
		o->nargs = 2;
	} else {
		err_set(e, EINVAL, "what is to run is missing");
		return err_hint(e, "bureau run [options] -- COMMAND [ARGUMENT...]; --help has examples");
	}
	if (!*o->cmd)
		return err_set(e, EINVAL, "the command is empty");
	if (!o->disk_given)
		o->disk = cli_default_disk(o->memory);
	o->inodes = o->disk ? 500000 : 0;
	return check_door(o, e);
}
