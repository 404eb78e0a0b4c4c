/* sudo_args -- the command line of sudo, as far as people and scripts use it where no password is ever needed. */
#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest/sudo.h"

enum { OPT_PRESERVE = 256 };

static const struct option options[] = {
	{ "user", required_argument, NULL, 'u' }, { "login", no_argument, NULL, 'i' }, { "shell", no_argument, NULL, 's' },
	{ "preserve-env", optional_argument, NULL, OPT_PRESERVE }, { "set-home", no_argument, NULL, 'H' },
	{ "non-interactive", no_argument, NULL, 'n' }, { "stdin", no_argument, NULL, 'S' }, { "askpass", no_argument, NULL, 'A' },
	{ "validate", no_argument, NULL, 'v' }, { "list", no_argument, NULL, 'l' }, { "reset-timestamp", no_argument, NULL, 'k' },
	{ "remove-timestamp", no_argument, NULL, 'K' }, { "version", no_argument, NULL, 'V' }, { "help", no_argument, NULL, 'h' },
	{ "chdir", required_argument, NULL, 'D' }, { "prompt", required_argument, NULL, 'p' }, { "preserve-groups", no_argument, NULL, 'P' },
	{ "close-from", required_argument, NULL, 'C' }, { "group", required_argument, NULL, 'g' },
	{ "bell", no_argument, NULL, 'B' }, { NULL, 0, NULL, 0 },
};

static int one_option(int c, struct sudo_args *a)
{
	switch (c) {
	case 'u': a->user = optarg; return 0;
	case 'D': a->chdir = optarg; return 0;
	case 'i': a->login = true; return 0;
	case 's': a->shell = true; return 0;
	case 'E': a->preserve = true; return 0;
	case 'v': a->validate = true; return 0;
	case 'l': a->list = true; return 0;
	case 'k': case 'K': a->reset = true; return 0;
	case 'V': a->version = true; return 0;
	case 'h': a->help = true; return 0;
	case 'H': case 'n': case 'S': case 'A': case 'p': case 'P': case 'C': case 'B':
		return 0;               /* about passwords and prompts, or always so here */
	case OPT_PRESERVE:
		if (optarg)
			a->only = optarg;
		else
			a->preserve = true;
		return 0;
	case 'g':
		fprintf(stderr, "sudo: -g isn't supported here: use -u\n");
		return -1;
	}
	return -1;
}

static bool assignment(const char *word)
{
	size_t n = strcspn(word, "=");

	return n && word[n] == '=' && !memchr(word, '/', n);
}

int sudo_parse(int argc, char **argv, struct sudo_args *ret)
{
	struct sudo_args a = { .user = "root" };
	int c;

	optind = 0;     /* from the start, also for a second call */
	while ((c = getopt_long(argc, argv, "+u:isEHnSAvlkKVhD:p:PC:g:B", options, NULL)) != -1)
		if (one_option(c, &a) < 0)
			return -1;
	a.vars = argv + optind;
	while (argv[optind] && assignment(argv[optind])) {
		optind++;
		a.nvars++;
	}
	a.cmd = argv + optind;
	if (a.login && a.shell) {
		fprintf(stderr, "sudo: -i and -s together make no sense\n");
		return -1;
	}
	*ret = a;
	return 0;
}

char *sudo_quote(char **words)
{
	size_t n = 1;
	char *line, *at;

	for (size_t i = 0; words[i]; i++)
		n += 2 * strlen(words[i]) + 1;
	at = line = malloc(n);
	if (!line)
		return NULL;
	for (size_t i = 0; words[i]; i++) {
		if (i)
			*at++ = ' ';
		for (const char *p = words[i]; *p; p++) {
			if (!isalnum((unsigned char)*p) && !strchr("_-$", *p))
				*at++ = '\\';
			*at++ = *p;
		}
	}
	*at = '\0';
	return line;
}
