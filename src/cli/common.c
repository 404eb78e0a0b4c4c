#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "core/fd.h"
#include "core/str.h"

static void clean(char *s)
{
	char *to = s;

	while (*s) {
		size_t n = str_obeyed(s);

		*to++ = n ? '?' : *s;
		s += n ? n : 1;
	}
	*to = '\0';
}

void cli_say(const char *word, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	clean(line);
	dprintf(2, "bureau%s%s: %s\n", word ? " " : "", word ? word : "", line);
}

void cli_error(const char *word, const struct err *e)
{
	char hint[sizeof e->hint];

	cli_say(word, "%s", e->msg);
	str_copy(hint, sizeof hint, e->hint);
	clean(hint);
	if (*hint)
		dprintf(2, "  %s\n", hint);
}

static const struct cli_option *find(const struct cli_option *table, size_t n, const char *name, size_t len)
{
	for (size_t i = 0; i < n; i++)
		if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
			return &table[i];
	return NULL;
}

static const struct cli_option *find_letter(const struct cli_option *table, size_t n, char letter)
{
	for (size_t i = 0; i < n; i++)
		if (table[i].letter == letter)
			return &table[i];
	return NULL;
}

static int unknown(const struct cli_option *table, size_t n, const char *arg, struct err *e)
{
	const char *names[64];
	char word[64];
	size_t count = 0;

	err_set(e, EINVAL, "there is no option '%s'", arg);
	for (size_t i = 0; i < n && count < 64; i++)
		names[count++] = table[i].name;
	if (str_copy(word, sizeof word, arg + strspn(arg, "-")) < 0)
		return -EINVAL;
	word[strcspn(word, "=")] = '\0';
	const char *near = str_nearest(word, names, count);

	if (near)
		err_hint(e, "did you mean --%s? --help lists them all", near);
	else
		err_hint(e, "--help lists them all");
	return -EINVAL;
}

int cli_options(const struct cli_option *table, size_t n, int argc, char **argv, void *ctx, int *ret_rest, bool *ret_help, struct err *e)
{
	int i;

	*ret_help = false;
	for (i = 1; i < argc; i++) {
		const char *arg = argv[i], *value = NULL;
		const struct cli_option *o;

		if (arg[0] != '-' || !arg[1])
			break;
		if (str_eq(arg, "--")) {
			i++;
			break;
		}
		if (str_eq(arg, "--help") || str_eq(arg, "-h")) {
			*ret_help = true;
			return 0;
		}
		if (arg[1] == '-') {
			size_t len = strcspn(arg + 2, "=");

			o = find(table, n, arg + 2, len);
			value = arg[2 + len] ? arg + 3 + len : NULL;
		} else {
			o = find_letter(table, n, arg[1]);
			value = arg[2] ? arg + 2 : NULL;
		}
		if (!o)
			return unknown(table, n, arg, e);
		if (!o->value && value)
			return err_set(e, EINVAL, "--%s takes no value", o->name);
		if (o->value && !value && ++i >= argc)
			return err_set(e, EINVAL, "--%s needs a value: --%s %s", o->name, o->name, o->value);
		if (o->value && !value)
			value = argv[i];
		if (o->apply(ctx, value, e) < 0)
			return -e->code;
	}
	*ret_rest = i;
	return 0;
}

void cli_print_options(const struct cli_option *table, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char left[64];

		if (table[i].letter)
			snprintf(left, sizeof left, "-%c, --%s %s", table[i].letter, table[i].name, table[i].value ? table[i].value : "");
		else
			snprintf(left, sizeof left, "    --%s %s", table[i].name, table[i].value ? table[i].value : "");
		printf("  %-30s %s\n", left, table[i].help);
	}
}

int cli_state(const char *given, char *out, size_t size, struct err *e)
{
	const char *home, *base = given;
	char cwd[2048] = "";
	int n;

	if (!base || !*base)
		base = getenv("BUREAU_STATE");
	if (base && *base) {
		if (base[0] != '/' && !getcwd(cwd, sizeof cwd))
			return err_sys(e, "find the current folder");
		n = snprintf(out, size, "%s%s%s", cwd, cwd[0] ? "/" : "", base);
	} else if (geteuid() == 0) {
		n = snprintf(out, size, "/var/lib/bureau");
	} else if ((base = getenv("XDG_STATE_HOME")) && base[0] == '/') {
		n = snprintf(out, size, "%s/bureau", base);
	} else {
		home = getenv("HOME");
		if (!home || home[0] != '/') {
			err_set(e, ENOENT, "find the state folder: HOME isn't set");
			return err_hint(e, "set HOME or BUREAU_STATE, or give --state DIR");
		}
		n = snprintf(out, size, "%s/.local/state/bureau", home);
	}
	if (n < 0 || (size_t)n >= size)
		return err_set(e, ENAMETOOLONG, "the path of the state folder is too long");
	return 0;
}

uint64_t cli_default_disk(uint64_t memory)
{
	const uint64_t most = UINT64_C(4) << 30;
	struct sysinfo si;

	if (!memory)
		memory = sysinfo(&si) == 0 && (uint64_t)si.totalram * si.mem_unit / 2 < most ? (uint64_t)si.totalram * si.mem_unit / 2 : most;
	return memory / 2;
}

/* Only base's recipe is shipped: "build NAME" would find none for another. */
int cli_template_hint(struct err *e, const char *name)
{
	bool base = str_eq(name, "base");

	return err_hint(e, "bureau template build %s%.80s%s makes it; bureau template list shows what is there", base ? "" : "./", name, base ? "" : ".recipe");
}

/* Behind what anybody has in file. */
static void behind(const char *file, uint64_t *first)
{
	AUTO_FREE char *text = NULL;
	char *rest, *line;
	uint64_t at, n;
	struct err e;

	if (fd_read_file(AT_FDCWD, file, 1 << 20, &text, NULL, &e) < 0)
		return;
	for (rest = text; (line = strsep(&rest, "\n"));) {
		strsep(&line, ":");
		char *from = strsep(&line, ":");

		if (line && str_u64(from, UINT32_MAX, &at) == 0 && str_u64(line, UINT32_MAX, &n) == 0 && at + n > *first)
			*first = at + n;
	}
}

void cli_subid_command(const char *user, char *out, size_t size)
{
	uint64_t first = 100000;

	behind("/etc/subuid", &first);
	behind("/etc/subgid", &first);
	if (first > UINT32_MAX - 65536)
		first = 100000;
	snprintf(out, size, "sudo usermod --add-subuids %llu-%llu --add-subgids %llu-%llu %.60s", (unsigned long long)first,
		 (unsigned long long)first + 65535, (unsigned long long)first, (unsigned long long)first + 65535, user);
}
