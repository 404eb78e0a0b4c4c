#include "guest/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest/guest.h"

int env_init(struct env *e, size_t cap)
{
	memset(e, 0, sizeof *e);
	e->v = calloc(cap + 1, sizeof *e->v);
	e->cap = cap;
	return e->v ? 0 : -ENOMEM;
}

void env_done(struct env *e)
{
	for (size_t i = 0; i < e->nown; i++)
		free(e->own[i]);
	free(e->v);
	memset(e, 0, sizeof *e);
}

void env_set(struct env *e, const char *kv)
{
	const char *eq = strchr(kv, '=');
	size_t n;

	if (!eq || eq == kv)
		return;
	n = (size_t)(eq - kv) + 1;
	for (size_t i = 0; i < e->n; i++)
		if (strncmp(e->v[i], kv, n) == 0) {
			e->v[i] = kv;
			return;
		}
	if (e->n < e->cap)
		e->v[e->n++] = kv;
}

int env_make(struct env *e, const char *k, const char *v)
{
	size_t n = strlen(k) + strlen(v) + 2;
	char *kv = malloc(n);

	if (!kv || e->nown == ENV_BASE) {
		free(kv);
		return -ENOMEM;
	}
	snprintf(kv, n, "%s=%s", k, v);
	e->own[e->nown++] = kv;
	env_set(e, kv);
	return 0;
}

int env_user(struct env *e, const struct user *u, bool tty)
{
	env_set(e, "PATH=" GUEST_PATH_DEFAULT);
	if (tty)
		env_set(e, "TERM=xterm-256color");
	if (env_make(e, "HOME", u->home) < 0 || env_make(e, "USER", u->name) < 0 || env_make(e, "LOGNAME", u->name) < 0)
		return -ENOMEM;
	return env_make(e, "SHELL", u->shell);
}

const char *env_get(const struct env *e, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; i < e->n; i++)
		if (strncmp(e->v[i], name, n) == 0 && e->v[i][n] == '=')
			return e->v[i] + n + 1;
	return NULL;
}
