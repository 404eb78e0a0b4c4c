#include "cli/template.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/fd.h"
#include "core/json.h"
#include "core/str.h"

/* bureau-template: the program behind `bureau template`. Needs no server. */
static int on_state(void *ctx, const char *v, struct err *e)
{
	((struct template_args *)ctx)->state = v;
	return 0;
}

static int on_suite(void *ctx, const char *v, struct err *e)
{
	if (!str_name(v))
		return err_set(e, EINVAL, "--suite '%s' isn't the name of a Debian release", v);
	((struct template_args *)ctx)->suite = v;
	return 0;
}

static int on_mirror(void *ctx, const char *v, struct err *e)
{
	if (!str_starts(v, "http://") && !str_starts(v, "https://") && !str_starts(v, "file:") && !str_starts(v, "deb "))
		return err_set(e, EINVAL, "--mirror '%s' isn't an URL", v);
	((struct template_args *)ctx)->mirror = v;
	return 0;
}

static int on_apt_option(void *ctx, const char *v, struct err *e)
{
	struct template_args *a = ctx;

	if (a->napt_options == TEMPLATE_OPTIONS)
		return err_set(e, E2BIG, "--apt-option: more than %d", TEMPLATE_OPTIONS);
	a->apt_options[a->napt_options++] = v;
	return 0;
}

static int on_json(void *ctx, const char *v, struct err *e)
{
	((struct template_args *)ctx)->json = true;
	return 0;
}

static int on_force(void *ctx, const char *v, struct err *e)
{
	((struct template_args *)ctx)->force = true;
	return 0;
}

static const struct cli_option options[] = {
	{ "state", 0, "DIR", "the state folder (default: $BUREAU_STATE or the usual place)", on_state },
	{ "json", 0, NULL, "list, show: for programs", on_json },
	{ "suite", 0, "NAME", "build: another Debian release than the recipe's", on_suite },
	{ "mirror", 0, "URL", "build: where packages come from", on_mirror },
	{ "apt-option", 0, "OPTION", "build: an apt setting, such as 'Acquire::http::Proxy \"http://proxy:3128\";'", on_apt_option },
	{ "force", 0, NULL, "build: again, with today's packages", on_force },
};
enum { OPTIONS = sizeof options / sizeof *options };

/* What is known of DIR/templates/NAME/current; NULL when nothing is there. */
static json_t *read_info(const char *state, const char *name)
{
	char path[4400];
	AUTO_FREE char *text = NULL;
	json_t *v = NULL;
	struct err e;
	size_t n;

	if (snprintf(path, sizeof path, "%s/templates/%s/current/info.json", state, name) >= (int)sizeof path)
		return NULL;
	if (fd_read_file(AT_FDCWD, path, 1 << 16, &text, &n, &e) < 0 || js_parse(text, n, &v, &e) < 0)
		return NULL;
	return v;
}

static const char *word(const json_t *v, const char *key)
{
	const char *s = "";
	struct err e;

	js_get_str(v, key, &s, &e);
	return s;
}

static int print_json(const json_t *v)
{
	AUTO_BUF struct buf text = BUF_INIT(4 << 20);

	js_dump_pretty(v, &text);
	fwrite(buf_at(&text), 1, text.len, stdout);
	return 0;
}

static int list(const struct template_args *a, const char *state, struct err *e)
{
	AUTO_JSON json_t *all = json_array();
	char path[4200];

	json_array_append_new(all, json_pack("{s:s, s:s}", "name", "host", "about", "this machine's /usr; nothing to build"));
	snprintf(path, sizeof path, "%s/templates", state);
	struct dirent **names = NULL;
	int n = scandir(path, &names, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		json_t *v = str_name(names[i]->d_name) ? read_info(state, names[i]->d_name) : NULL;

		if (v)
			json_array_append_new(all, v);
		free(names[i]);
	}
	free(names);
	if (a->json)
		return print_json(all);
	printf("%-20s %-16s %-10s %-24s %s\n", "NAME", "ID", "SUITE", "BUILT", "ABOUT");
	for (size_t i = 0; i < json_array_size(all); i++) {
		const json_t *v = json_array_get(all, i);

		printf("%-20s %-16s %-10s %-24.19s %s\n", word(v, "name"), word(v, "id"), word(v, "suite"), word(v, "built_at"), word(v, "about"));
	}
	return 0;
}

