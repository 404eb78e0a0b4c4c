#include "cli/template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/inside.h"
#include "cli/recipe.h"
#include "core/clock.h"
#include "core/fd.h"
#include "core/json.h"
#include "core/str.h"

/* Building -- theory of operation.
 *
 * Everything happens in DIR/templates/NAME/.partial, which is renamed when it's whole; then `current` is switched by a rename
 * too. So a build that was killed leaves nothing but .partial and what it downloaded: the next one takes the packages
 * from there into the cache, and removes it. mmdebstrap does the work, in namespaces that end with us (inside.c).
 * A lock on DIR/templates/NAME/.lock keeps a second build of the same name out. */
#define TAIL_LINES 15
#define LINE_MAX_ 1000
#define ARGS 128

struct build {
	const struct template_args *a;
	struct recipe recipe;
	char recipe_digest[65], id[17];
	char top[4096];                 /* DIR/templates/NAME */
	char cache[4200];
	bool tty;
	char step[80];
	unsigned percent, packages;     /* packages: lines seen about one */
	char tail[TAIL_LINES][LINE_MAX_];
	unsigned lines;
};

/* mmdebstrap's own words for its steps, and how far each is when it begins. */
static const struct { const char *says; unsigned percent; const char *step; } steps[] = {
	{ "running apt-get update", 3, "fetching the list of packages" },
	{ "downloading packages with apt", 10, "downloading the base system" },
	{ "extracting archives", 30, "unpacking the base system" },
	{ "installing essential packages", 35, "installing the base system" },
	{ "installing remaining packages", 45, "downloading and installing packages" },
	{ "running --customize-hook", 90, "setting up" },
	{ "cleaning package lists", 97, "cleaning" },
	{ "success in", 99, "finishing" },
};

static void show(struct build *b, unsigned percent, const char *step)
{
	if (percent <= b->percent && str_eq(step, b->step))
		return;
	b->percent = percent;
	str_copy(b->step, sizeof b->step, step);
	if (b->tty)
		printf("\r\033[K[%-25.*s] %3u%% %s", (int)(percent / 4), "#########################", percent, step);
	else
		printf("[%3u%%] %s\n", percent, step);
	fflush(stdout);
}

static void on_line(struct build *b, FILE *log, const char *line)
{
	const char *s;

	fprintf(log, "%s\n", line);
	str_copy(b->tail[b->lines++ % TAIL_LINES], LINE_MAX_, line);
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
		if (strstr(line, steps[i].says) && steps[i].percent > b->percent)
			show(b, steps[i].percent, steps[i].step);
	/* between 45 and 90 one line for each package, in two rounds: unpacked, then set up */
	s = str_starts(line, "Unpacking ") || str_starts(line, "Setting up ") ? line : NULL;
	if (s && b->percent >= 45 && b->percent < 89 && ++b->packages % 8 == 0 && b->tty)
		show(b, b->percent + 1, b->step);
}

/* Reads all of the builder's output; a line too long is cut. */
static void follow(struct build *b, int fd, FILE *log)
{
	char line[LINE_MAX_], chunk[4096];
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, chunk, sizeof chunk)) > 0 || (n < 0 && errno == EINTR)) {
		for (ssize_t i = 0; i < n; i++) {
			if (chunk[i] == '\n' || chunk[i] == '\r') {
				line[len] = '\0';
				if (len)
					on_line(b, log, line);
				len = 0;
			} else if (len < sizeof line - 1) {
				line[len++] = chunk[i];
			}
		}
	}
}

static int failed(struct build *b, const char *log_path, int code, struct err *e)
{
	unsigned first = b->lines > TAIL_LINES ? b->lines - TAIL_LINES : 0;

	if (b->tty)
		printf("\n");
	fflush(stdout);
	for (unsigned i = first; i < b->lines; i++)
		cli_say("template", "| %s", b->tail[i % TAIL_LINES]);
	err_set(e, EIO, "build template '%s': failed while %s (exit code %d)", b->a->name, b->step[0] ? b->step : "starting", code);
	err_hint(e, "the whole log: %s; run it again to go on, nothing is downloaded twice", log_path);
	return -EIO;
}

/* ---- the cache of packages ---- */

static int copy_file(int from_dir, int to_dir, const char *name)
{
	char tmp[300];
	AUTO_FD int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	int r = 0;

	if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode) || snprintf(tmp, sizeof tmp, ".%s", name) >= (int)sizeof tmp)
		return -EINVAL;
	AUTO_FD int to = openat(to_dir, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	for (off_t left = st.st_size; to >= 0 && left > 0 && r == 0;) {
		ssize_t n = copy_file_range(from, NULL, to, NULL, (size_t)left, 0);

		r = n > 0 ? 0 : -EIO;
		left -= n > 0 ? n : 0;
	}
	if (to < 0 || r < 0 || renameat(to_dir, tmp, to_dir, name) < 0) {
		unlinkat(to_dir, tmp, 0);
		return -EIO;
	}
	return 0;
}

