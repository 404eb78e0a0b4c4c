/* api_words -- what bureau-cli understands, and its main(). */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include "cli/api.h"
#include "core/log.h"
#include "core/str.h"

static const struct api_word words[] = {
	{ "sandbox", "create", "", 0, 0, " template timeout metadata env net memory cpus pids disk insecure json ", true, api_sandbox_create,
		"start a sandbox; prints its id",
		"  id=$(bureau sandbox create --template host --timeout 10m --env LANG=C.UTF-8)\n"
		"  bureau sandbox create --net none --memory 512M --cpus 0.5 --metadata team=blue\n"
		"--timeout never: it stays until it's killed. The default is the server's (5 minutes).\n" },
	{ "sandbox", "list", "", 0, 0, " all metadata template json ", true, api_sandbox_list, "list sandboxes, newest first",
		"  bureau sandbox list --metadata team=blue --json\n--all also lists those that have ended.\n" },
	{ "sandbox", "show", "ID", 1, 1, " json ", true, api_sandbox_show, "show one, also after its end: why it ended", "" },
	{ "sandbox", "exec", "ID -- CMD [ARG…]", 2, -1, " interactive tty env cwd user timeout json ", true, api_sandbox_exec, "run a program in it",
		"  bureau sandbox exec ID -- python3 -c 'print(6*7)'\n"
		"  bureau sandbox exec -i ID -- tar -x < files.tar       its stdin is yours\n"
		"  bureau sandbox exec -it ID -- bash                    a terminal\n"
		"--json prints one object when it has ended: exit_code, how, stdout, stderr (16 MiB of each at most).\n"
		"The exit code is the program's; 128+N when signal N ended it, 124 after --timeout, 127 no such program, 126 it can't be run,\n"
		"125 when Bureau itself failed. A command, its arguments and variables have 64 KiB together: pass more by stdin or as a file.\n" },
	{ "sandbox", "cp", "FROM TO", 2, 2, " user json ", true, api_sandbox_cp, "copy files and folders in and out",
		"  bureau sandbox cp report.csv ID:/home/user/           into it\n"
		"  bureau sandbox cp ID:out ./results                    a folder, with all that is in it\n"
		"  bureau sandbox cp - ID:notes.txt < notes.txt          '-' is stdin, or stdout\n"
		"A path in a sandbox is below its home unless it begins with '/'. Symbolic links are left out.\n" },
	{ "sandbox", "kill", "ID…", 0, -1, " all metadata json ", true, api_sandbox_kill, "end sandboxes and all that runs in them",
		"  bureau sandbox kill ID ID\n  bureau sandbox kill --all --metadata team=blue\n" },
	{ "sandbox", "timeout", "ID TIME", 2, 2, " json ", true, api_sandbox_timeout, "set when it ends: TIME from now, or never",
		"  bureau sandbox timeout ID 30m\n" },
	{ "sandbox", "metrics", "ID", 1, 1, " json ", true, api_sandbox_metrics, "cpu, memory and disk in use now", "" },
	{ "sandbox", "ports", "ID", 1, 1, " json ", true, api_sandbox_ports, "ports that something in it listens on, with their URLs", "" },
	{ "sandbox", "watch", "ID PATH", 2, 2, " recursive user json ", true, api_sandbox_watch, "print changes below a folder as they happen", "" },
	{ NULL, "status", "", 0, 0, " json ", true, api_status, "is the server there, and what does it run", "" },
	{ NULL, "stop", "", 0, 0, " ", false, api_stop, "stop this machine's server and its sandboxes", "" },
	{ NULL, "api-key", "", 0, 0, " ", false, api_key, "print the key of this machine's server",
		"  curl -H \"Authorization: Bearer $(bureau api-key)\" http://127.0.0.1:7070/v1/status\n" },
};

const struct api_word *api_words(size_t *ret_n)
{
	*ret_n = sizeof words / sizeof *words;
	return words;
}

int api_fail(const struct err *e)
{
	static const struct { int code, out; } map[] = {
		{ ENOENT, API_MISSING }, { EACCES, API_REFUSED }, { ECONNREFUSED, API_UNREACHABLE }, { EINVAL, API_USAGE },
	};

	fputs("bureau: ", stderr);
	api_put(stderr, e->msg);
	fputc('\n', stderr);
	if (*e->hint) {
		fputs("  ", stderr);
		api_put(stderr, e->hint);
		fputc('\n', stderr);
	}
	for (size_t i = 0; i < sizeof map / sizeof *map; i++) {
		if (map[i].code == e->code)
			return map[i].out;
	}
	return API_FAILED;
}

