/* Which server, with which key. */
#include "client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include "core/fd.h"
#include "tap.h"

int main(void)
{
	char dir[256], path[512];
	struct client_where w;
	struct err e = { 0 };

	ok(mkdtemp(tap_tmp(dir, sizeof dir, "bureau-unit")) != NULL, "a folder");
	unsetenv("BUREAU_URL");
	unsetenv("BUREAU_API_KEY");
	setenv("BUREAU_STATE", dir, 1);
	ok(client_find(NULL, NULL, &w, &e) == -ECONNREFUSED && strstr(e.hint, "bureau serve"), "no server, and what to do");
	snprintf(path, sizeof path, "%s/server.json", dir);
	fd_write_file(AT_FDCWD, path, 0600, "{\"url\":\"http://127.0.0.1:7/\",\"pid\":2}", 37, &e);
	snprintf(path, sizeof path, "%s/api-key", dir);
	fd_write_file(AT_FDCWD, path, 0600, "e2b_secret\n", 11, &e);
	ok(client_find(NULL, NULL, &w, &e) == 0, "the folder's server");
	is_str(w.url, "http://127.0.0.1:7", "its URL, without the slash");
	is_str(w.key, "e2b_secret", "its key");
	ok(client_find("http://127.0.0.1:7", NULL, &w, &e) == 0 && !strcmp(w.key, "e2b_secret"), "named, but the same: its key");
	ok(client_find("http://127.0.0.1:8", NULL, &w, &e) == 0 && !*w.key, "another server never gets this folder's key");
	setenv("BUREAU_URL", "https://far.example/", 1);
	ok(client_find(NULL, NULL, &w, &e) == 0 && !strcmp(w.url, "https://far.example") && !*w.key, "BUREAU_URL");
	setenv("BUREAU_API_KEY", "k", 1);
	ok(client_find(NULL, NULL, &w, &e) == 0 && !strcmp(w.key, "k"), "BUREAU_API_KEY");
	ok(client_find("ftp://x", NULL, &w, &e) == -EINVAL, "not a server's URL");
	fd_remove_tree(AT_FDCWD, dir, &e);
	return done_testing();
}