static int show(const struct template_args *a, const char *state, struct err *e)
{
	AUTO_JSON json_t *v = str_eq(a->name, "host") ? json_pack("{s:s, s:s}", "name", "host", "about", "this machine's /usr; nothing to build")
						      : read_info(state, a->name);
	const char *key;
	json_t *value;

	if (!v) {
		err_set(e, ENOENT, "there is no template '%s' in '%s'", a->name, state);
		return cli_template_hint(e, a->name);
	}
	if (a->json)
		return print_json(v);
	json_object_foreach(v, key, value) {
		if (json_is_string(value))
			printf("%-10s %s\n", key, json_string_value(value));
		else
			printf("%-10s %lld\n", key, (long long)json_integer_value(value));
	}
	if (!str_eq(a->name, "host"))
		printf("%-10s %s/templates/%s/current/rootfs\n", "folder", state, a->name);
	return 0;
}

static int remove_template(const struct template_args *a, const char *state, struct err *e)
{
	char templates[4200], from[4400], to[4400], gone[128];

	snprintf(templates, sizeof templates, "%s/templates", state);
	snprintf(gone, sizeof gone, ".gone-%s", a->name);
	snprintf(from, sizeof from, "%s/%s", templates, a->name);
	snprintf(to, sizeof to, "%s/%s", templates, gone);
	if (str_eq(a->name, "host"))
		return err_set(e, EINVAL, "template 'host' is this machine itself and can't be removed");
	if (template_remove_tree(templates, gone, e) < 0)
		return -e->code;
	if (rename(from, to) < 0) {     /* at once: nothing half removed can be started from */
		err_sys(e, "remove template '%s'", a->name);
		return err_hint(e, "bureau template list shows what is there");
	}
	return template_remove_tree(templates, gone, e);
}

static const struct verb {
	const char *word;
	int (*run)(const struct template_args *, const char *, struct err *);
	const char *arg;                /* what it needs, or NULL */
	const char *summary, *more;
} verbs[] = {
	{ "build", template_build, "NAME|FILE.recipe", "make one from Debian packages, by a recipe",
		"A build that was stopped goes on where it was: nothing is downloaded twice.\n\n"
		"  bureau template build base\n"
		"  bureau template build ./mine.recipe --mirror http://mirror.local/debian\n" },
	{ "list", list, NULL, "what there is", "  bureau template list --json\n" },
	{ "show", show, "NAME", "one of them: its packages' release, when it was built, its folder", "  bureau template show base\n" },
	{ "remove", remove_template, "NAME", "delete one; sandboxes that run from it go on", "  bureau template remove mine\n" },
};
enum { VERBS = sizeof verbs / sizeof *verbs };

static void help(void)
{
	printf("bureau template: what sandboxes start from.\n\n"
	       "usage: bureau template build NAME|FILE.recipe [options]\n"
	       "       bureau template list | show NAME | remove NAME [options]\n\n"
	       "'host' is always there: this machine's /usr, nothing to build. Others are root file systems of their own, made\n"
	       "from Debian packages by a recipe. A build that was stopped goes on where it was: nothing is downloaded twice.\n\n");
	cli_print_options(options, OPTIONS);
	printf("\nExit code: 0 done, 1 failed or not there, 2 wrong use.\n\nExamples\n"
	       "  bureau template build base\n"
	       "  bureau run --template base -- python3 --version\n"
	       "  bureau template list --json\n"
	       "  bureau template build ./mine.recipe --mirror http://mirror.local/debian\n");
}

/* Which options a word takes is in their help: "build: ...", "list, show: ..."; the others are everybody's. */
static bool takes(const struct verb *v, const struct cli_option *o)
{
	size_t n = strcspn(o->help, ":");
	const char *at = strstr(o->help, v->word);

	return !str_starts(o->help, "build") && !str_starts(o->help, "list") ? true : at && (size_t)(at - o->help) < n;
}