static const struct api_word *find(int *argc, char ***argv, bool *ret_group)
{
	const char *first = *argc ? **argv : "";

	*ret_group = false;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		const struct api_word *w = &words[i];

		if (!w->group && str_eq(w->name, first)) {
			++*argv;
			--*argc;
			return w;
		}
		if (!w->group || !str_eq(w->group, first))
			continue;
		*ret_group = true;
		if (*argc > 1 && (str_eq(w->name, (*argv)[1]) || (str_eq(w->name, "list") && str_eq((*argv)[1], "ls"))
			|| (str_eq(w->name, "kill") && str_eq((*argv)[1], "rm")))) {
			*argv += 2;
			*argc -= 2;
			return w;
		}
	}
	return NULL;
}

/* The word of the group that was meant, or NULL. */
static const char *near_word(const char *group, const char *word)
{
	static const struct { const char *word, *ours; } meant[] = {
		{ "ps", "list" }, { "new", "create" }, { "start", "create" }, { "run", "exec" }, { "sh", "exec" }, { "shell", "exec" }, { "connect", "exec" },
		{ "delete", "kill" }, { "remove", "kill" }, { "stop", "kill" }, { "end", "kill" }, { "get", "show" }, { "inspect", "show" }, { "info", "show" },
		{ "copy", "cp" }, { "put", "cp" }, { "stats", "metrics" }, { "top", "metrics" },
	};
	const char *names[sizeof words / sizeof *words];
	size_t n = 0;

	for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
		if (str_eq(meant[i].word, word))
			return meant[i].ours;
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (words[i].group && str_eq(words[i].group, group))
			names[n++] = words[i].name;
	return str_nearest(word, names, n);
}

static int unknown(const char *group, const char *word)
{
	const char *near = near_word(group, word);
	struct err e;

	err_set(&e, EINVAL, "'%s %.40s' is not known", group, word);
	if (near)
		err_hint(&e, "did you mean 'bureau %s %s'? bureau %s --help lists them all", group, near, group);
	else
		err_hint(&e, "see: bureau %s --help", group);
	return api_fail(&e);
}

static int run(const struct api_word *w, struct api *a)
{
	struct client_opts co = { .patience_ms = 5000 };
	struct err e = { 0 };
	int r = 0;

	if (w->server)
		r = client_find(a->o.server, a->o.state, &a->where, &e);
	if (r >= 0)
		r = loop_create(&a->loop, &e);
	if (r >= 0 && w->server)
		r = client_create(a->loop, &a->where, &co, &a->client, &e);
	r = r < 0 ? api_fail(&e) : w->run(a);
	client_free(a->client);
	loop_free(a->loop);
	json_decref(a->o.envs);
	json_decref(a->o.metadata);
	return r;
}

int main(int argc, char **argv)
{
	const struct api_word *w;
	struct api a = { .argc = 0 };
	struct err e = { 0 };
	bool group, help = false;
	const char *first;

	log_init("bureau", LOG_WARN);
	signal(SIGPIPE, SIG_IGN);
	argc--;
	argv++;
	first = argc ? *argv : "";
	w = find(&argc, &argv, &group);
	if (!w) {
		help = argc < 2 || str_eq(argv[1], "--help") || str_eq(argv[1], "-h");
		if (!group && *first && !str_eq(first, "--help") && !str_eq(first, "-h")) {
			err_set(&e, EINVAL, "'%.40s' is not known", first);
			err_hint(&e, "see: bureau --help");
			return api_fail(&e);
		}
		if (group && !help)
			return unknown(first, argv[1]);
		api_help(group ? first : NULL, NULL);
		return argc < 2 && group ? API_USAGE : API_OK;
	}
	if (api_parse(w, argc, argv, &a, &e) < 0) {
		if (!*e.hint)
			err_hint(&e, "see: bureau %s%s%s --help", w->group ? w->group : "", w->group ? " " : "", w->name);
		return api_fail(&e);
	}
	if (a.o.help) {
		api_help(NULL, w);
		return API_OK;
	}
	return run(w, &a);
}
