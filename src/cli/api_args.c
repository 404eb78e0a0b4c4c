/* api_args -- options as data, help made from it. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include "cli/api.h"
#include "core/fd.h"
#include "core/str.h"

enum kind { SWITCH, TEXT, NUMBER, BYTES, TIME, CPUS, PAIR };
static const struct option {
	const char *name;
	char letter;
	enum kind kind;
	size_t at;
	const char *value, *help;
} options[] = {
#define AT(f) offsetof(struct api_opts, f)
	{ "template", 't', TEXT, AT(template), "NAME", "what it starts from (base, host, …)" },
	{ "timeout", 0, TIME, AT(timeout_ms), "TIME", "30s, 5m, 1h; never" },
	{ "metadata", 'm', PAIR, AT(metadata), "K=V", "a mark to find it by; may be repeated" },
	{ "env", 'e', PAIR, AT(envs), "K=V", "a variable; may be repeated" },
	{ "net", 0, TEXT, AT(net), "none|all", "may it reach the network" },
	{ "memory", 0, BYTES, AT(memory), "SIZE", "512M, 2G" },
	{ "disk", 0, BYTES, AT(disk), "SIZE", "what it may write" },
	{ "cpus", 0, CPUS, AT(cpus), "N", "0.5, 2" },
	{ "pids", 0, NUMBER, AT(pids), "N", "programs at once" },
	{ "insecure", 0, SWITCH, AT(insecure), NULL, "no access token of its own" },
	{ "interactive", 'i', SWITCH, AT(stdin_open), NULL, "pass stdin on" },
	{ "tty", 't', SWITCH, AT(tty), NULL, "a terminal (with -i)" },
	{ "cwd", 'w', TEXT, AT(cwd), "DIR", "where it starts" },
	{ "user", 'u', TEXT, AT(user), "NAME", "user, or root" },
	{ "recursive", 'r', SWITCH, AT(recursive), NULL, "and all below" },
	{ "all", 'a', SWITCH, AT(all), NULL, "all of them" },
	{ "json", 0, SWITCH, AT(json), NULL, "for programs" },
	{ "server", 0, TEXT, AT(server), "URL", "which server (else BUREAU_URL, else this machine's)" },
	{ "state", 0, TEXT, AT(state), "DIR", "its state folder (else BUREAU_STATE)" },
	{ "help", 'h', SWITCH, AT(help), NULL, "this text" },
};
#define NOPTIONS (sizeof options / sizeof *options)
#define EVERY " server state help "

static bool allowed(const struct api_word *w, const char *name)
{
	char word[40];

	snprintf(word, sizeof word, " %s ", name);
	return strstr(w->options, word) || strstr(EVERY, word);
}

static const struct option *find(const struct api_word *w, const char *name, size_t n, char letter)
{
	for (size_t i = 0; i < NOPTIONS; i++) {
		bool hit = letter ? options[i].letter == letter : strlen(options[i].name) == n && memcmp(options[i].name, name, n) == 0;

		if (hit && allowed(w, options[i].name))
			return &options[i];
	}
	return NULL;
}

static int take_cpus(const char *v, int64_t *ret, struct err *e)
{
	char *end;
	double n = strtod(v, &end);

	if (!*v || *end || !(n >= 0.001 && n <= 1024))
		return err_set(e, EINVAL, "--cpus: a number such as 0.5");
	*ret = (int64_t)(n * 1000 + 0.5);
	return 0;
}

static int take_pair(const char *v, json_t **at, const char *name, struct err *e)
{
	const char *eq = strchr(v, '=');
	AUTO_FREE char *key = eq ? strndup(v, (size_t)(eq - v)) : NULL;

	if (!eq || eq == v || !key)
		return err_set(e, EINVAL, "--%s: write NAME=VALUE", name);
	if (!*at)
		*at = json_object();
	if (json_object_set_new(*at, key, json_string(eq + 1)) < 0)
		return err_set(e, EINVAL, "--%s: not UTF-8", name);
	return 0;
}

static int take(const struct option *o, const char *v, struct api_opts *opts, struct err *e)
{
	void *at = (char *)opts + o->at;
	uint64_t n;

	switch (o->kind) {
	case SWITCH:
		*(bool *)at = true;
		return 0;
	case TEXT:
		*(const char **)at = v;
		return 0;
	case NUMBER:
		if (str_u64(v, INT32_MAX, &n) < 0 || !n)
			return err_set(e, EINVAL, "--%s: a whole number above 0", o->name);
		*(int64_t *)at = (int64_t)n;
		return 0;
	case BYTES:
		if (str_size(v, at, e) < 0)
			return err_wrap(e, "--%s", o->name);
		return *(uint64_t *)at ? 0 : err_set(e, EINVAL, "--%s: more than 0; leave it out for the server's", o->name);
	case TIME:
		opts->timed = true;
		if (str_eq(v, "never")) {
			*(uint64_t *)at = 0;
			return 0;
		}
		return str_duration(v, at, e);
	case CPUS:
		return take_cpus(v, at, e);
	case PAIR:
		return take_pair(v, at, o->name, e);
	}
	return 0;
}

static int unknown(const struct api_word *w, const char *arg, struct err *e)
{
	const char *names[NOPTIONS], *near;
	char word[64];
	size_t n = 0;

	err_set(e, EINVAL, "'%.60s' is not known here", arg);
	snprintf(word, sizeof word, "%.*s", (int)strcspn(arg + 2, "="), arg + 2);
	for (size_t i = 0; i < NOPTIONS; i++)
		if (allowed(w, options[i].name))
			names[n++] = options[i].name;
	near = str_nearest(word, names, n);
	if (near)
		err_hint(e, "did you mean --%s? bureau %s%s%s --help lists them all", near, w->group ? w->group : "", w->group ? " " : "", w->name);
	return -EINVAL;
}

static int long_option(const struct api_word *w, char **argv, int argc, int *i, struct api *a, struct err *e)
{
	const char *name = argv[*i] + 2, *eq = strchr(name, '='), *v = eq ? eq + 1 : NULL;
	const struct option *o = find(w, name, eq ? (size_t)(eq - name) : strlen(name), 0);

	if (!o)
		return unknown(w, argv[*i], e);
	if (o->kind == SWITCH && v)
		return err_set(e, EINVAL, "--%s takes no value", o->name);
	if (o->kind != SWITCH && !v) {
		if (*i + 1 >= argc)
			return err_set(e, EINVAL, "--%s needs a value (%s)", o->name, o->value);
		v = argv[++*i];
	}
	return take(o, v, &a->o, e);
}

static int letters(const struct api_word *w, char **argv, int argc, int *i, struct api *a, struct err *e)
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		const struct option *o = find(w, NULL, 0, *p);
		const char *v = NULL;
		int r;

		if (!o)
			return err_set(e, EINVAL, "'-%c' is not known here", *p);
		if (o->kind != SWITCH) {
			v = p[1] ? p + 1 : *i + 1 < argc ? argv[++*i] : NULL;
			if (!v)
				return err_set(e, EINVAL, "-%c needs a value (%s)", *p, o->value);
		}
		r = take(o, v, &a->o, e);
		if (r < 0 || v)
			return r;
	}
	return 0;
}

int api_parse(const struct api_word *w, int argc, char **argv, struct api *a, struct err *e)
{
	bool rest = false;

	a->argv = argv;
	for (int i = 0; i < argc; i++) {
		char *arg = argv[i];
		int r = 0;

		/* words are moved to the front: there is always room, they were there before */
		if (rest || *arg != '-' || !arg[1])
			argv[a->argc++] = arg;
		else if (str_eq(arg, "--"))
			rest = true;
		else if (arg[1] == '-')
			r = long_option(w, argv, argc, &i, a, e);
		else
			r = letters(w, argv, argc, &i, a, e);
		if (r < 0)
			return r;
		/* exec: what follows the sandbox belongs to the program */
		if (str_eq(w->name, "exec") && a->argc == 1 && i + 1 < argc && !str_eq(argv[i + 1], "--"))
			rest = argv[i + 1][0] != '-';
	}
	if (a->o.help)
		return 0;
	if (a->argc < w->min)
		return err_set(e, EINVAL, "'%s' needs %s", w->name, w->args);
	if (w->max >= 0 && a->argc > w->max)
		return err_set(e, EINVAL, "'%.60s' is one word too many", a->argv[w->max]);
	return 0;
}