/* Complete packages of a build that was killed: apt moves a file there when it has all of it. */
static void harvest(struct build *b)
{
	char path[4400];
	struct stat st;

	snprintf(path, sizeof path, "%s/.partial/rootfs/var/cache/apt/archives", b->top);
	DIR *d = opendir(path);
	AUTO_FD int to = open(b->cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned n = 0;

	for (struct dirent *i; d && to >= 0 && (i = readdir(d));)
		if (str_ends(i->d_name, ".deb") && i->d_name[0] != '.' && fstatat(to, i->d_name, &st, 0) < 0)
			n += copy_file(dirfd(d), to, i->d_name) == 0;
	if (d)
		closedir(d);
	if (n)
		printf("%u packages of an unfinished build are used again\n", n);
}

/* ---- running mmdebstrap ---- */

/* Hooks are fixed text: what differs comes in through the environment. $1 is the new root. */
static const char cache_in[] = "--setup-hook=mkdir -p \"$1\"/var/cache/apt/archives && cd \"$BUREAU_CACHE\" && "
	"find . -maxdepth 1 -name '*.deb' -exec cp -n -t \"$1\"/var/cache/apt/archives {} +";
static const char cache_out_essential[] = "--essential-hook=cp -n \"$1\"/var/cache/apt/archives/*.deb \"$BUREAU_CACHE\"/ || true";
static const char cache_out[] = "--customize-hook=cp -n \"$1\"/var/cache/apt/archives/*.deb \"$BUREAU_CACHE\"/ || true";
static const char make_user[] = "--customize-hook=chroot \"$1\" useradd --create-home --uid 1000 --user-group --shell /bin/bash user";
/* After the recipe's own lines: those still have the host's name servers, and what they install is stripped too. */
static const char *const setup[] = {
	/* our sudo isn't setuid, and nothing else needs to be: no_new_privs is always on inside */
	"--customize-hook=find \"$1\" -xdev -type f -perm /6000 -exec chmod a-s {} +",
	"--customize-hook=printf 'nameserver 127.0.0.1\\noptions edns0\\n' >\"$1\"/etc/resolv.conf; echo sandbox >\"$1\"/etc/hostname; "
	"printf '127.0.0.1 localhost sandbox\\n::1 localhost\\n' >\"$1\"/etc/hosts",
	/* with one id there is no _apt to become; and nothing here has to survive a power failure */
	"--customize-hook=printf 'APT::Sandbox::User \"root\";\\nAcquire::Retries \"3\";\\n' >\"$1\"/etc/apt/apt.conf.d/90bureau; "
	"mkdir -p \"$1\"/etc/dpkg/dpkg.cfg.d; echo force-unsafe-io >\"$1\"/etc/dpkg/dpkg.cfg.d/bureau",
	/* a disposable computer may be changed by pip */
	"--customize-hook=rm -f \"$1\"/usr/lib/python3*/EXTERNALLY-MANAGED; echo 'LANG=C.UTF-8' >\"$1\"/etc/default/locale",
	"--customize-hook=chroot \"$1\" dpkg-query -W -f '${Package}=${Version}\\n' >\"$1\"/var/lib/dpkg/bureau-packages",
};

static int run_mmdebstrap(struct build *b, const char *log_path, struct err *e)
{
	const struct recipe *r = &b->recipe;
	const char *argv[ARGS] = { "/usr/bin/mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", "--verbose", "--skip=download/empty",
		"--skip=essential/unlink", "--aptopt=Acquire::Retries \"3\"", "--aptopt=APT::Install-Recommends \"false\"",
		"--aptopt=Acquire::Languages \"none\"", cache_in, cache_out_essential, cache_out };
	char include[16384], components[256], target[4300], cache[4300], tmp[4300], run[RECIPE_RUNS][100], run_env[RECIPE_RUNS][1100], opt[TEMPLATE_OPTIONS][400];
	const char *envp[RECIPE_RUNS + 16] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", cache, tmp };
	static const char *const pass[] = { "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY" };
	char proxies[6][600];
	size_t n = 13, nenv = 6;
	int fds[2], code;
	pid_t pid;

	argv[n++] = make_user;
	for (size_t i = 0; i < r->nruns; i++) {
		snprintf(run[i], sizeof run[i], "--customize-hook=chroot \"$1\" /bin/sh -ec \"$BUREAU_RUN_%zu\"", i);
		snprintf(run_env[i], sizeof run_env[i], "BUREAU_RUN_%zu=%.1000s", i, r->runs[i]);
		argv[n++] = run[i];
		envp[nenv++] = run_env[i];
	}
	for (size_t i = 0; i < sizeof setup / sizeof *setup; i++)
		argv[n++] = setup[i];
	for (size_t i = 0; i < b->a->napt_options; i++) {
		snprintf(opt[i], sizeof opt[i], "--aptopt=%.380s", b->a->apt_options[i]);
		argv[n++] = opt[i];
	}
	if (snprintf(include, sizeof include, "--include=%s", buf_at(&r->packages)) >= (int)sizeof include)
		return err_set(e, E2BIG, "too many packages");
	snprintf(components, sizeof components, "--components=%s", r->components);
	snprintf(target, sizeof target, "%s/.partial/rootfs", b->top);
	snprintf(cache, sizeof cache, "BUREAU_CACHE=%s", b->cache);
	snprintf(tmp, sizeof tmp, "TMPDIR=%s/.partial/tmp", b->top);    /* it takes it away from what runs in the new root */
	argv[n++] = include;
	argv[n++] = components;
	argv[n++] = r->suite;
	argv[n++] = target;
	if (r->mirror[0])
		argv[n++] = r->mirror;
	argv[n] = NULL;
	for (size_t i = 0; i < sizeof pass / sizeof *pass; i++)
		if (getenv(pass[i]) && snprintf(proxies[i], sizeof proxies[i], "%s=%s", pass[i], getenv(pass[i])) < (int)sizeof proxies[i])
			envp[nenv++] = proxies[i];
	FILE *log = fopen(log_path, "we");

	if (!log)
		return err_sys(e, "write '%s'", log_path);
	if (pipe2(fds, O_CLOEXEC) < 0) {
		fclose(log);
		return err_sys(e, "make a pipe");
	}
	code = inside_start(argv, envp, fds[1], &pid, e);
	close(fds[1]);
	if (code == 0) {
		follow(b, fds[0], log);
		code = inside_wait(pid);
		if (code)
			code = failed(b, log_path, code, e);
	}
	close(fds[0]);
	fclose(log);
	return code;
}

/* ---- before and after ---- */

/* The id of a whole template that was made from this very recipe. */
static bool already(struct build *b, char *out, size_t size)
{
	DIR *d = opendir(b->top);
	char path[4500];
	bool found = false;

	for (struct dirent *i; d && !found && (i = readdir(d));) {
		AUTO_FREE char *text = NULL;
		AUTO_JSON json_t *v = NULL;
		const char *digest = "";
		struct err e;
		size_t n;

		if (i->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s/info.json", b->top, i->d_name) >= (int)sizeof path)
			continue;
		if (i->d_type != DT_DIR || fd_read_file(AT_FDCWD, path, 1 << 16, &text, &n, &e) < 0 || js_parse(text, n, &v, &e) < 0)
			continue;
		js_get_str(v, "recipe", &digest, &e);
		found = str_eq(digest, b->recipe_digest) && str_copy(out, size, i->d_name) == 0;
	}
	if (d)
		closedir(d);
	return found;
}

static int switch_current(struct build *b, const char *id, struct err *e)
{
	char tmp[4200], path[4200];

	snprintf(tmp, sizeof tmp, "%s/.current", b->top);
	snprintf(path, sizeof path, "%s/current", b->top);
	unlink(tmp);
	if (symlink(id, tmp) < 0 || rename(tmp, path) < 0)
		return err_sys(e, "make '%s' the current one", id);
	return 0;
}

static int write_info(struct build *b, const char *packages, struct err *e)
{
	char path[4200], when[32];
	AUTO_JSON json_t *v = json_object();
	AUTO_BUF struct buf text = BUF_INIT(1 << 16);
	size_t count = 0;

	for (const char *s = packages; *s; s++)
		count += *s == '\n';
	clock_rfc3339(clock_wall_ms(), when);
	json_object_set_new(v, "name", json_string(b->a->name));
	json_object_set_new(v, "id", json_string(b->id));
	json_object_set_new(v, "about", json_string(b->recipe.about));
	json_object_set_new(v, "suite", json_string(b->recipe.suite));
	json_object_set_new(v, "recipe", json_string(b->recipe_digest));
	json_object_set_new(v, "packages", json_integer((json_int_t)count));
	json_object_set_new(v, "built_at", json_string(when));
	snprintf(path, sizeof path, "%s/.partial/info.json", b->top);
	js_dump_pretty(v, &text);
	return fd_write_file(AT_FDCWD, path, 0644, buf_at(&text), text.len, e);
}

static int finish(struct build *b, struct err *e)
{
	char path[4400], final[4400];
	AUTO_FREE char *packages = NULL;
	AUTO_BUF struct buf all = BUF_INIT(4 << 20);
	char digest[65];
	size_t n;

	snprintf(path, sizeof path, "%s/.partial/rootfs/var/lib/dpkg/bureau-packages", b->top);
	if (fd_read_file(AT_FDCWD, path, 1 << 20, &packages, &n, e) < 0)
		return err_wrap(e, "build template '%s'", b->a->name);
	buf_printf(&all, "%s\n%s", b->recipe_digest, packages);
	digest_hex(buf_at(&all), all.len, digest);
	str_copy(b->id, sizeof b->id, "");
	memcpy(b->id, digest, 16);
	b->id[16] = '\0';
	if (write_info(b, packages, e) < 0 || template_remove_tree(b->top, ".partial/tmp", e) < 0)
		return -e->code;
	snprintf(path, sizeof path, "%s/.partial", b->top);
	snprintf(final, sizeof final, "%s/%s", b->top, b->id);
	if (access(final, F_OK) == 0) {         /* the same packages came out: what is there may be in use and stays */
		if (template_remove_tree(b->top, ".partial", e) < 0)
			return -e->code;
	} else if (rename(path, final) < 0) {
		return err_sys(e, "rename '%s' to '%s'", path, final);
	}
	return switch_current(b, b->id, e);
}

int template_remove_tree(const char *templates, const char *below, struct err *e)
{
	char path[4400];

	snprintf(path, sizeof path, "%s/%s", templates, below);
	const char *argv[] = { "/bin/rm", "-rf", "--one-file-system", "--", path, NULL };

	if (access(path, F_OK) < 0)
		return 0;
	return inside_run(argv, e) < 0 ? err_wrap(e, "remove '%s'", path) : 0;
}

static int prepare(struct build *b, const char *state, struct err *e)
{
	char path[4400];
	const struct template_args *a = b->a;

	if (recipe_load(&b->recipe, a->recipe, e) < 0)
		return -e->code;
	if ((a->suite && str_copy(b->recipe.suite, sizeof b->recipe.suite, a->suite) < 0) ||
	    (a->mirror && str_copy(b->recipe.mirror, sizeof b->recipe.mirror, a->mirror) < 0))
		return err_set(e, E2BIG, "the suite or the mirror is too long");
	recipe_digest(&b->recipe, b->recipe_digest);
	if (strpbrk(state, "\"'\\$`\n"))
		return err_set(e, EINVAL, "the state folder's name has characters that a package manager can't be given: '%s'", state);
	snprintf(b->cache, sizeof b->cache, "%s/templates/.cache/%s", state, b->recipe.suite);
	snprintf(path, sizeof path, "%s/.partial", b->top);
	return fd_mkdirs(b->cache, 0755, e) < 0 || fd_mkdirs(b->top, 0755, e) < 0 ? -e->code : 0;
}

static int build(struct build *b, const char *state, struct err *e)
{
	char path[4400], log_path[4400], id[256];

	if (prepare(b, state, e) < 0)
		return -e->code;
	snprintf(path, sizeof path, "%s/.lock", b->top);
	AUTO_FD int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	if (lock < 0)
		return err_sys(e, "open '%s'", path);
	if (flock(lock, LOCK_EX | LOCK_NB) < 0)
		return err_set(e, EBUSY, "template '%s' is being built already", b->a->name);
	if (!b->a->force && already(b, id, sizeof id)) {
		printf("template '%s' is there already (%s); --force builds it again with today's packages\n", b->a->name, id);
		return switch_current(b, id, e);
	}
	if (access("/usr/bin/mmdebstrap", X_OK) < 0) {
		err_set(e, ENOENT, "build template '%s': mmdebstrap isn't installed", b->a->name);
		return err_hint(e, "sudo apt install mmdebstrap");
	}
	harvest(b);
	if (template_remove_tree(b->top, ".partial", e) < 0)
		return -e->code;
	snprintf(path, sizeof path, "%s/.partial/tmp", b->top);
	snprintf(log_path, sizeof log_path, "%s/build.log", b->top);
	if (fd_mkdirs(path, 0755, e) < 0)
		return -e->code;
	show(b, 0, "starting");
	if (run_mmdebstrap(b, log_path, e) < 0 || finish(b, e) < 0)
		return -e->code;
	show(b, 100, "done");
	printf("%stemplate '%s' is ready: %s\n  bureau run --template %s -- COMMAND\n", b->tty ? "\n" : "", b->a->name, b->id, b->a->name);
	return 0;
}

int template_build(const struct template_args *a, const char *state, struct err *e)
{
	struct build b = { .a = a, .tty = isatty(1) };

	recipe_init(&b.recipe);
	if (snprintf(b.top, sizeof b.top, "%s/templates/%s", state, a->name) >= (int)sizeof b.top)
		return err_set(e, ENAMETOOLONG, "the state folder's path is too long");
	int code = build(&b, state, e);

	recipe_done(&b.recipe);
	return code;
}
