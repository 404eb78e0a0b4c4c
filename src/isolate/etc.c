/* etc -- the small root of template `host`: everything but /usr is ours, so that nothing of the host shows. */
#include "isolate/ns_priv.h"
#include "core/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct { const char *path; mode_t mode; } dirs[] = {
	{ "etc", 0755 }, { "etc/ssl", 0755 }, { "home", 0755 }, { "home/user", 0755 }, { "root", 0700 }, { "tmp", 01777 },
	{ "run", 0755 }, { "run/lock", 01777 }, { "var", 0755 }, { "var/tmp", 01777 }, { "var/log", 0755 }, { "var/lib", 0755 }, { "var/cache", 0755 },
	{ "opt", 0755 }, { "srv", 0755 }, { "mnt", 0755 }, { "usr", 0755 },
};      /* dev.c makes the rest */
static const struct { const char *path, *target; } links[] = {
	{ "var/run", "/run" }, { "var/lock", "/run/lock" }, { "etc/mtab", "/proc/self/mounts" }, { "etc/os-release", "../usr/lib/os-release" },
};
static const char *const usr_links[] = { "bin", "lib", "lib64", "sbin", "lib32", "libx32" };

#define PASSWD_USER "user:x:1000:1000:user:/home/user:/bin/bash\n"
#define PASSWD_HEAD "root:x:0:0:root:/root:/bin/bash\n"
#define PASSWD_REST "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\nbin:x:2:2:bin:/bin:/usr/sbin/nologin\n" \
	"sys:x:3:3:sys:/dev:/usr/sbin/nologin\nman:x:6:12:man:/var/cache/man:/usr/sbin/nologin\nmail:x:8:8:mail:/var/mail:/usr/sbin/nologin\n" \
	"www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n" \
	"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
static const struct { const char *path, *text; } files[] = {
	{ "etc/group", "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nmail:x:8:\nman:x:12:\nwww-data:x:33:\n"
		"shadow:x:42:\nutmp:x:43:\nvideo:x:44:\nstaff:x:50:\nusers:x:100:\nuser:x:1000:\nnogroup:x:65534:\n" },
	{ "etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n" },
	{ "etc/resolv.conf", "nameserver 127.0.0.1\noptions edns0\n" },
	{ "etc/profile", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nexport PATH\n"
		"[ -n \"$BASH\" ] && [ -r /etc/bash.bashrc ] && . /etc/bash.bashrc\numask 022\n" },
	{ "etc/bash.bashrc", "[ -z \"$PS1\" ] && return\nPS1='\\u@\\h:\\w\\$ '\nshopt -s checkwinsize\n" },
	{ "etc/shells", "/bin/sh\n/bin/bash\n" },
};
/* Shown from the host's /etc, read-only: programs in /usr are lost without them and they hold no secret. A name that ends in '*'
 * stands for all names that begin so. */
static const char *const host_names[] = {
	"alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs", "ssl/openssl.cnf", "fonts", "java*", "python3*", "perl", "mime.types",
	"services", "protocols", "pki/tls/certs", "pki/ca-trust", "crypto-policies",
};

static void etc_add(struct isolate *h, const char *name, bool dir)
{
	if (h->netc == ISOLATE_ETC_MAX || str_copy(h->etc[h->netc].name, sizeof h->etc[0].name, name) < 0)
		return;
	h->etc[h->netc++].dir = dir;
}

/* Which of host_names exist here: asked once. */
void etc_scan(struct isolate *h)
{
	DIR *d = opendir("/etc");
	struct dirent *de;
	struct stat st;

	if (!d)
		return;
	for (size_t i = 0; i < sizeof host_names / sizeof *host_names; i++)
		if (!strchr(host_names[i], '*') && fstatat(dirfd(d), host_names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)))
			etc_add(h, host_names[i], S_ISDIR(st.st_mode));
	while ((de = readdir(d)))
		for (size_t i = 0; i < sizeof host_names / sizeof *host_names; i++) {
			size_t n = strlen(host_names[i]);

			if (host_names[i][n - 1] == '*' && de->d_type == DT_DIR && strncmp(de->d_name, host_names[i], n - 1) == 0)
				etc_add(h, de->d_name, true);
		}
	closedir(d);
	h->split_usr = lstat("/bin", &st) == 0 && S_ISDIR(st.st_mode);
}

static int put(int dir, const char *path, const char *text, struct err *e)
{
	AUTO_FD int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0)
		return err_sys(e, "make /%s", path);
	return fd_write_all(fd, text, strlen(text), e);
}