static void help_verb(const struct verb *v)
{
	struct cli_option mine[OPTIONS];
	size_t n = 0;

	printf("usage: bureau template %s%s%s [options]\n\n%s\n\n%s\n", v->word, v->arg ? " " : "", v->arg ? v->arg : "", v->summary, v->more);
	for (size_t i = 0; i < OPTIONS; i++)
		if (takes(v, &options[i]))
			mine[n++] = options[i];
	cli_print_options(mine, n);
}

/* Options may stand before and after the words. */
static int parse(int argc, char **argv, struct template_args *a, const char **words, size_t *ret_n, bool *ret_help, struct err *e)
{
	int rest = 0;

	*ret_n = 0;
	while (argc > 1) {
		if (cli_options(options, OPTIONS, argc, argv, a, &rest, ret_help, e) < 0 || *ret_help)
			return *ret_help ? 0 : -e->code;
		if (rest < argc) {
			if (*ret_n == 2)
				return err_set(e, EINVAL, "'%s' is one word too many", argv[rest]);
			words[(*ret_n)++] = argv[rest];
		}
		argc -= rest;
		argv += rest;
	}
	return 0;
}

static int usage(struct err *e)
{
	if (!e->hint[0])
		err_hint(e, "bureau template --help has examples");
	cli_error("template", e);
	return CLI_USAGE;
}

/* "some/where/mine.recipe" → "mine"; false when it isn't a file's name. */
static bool name_of_file(const char *path, char *out, size_t size)
{
	const char *slash = strrchr(path, '/');

	if ((!slash && !str_ends(path, ".recipe")) || str_copy(out, size, slash ? slash + 1 : path) < 0)
		return false;
	if (str_ends(out, ".recipe"))
		out[strlen(out) - 7] = '\0';
	return true;
}

int main(int argc, char **argv)
{
	struct template_args a = { 0 };
	const char *words[2], *names[VERBS];
	static char state[4096];
	char name[80];
	struct err e = { 0 };
	bool wants_help = false;
	size_t n, k = 0;

	if (parse(argc - 1, argv + 1, &a, words, &n, &wants_help, &e) < 0)
		return usage(&e);
	if (n && (str_eq(words[0], "ls") || str_eq(words[0], "rm")))
		words[0] = str_eq(words[0], "ls") ? "list" : "remove";
	while (k < VERBS && n && !str_eq(verbs[k].word, words[0]))
		names[k] = verbs[k].word, k++;
	if (wants_help && n && k < VERBS) {
		help_verb(&verbs[k]);
		return CLI_OK;
	}
	if (wants_help || n == 0) {
		help();
		return wants_help ? CLI_OK : CLI_USAGE;
	}
	if (k == VERBS) {
		const char *near = str_nearest(words[0], names, VERBS);

		err_set(&e, EINVAL, "there is no 'bureau template %s'", words[0]);
		err_hint(&e, near ? "did you mean '%s'?" : "build, list, show, remove%s", near ? near : "");
		return usage(&e);
	}
	if ((verbs[k].arg != NULL) != (n == 2)) {
		err_set(&e, EINVAL, verbs[k].arg ? "which template? bureau template %s NAME" : "bureau template %s takes no name", words[0]);
		return usage(&e);
	}
	a.name = a.recipe = n == 2 ? words[1] : NULL;
	if (a.name && k == 0 && name_of_file(a.recipe, name, sizeof name))
		a.name = name;
	if (a.name && !str_name(a.name)) {
		err_set(&e, EINVAL, "'%s' can't be a template's name: a-z, 0-9, dot, dash", a.name);
		return usage(&e);
	}
	if (cli_state(a.state, state, sizeof state, &e) < 0 || verbs[k].run(&a, state, &e) < 0) {
		cli_error("template", &e);
		return CLI_FAILED;
	}
	return CLI_OK;
}
