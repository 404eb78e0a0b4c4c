/* Which server, with which key. */
#include "client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "core/fd.h"
#include "tap.h"

/* The folder when nobody names one: root's is the machine's, anybody else's is in their home. */
static void test_folder(void)
{
	uid_t me = geteuid();
	char out[512];
	struct err e;

	setenv("BUREAU_STATE", "/b", 1);
	setenv("XDG_STATE_HOME", "/x", 1);
	setenv("HOME", "/h", 1);
	ok(client_state_dir("/a", out, sizeof out, &e) == 0 && !strcmp(out, "/a"), "the folder that is named");
	ok(client_state_dir(NULL, out, sizeof out, &e) == 0 && !strcmp(out, "/b"), "BUREAU_STATE's");
	unsetenv("BUREAU_STATE");
	if (me == 0) {
		ok(client_state_dir(NULL, out, sizeof out, &e) == 0 && !strcmp(out, "/var/lib/bureau"), "root's: /var/lib/bureau");
		if (seteuid(65534) < 0)
			return;
	}
	ok(client_state_dir(NULL, out, sizeof out, &e) == 0 && !strcmp(out, "/x/bureau"), "XDG_STATE_HOME/bureau");
	setenv("XDG_STATE_HOME", "not/absolute", 1);
	ok(client_state_dir(NULL, out, sizeof out, &e) == 0 && !strcmp(out, "/h/.local/state/bureau"), "else in the home folder; a relative XDG_STATE_HOME counts for nothing");
	unsetenv("XDG_STATE_HOME");
	unsetenv("HOME");
	ok(client_state_dir(NULL, out, sizeof out, &e) == -ENOENT && e.hint[0], "without a home: what to do");
	ok(me != 0 || seteuid(0) == 0, "back");
}

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
	test_folder();
	fd_remove_tree(AT_FDCWD, dir, &e);
	return done_testing();
}
