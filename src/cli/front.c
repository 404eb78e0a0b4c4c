#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/proc.h"
#include "core/str.h"

/* bureau, the front program (docs/decisions/0001-front-program.md): static and small, because `bureau run` starts it once
 * for each sandbox. It does here what needs no server, and hands every other word to the program beside it that does. */
struct command {
	const char *name;
	int (*here)(int argc, char **argv);
	const char *program;            /* or the sibling that gets the word and all that follows */
	const char *group, *summary;
};

static int help_main(int argc, char **argv);

static const struct command commands[] = {
	{ "run", run_main, NULL, "Without a server", "run a program in a disposable sandbox" },
	{ "template", NULL, "bureau-template", NULL, "build, list and remove what sandboxes start from" },
	{ "doctor", doctor_main, NULL, NULL, "what this host can and can't do, and how to fix it" },
	{ "serve", NULL, "bureau-serve", "The server", "start it: REST API, E2B API, on one port of this machine" },
	{ "status", NULL, "bureau-cli", NULL, "is it there, and what does it run" },
	{ "stop", NULL, "bureau-cli", NULL, "stop it and its sandboxes" },
	{ "api-key", NULL, "bureau-cli", NULL, "print its key, for programs that need it" },
	{ "sandbox", NULL, "bureau-cli", "Through the server", "create, list, exec, cp, kill: sandboxes that stay until you end them" },
	{ "job", NULL, "bureau-secretary", "The secretary", "run, list, resume: many tasks, each on a computer of its own" },
	{ "help", help_main, NULL, NULL, NULL },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const char examples[] =
	"\n"
	"Examples\n"
	"  bureau doctor                                    is this machine ready?\n"
	"  bureau run -- python3 script.py                  no network, nothing of yours visible\n"
	"  bureau run --mount .:/work --workdir /work -- make test\n"
	"  bureau run --net all --memory 1G --timeout 5m -- pip download requests\n"
	"  bureau serve --detach && bureau sandbox create   a server, and a sandbox that stays\n"
	"\n"
	"bureau WORD --help explains each with examples. Manual: man bureau, man bureau-job; docs/ of the source tree.\n";

static void print_help(void)
{
	printf("bureau: computers for AI agents, on your own machine\n\nusage: bureau WORD [options]\n");
	for (size_t i = 0; i < COMMANDS; i++) {
		if (commands[i].group)
			printf("\n%s\n", commands[i].group);
		if (commands[i].summary)
			printf("  %-10s %s\n", commands[i].name, commands[i].summary);
	}
	fputs(examples, stdout);
}

static int hand_over(const char *program, char **argv)
{
	char path[4096];
	struct err e;

	if (proc_sibling(program, path, sizeof path, &e) < 0) {
		err_wrap(&e, "'%s' needs the program '%s'", argv[1], program);
		err_hint(&e, "it belongs beside 'bureau': build everything, or install again");
		cli_error(NULL, &e);
		return CLI_OURS;
	}
	argv[0] = path;
	execv(path, argv);
	err_sys(&e, "start '%s'", path);
	cli_error(NULL, &e);
	return CLI_OURS;
}

static const struct command *find(const char *word)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (str_eq(commands[i].name, word))
			return &commands[i];
	return NULL;
}

/* Words of other tools, and of ours without their group. */
static const struct { const char *word, *ours; } meant[] = {
	{ "ps", "sandbox list" }, { "ls", "sandbox list" }, { "list", "sandbox list" }, { "sandboxes", "sandbox list" }, { "exec", "sandbox exec" },
	{ "create", "sandbox create" }, { "new", "sandbox create" }, { "start", "sandbox create" }, { "cp", "sandbox cp" }, { "copy", "sandbox cp" },
	{ "kill", "sandbox kill" }, { "rm", "sandbox kill" }, { "delete", "sandbox kill" }, { "show", "sandbox show" }, { "inspect", "sandbox show" },
	{ "stats", "sandbox metrics" }, { "metrics", "sandbox metrics" }, { "top", "sandbox metrics" }, { "port", "sandbox ports" },
	{ "ports", "sandbox ports" }, { "watch", "sandbox watch" }, { "timeout", "sandbox timeout" }, { "images", "template list" },
	{ "build", "template build" }, { "jobs", "job list" }, { "resume", "job resume" }, { "server", "serve" }, { "up", "serve --detach" },
	{ "down", "stop" }, { "info", "status" }, { "key", "api-key" }, { "check", "doctor" },
};

static const char *near_of(const char *word)
{
	const char *names[COMMANDS];

	for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
		if (str_eq(meant[i].word, word))
			return meant[i].ours;
	for (size_t i = 0; i < COMMANDS; i++)
		names[i] = commands[i].name;
	return str_nearest(word, names, COMMANDS);
}

static int unknown(const char *word)
{
	const char *near = near_of(word);
	struct err e;

	err_set(&e, ENOENT, "there is no command '%s'", word);
	if (near)
		err_hint(&e, "did you mean 'bureau %s'? 'bureau --help' lists them all", near);
	else
		err_hint(&e, "'bureau --help' lists them all");
	cli_error(NULL, &e);
	return CLI_USAGE;
}

static int dispatch(int argc, char **argv)
{
	const struct command *c = find(argv[1]);

	if (!c)
		return unknown(argv[1]);
	return c->here ? c->here(argc - 1, argv + 1) : hand_over(c->program, argv);
}

static int help_main(int argc, char **argv)
{
	char flag[] = "--help", *args[] = { argv[0], argc > 1 ? argv[1] : NULL, argc > 2 ? argv[2] : flag, flag, NULL };

	if (argc > 1 && *argv[1] != '-' && !str_eq(argv[1], "help"))
		return dispatch(argc > 2 ? 4 : 3, args);
	print_help();
	return CLI_OK;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_help();
		return CLI_USAGE;
	}
	if (str_eq(argv[1], "--help") || str_eq(argv[1], "-h")) {
		print_help();
		return CLI_OK;
	}
	if (str_eq(argv[1], "--version") || str_eq(argv[1], "-V") || str_eq(argv[1], "version")) {
		puts("bureau " BUREAU_VERSION);
		return CLI_OK;
	}
	return dispatch(argc, argv);
}
