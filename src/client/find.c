/* find -- which server, and with which key. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include "client/client.h"
#include "core/fd.h"
#include "core/str.h"

int client_state_dir(const char *state, char *out, size_t size, struct err *e)
{
	const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int n;

	if (!state || !*state)
		state = getenv("BUREAU_STATE");
	if (state && *state)
		n = snprintf(out, size, "%s", state);
	else if (geteuid() == 0)
		n = snprintf(out, size, "/var/lib/bureau");
	else if (xdg && *xdg == '/')
		n = snprintf(out, size, "%s/bureau", xdg);
	else if (home && *home == '/')
		n = snprintf(out, size, "%s/.local/state/bureau", home);
	else {
		err_set(e, ENOENT, "find the state folder: HOME isn't set");
		return err_hint(e, "give --state DIR or set BUREAU_STATE");
	}
	if (n < 0 || (size_t)n >= size)
		return err_set(e, ENAMETOOLONG, "find the state folder: the path is too long");
	return 0;
}

static int trimmed(char *out, size_t size, const char *s, const char *what, struct err *e)
{
	size_t n = strcspn(s, "\r\n");

	while (n && s[n - 1] == '/')
		n--;
	if (n >= size)
		return err_set(e, ENAMETOOLONG, "%s is too long", what);
	memcpy(out, s, n);
	out[n] = '\0';
	return 0;
}

/* The URL that the server of this folder left for us; "" when none runs. */
static int folder_server(const char *dir, char *url, size_t size, struct err *e)
{
	char path[PATH_MAX];
	AUTO_FREE char *text = NULL;
	AUTO_JSON json_t *v = NULL;
	const char *s = "";
	size_t len;
	int r;

	url[0] = '\0';
	snprintf(path, sizeof path, "%s/server.json", dir);
	r = fd_read_file(AT_FDCWD, path, 65536, &text, &len, e);
	if (r == -ENOENT)
		return 0;
	if (r >= 0)
		r = js_parse(text, len, &v, e);
	if (r >= 0)
		r = js_get_str(v, "url", &s, e);
	if (r < 0)
		return err_wrap(e, "read '%s'", path);
	return trimmed(url, size, s, "the server's URL", e);
}

static int find_key(struct client_where *w, bool own_server, struct err *e)
{
	const char *env = getenv("BUREAU_API_KEY");
	char path[PATH_MAX];
	AUTO_FREE char *text = NULL;
	size_t len;
	int r;

	if (env && *env)
		return trimmed(w->key, sizeof w->key, env, "BUREAU_API_KEY", e);
	if (!own_server)
		return 0;
	snprintf(path, sizeof path, "%s/api-key", w->state);
	r = fd_read_file(AT_FDCWD, path, 4096, &text, &len, e);
	if (r == -ENOENT)
		return 0;
	if (r < 0) {
		err_wrap(e, "read the server's key");
		return err_hint(e, "set BUREAU_API_KEY, or run as the user who started the server");
	}
	return trimmed(w->key, sizeof w->key, text, "the key", e);
}

int client_find(const char *server, const char *state, struct client_where *ret, struct err *e)
{
	struct client_where w = { .key = "" };
	char own[512] = "";
	int r = client_state_dir(state, w.state, sizeof w.state, e);

	if (!server || !*server)
		server = getenv("BUREAU_URL");
	if (r < 0 && !(server && *server))
		return r;
	if (r >= 0) {
		struct err ignored;

		/* with a server named, a folder that can't be read doesn't matter */
		r = folder_server(w.state, own, sizeof own, server && *server ? &ignored : e);
		if (r < 0 && !(server && *server))
			return r;
	}
	if (server && *server) {
		r = trimmed(w.url, sizeof w.url, server, "the server's URL", e);
		if (r < 0)
			return r;
		if (!str_starts(w.url, "http://") && !str_starts(w.url, "https://")) {
			err_set(e, EINVAL, "'%.80s' is not a server's URL", server);
			return err_hint(e, "write http://HOST:PORT or https://HOST");
		}
	} else if (*own) {
		str_copy(w.url, sizeof w.url, own);
	} else {
		err_set(e, ECONNREFUSED, "no server runs (looked in '%.200s')", w.state);
		return err_hint(e, "start one: bureau serve");
	}
	r = find_key(&w, *own && str_eq(own, w.url), e);
	if (r < 0)
		return r;
	*ret = w;
	return 0;
}