/* Words hold "…", which is three bytes and one column. */
static int columns(const char *s, int width)
{
	for (; *s; s++)
		width += ((unsigned char)*s & 0xc0) == 0x80;
	return width;
}

static void help_word(const struct api_word *w)
{
	const char *dashes = strstr(w->args, "-- ");     /* options stand before the program's own words */
	int before = dashes ? (int)(dashes - w->args) : (int)strlen(w->args);

	printf("usage: bureau %s%s%s%s%.*s", w->group ? w->group : "", w->group ? " " : "", w->name, before ? " " : "", before, w->args);
	printf("%s[options]%s%s\n\n%s\n", dashes ? "" : " ", dashes ? " " : "", dashes ? dashes : "", w->summary);
	if (*w->more)
		printf("\n%s", w->more);
	putchar('\n');
	for (size_t i = 0; i < NOPTIONS; i++) {
		char left[64];

		if (!allowed(w, options[i].name))
			continue;
		snprintf(left, sizeof left, "%s%c%s--%s %s", options[i].letter ? "-" : " ", options[i].letter ? options[i].letter : ' ',
			options[i].letter ? ", " : "  ", options[i].name, options[i].value ? options[i].value : "");
		printf("  %-28s %s\n", left, options[i].help);
	}
}

void api_help(const char *group, const struct api_word *only)
{
	size_t n;
	const struct api_word *w = api_words(&n);

	if (only) {
		help_word(only);
		return;
	}
	printf("usage: bureau %s%s\n\n", group ? group : "", group ? " WORD" : "WORD");
	for (size_t i = 0; i < n; i++) {
		char left[64];

		if (group ? !w[i].group || !str_eq(w[i].group, group) : w[i].group && !str_eq(w[i].group, "sandbox"))
			continue;
		snprintf(left, sizeof left, "%s%s%s %s", !group && w[i].group ? w[i].group : "", !group && w[i].group ? " " : "", w[i].name, w[i].args);
		printf("  %-*s %s\n", columns(left, 32), left, w[i].summary);
	}
	printf("\nEach has --help. Exit code: 0 done, 1 failed, 2 wrong use, 3 no such thing, 4 the key is refused, 5 no server answers.\n");
}