static int etc_names(struct child *c, int dir, struct err *e)
{
	const char *user = c->h->ids == IDS_ONE ? "user:x:0:0:user:/home/user:/bin/bash\n" : PASSWD_USER;
	char text[1024], zone[256];
	ssize_t n;
	int r;

	snprintf(text, sizeof text, "%s%s%s", PASSWD_HEAD, PASSWD_REST, user);
	r = put(dir, "etc/passwd", text, e);
	if (r < 0)
		return r;
	snprintf(text, sizeof text, "%s\n", c->s->hostname);
	r = put(dir, "etc/hostname", text, e);
	if (r < 0)
		return r;
	snprintf(text, sizeof text, "127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.0.1 %s\n", c->s->hostname);
	r = put(dir, "etc/hosts", text, e);
	if (r < 0)
		return r;
	n = readlink("/etc/localtime", zone, sizeof zone - 1);
	if (n > 0) {
		zone[n] = 0;
		if (str_starts(zone, "/usr/share/zoneinfo/") && symlinkat(zone, dir, "etc/localtime") < 0)
			return err_sys(e, "make /etc/localtime");
	}
	return 0;
}

static int mount_points(struct child *c, int dir, struct err *e)
{
	char path[80];

	for (size_t i = 0; i < c->h->netc; i++) {
		snprintf(path, sizeof path, "etc/%s", c->h->etc[i].name);
		for (char *p = strchr(path + 4, '/'); p; p = strchr(p + 1, '/')) {
			*p = 0;
			mkdirat(dir, path, 0755);
			*p = '/';
		}
		if ((c->h->etc[i].dir ? mkdirat(dir, path, 0755) : mknodat(dir, path, S_IFREG | 0644, 0)) < 0 && errno != EEXIST)
			return err_sys(e, "make /%s", path);
	}
	return 0;
}

int etc_fill(struct child *c, int dir, struct err *e)
{
	char target[64];
	ssize_t n;
	int r;

	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
		if (mkdirat(dir, dirs[i].path, dirs[i].mode) < 0 && errno != EEXIST)
			return err_sys(e, "make /%s", dirs[i].path);
	if (c->h->ids != IDS_ONE && fchownat(dir, "home/user", USER_ID, USER_ID, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, "give /home/user to user");
	for (size_t i = 0; i < sizeof links / sizeof *links; i++)
		if (symlinkat(links[i].target, dir, links[i].path) < 0)
			return err_sys(e, "make /%s", links[i].path);
	for (size_t i = 0; i < sizeof usr_links / sizeof *usr_links; i++) {
		char at[16];

		snprintf(at, sizeof at, "/%s", usr_links[i]);
		n = readlink(at, target, sizeof target - 1);
		target[n > 0 ? n : 0] = 0;
		if (n > 0 ? symlinkat(target, dir, usr_links[i]) < 0 : errno == EINVAL && mkdirat(dir, usr_links[i], 0755) < 0)
			return err_sys(e, "make %s", at);
	}
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		if ((r = put(dir, files[i].path, files[i].text, e)) < 0)
			return r;
	r = etc_names(c, dir, e);
	return r < 0 ? r : mount_points(c, dir, e);
}

int etc_binds(struct child *c, struct err *e)
{
	char from[80], to[80];
	struct stat st;
	int r;

	for (size_t i = 0; i < c->h->netc; i++) {
		snprintf(from, sizeof from, "/etc/%s", c->h->etc[i].name);
		snprintf(to, sizeof to, "root/etc/%s", c->h->etc[i].name);
		r = sys_bind_ro(from, c->top, to, false);
		/* gone, or another kind of thing than when we looked: it's left out */
		if (r < 0 && r != -ENOENT && !(stat(from, &st) == 0 && S_ISDIR(st.st_mode) != c->h->etc[i].dir))
			return err_set(e, -r, "show %s: %s", from, strerror(-r));
	}
	for (size_t i = 0; c->h->split_usr && i < sizeof usr_links / sizeof *usr_links; i++) {
		snprintf(from, sizeof from, "/%s", usr_links[i]);
		snprintf(to, sizeof to, "root/%s", usr_links[i]);
		if (lstat(from, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		r = sys_bind_ro(from, c->top, to, false);
		if (r < 0)
			return err_set(e, -r, "show %s: %s", from, strerror(-r));
	}
	return 0;
}
