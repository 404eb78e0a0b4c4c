/* root -- the child's half of a root file system. Runs in the computer's own namespaces, before anything of the computer does.
 *
 * Theory of operation. One tmpfs ("top", sized by the disk limit) holds everything the computer will write:
 *
 *      top/lower   the template's root, detached tree from outside, read-only     top/lusr   (host) the host's /usr, the same
 *      top/layer   what is written to /                                           top/ulayer what is written to /usr
 *      top/work    overlay's own                                                  top/uwork
 *      top/root    overlay of layer over lower; for `host` simply layer itself: nothing of the host's / is below it
 *
 * Files of ours are put into the layer before the overlay is mounted: that is plain tmpfs, and twice as quick. At the end
 * top/root becomes / and the old tree, top included, is let go: nothing inside leads to layer, work or lower by name. */
#include "isolate/ns_priv.h"
#include "core/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Any folder will do: it's covered in this mount namespace only, and for a moment. */
static const char *const places[] = { "/tmp", "/run", "/mnt", "/var", "/usr" };

static int top_mount(struct child *c, struct err *e)
{
	const struct box_limits *l = &c->s->limits;
	char options[128];
	size_t n = (size_t)snprintf(options, sizeof options, "mode=0755");

	if (l->disk)
		n += (size_t)snprintf(options + n, sizeof options - n, ",size=%llu", (unsigned long long)l->disk);
	if (l->inodes)
		snprintf(options + n, sizeof options - n, ",nr_inodes=%llu", (unsigned long long)l->inodes);
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		if (mount("tmpfs", places[i], "tmpfs", MS_NOSUID | MS_NODEV, options) < 0) {
			if (errno == ENOENT || errno == ENOTDIR)
				continue;
			return err_sys(e, "mount the computer's own file system");
		}
		c->top = open(places[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (c->top < 0 || fchdir(c->top) < 0)
			return err_sys(e, "enter the computer's own file system");
		return 0;
	}
	return err_set(e, ENOENT, "no folder to mount on: none of /tmp, /run, /mnt, /var is there");
}

static int folders(const char *const *names, struct err *e)
{
	for (; *names; names++)
		if (mkdir(*names, 0755) < 0 && errno != EEXIST)
			return err_sys(e, "make folder '%s'", *names);
	return 0;
}

/* A place for `sudo`, which is the guest's program under another name. */
static int sudo_place(const char *layer, struct err *e)
{
	AUTO_FD int dir = open(layer, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (dir < 0 || (mknodat(dir, "sudo", S_IFREG | 0755, 0) < 0 && errno != EEXIST))
		return err_sys(e, "make sudo in %s", layer);
	return 0;
}

/* Without idmapped mounts the host's /usr belongs to nobody inside, and root inside may not write to its folders. A folder that
 * exists in the layer too has the layer's owner: these few make local installs work. */
static int usr_own_folders(struct child *c, struct err *e)
{
	static const char *const names[] = {
		"ulayer/lib", "ulayer/share", "ulayer/sbin", "ulayer/local", "ulayer/local/bin", "ulayer/local/etc", "ulayer/local/include",
		"ulayer/local/lib", "ulayer/local/sbin", "ulayer/local/share", "ulayer/local/src", NULL,
	};
	char path[128];
	int r = folders(names, e);

	for (size_t i = 0; r == 0 && i < c->h->netc; i++) {
		if (!str_starts(c->h->etc[i].name, "python3."))
			continue;
		snprintf(path, sizeof path, "ulayer/local/lib/%s", c->h->etc[i].name);
		mkdir(path, 0755);
		snprintf(path, sizeof path, "ulayer/local/lib/%s/dist-packages", c->h->etc[i].name);
		mkdir(path, 0755);
	}
	return r;
}

/* One folder of /usr: an overlay where that is possible, else as it is, read-only. */
static int usr_folder(const char *name, struct err *e)
{
	char lower[300], layer[300], work[300], dest[300], options[1024];

	snprintf(lower, sizeof lower, "lusr/%s", name);
	snprintf(layer, sizeof layer, "ulayer/%s", name);
	snprintf(work, sizeof work, "uwork/%s", name);
	snprintf(dest, sizeof dest, "root/usr/%s", name);
	snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s,userxattr", lower, layer, work);
	if (mkdir(dest, 0755) < 0 || (mkdir(layer, 0755) < 0 && errno != EEXIST) || (mkdir(work, 0755) < 0 && errno != EEXIST))
		return err_sys(e, "make /usr/%s", name);
	if (!strpbrk(name, ",:\\") && mount("overlay", dest, "overlay", MS_NOSUID | MS_NODEV, options) == 0)
		return 0;
	return mount(lower, dest, NULL, MS_BIND | MS_REC, NULL) < 0 ? err_sys(e, "show the host's /usr/%s", name) : 0;
}

static void dir_drop(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int usr_by_folders(struct err *e)
{
	AUTO(dir_drop) DIR *d = opendir("lusr");
	char target[PATH_MAX], dest[300];
	struct dirent *de;

	if (!d)
		return err_sys(e, "read the host's /usr");
	while ((de = readdir(d))) {
		struct stat st;
		ssize_t n;

		if (str_eq(de->d_name, ".") || str_eq(de->d_name, "..") || fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (S_ISDIR(st.st_mode) && usr_folder(de->d_name, e) < 0)
			return -e->code;
		n = S_ISLNK(st.st_mode) ? readlinkat(dirfd(d), de->d_name, target, sizeof target - 1) : -1;
		if (n < 0)
			continue;
		target[n] = 0;
		snprintf(dest, sizeof dest, "root/usr/%s", de->d_name);
		if (symlink(target, dest) < 0)
			return err_sys(e, "make /usr/%s", de->d_name);
	}
	return 0;
}

static int usr_mount(struct child *c, struct err *e)
{
	static const char *const names[] = { "lusr", "ulayer", "uwork", "ulayer/bin", NULL };
	int r = folders(names, e);

	if (r < 0 || (r = sudo_place("ulayer/bin", e)) < 0)
		return r;
	if (!c->base_mapped && (r = usr_own_folders(c, e)) < 0)
		return r;
	r = sys_attach(c->base, c->top, "lusr");
	if (r < 0)
		return err_set(e, -r, "attach the host's /usr: %s", strerror(-r));
	if (mount("overlay", "root/usr", "overlay", MS_NOSUID | MS_NODEV, "lowerdir=lusr,upperdir=ulayer,workdir=uwork,userxattr") == 0)
		return 0;
	/* (a plain user's) something is mounted below /usr, and an overlay would uncover what that covers */
	if (errno == EINVAL)
		return usr_by_folders(e);
	/* no overlay here: /usr can be read but not written */
	return mount("lusr", "root/usr", NULL, MS_BIND | MS_REC, NULL) < 0 ? err_sys(e, "show the host's /usr") : 0;
}

static int host_root(struct child *c, struct err *e)
{
	static const char *const names[] = { "root", NULL };
	AUTO_FD int dir = -1;
	int r = folders(names, e);

	dir = r < 0 ? r : open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return r < 0 ? r : err_sys(e, "open the new root");
	if ((r = etc_fill(c, dir, e)) < 0 || (r = dev_fill(c, dir, e)) < 0)
		return r;
	if (mount("root", "root", NULL, MS_BIND, NULL) < 0)
		return err_sys(e, "bind the new root");
	if ((r = usr_mount(c, e)) < 0)
		return r;
	return etc_binds(c, e);
}

static int template_root(struct child *c, struct err *e)
{
	static const char *const names[] = { "root", "lower", "work", "layer", "layer/usr", "layer/usr/bin", "shm", NULL };
	AUTO_FD int dir = -1;
	int r = folders(names, e);

	if (r < 0 || (r = sudo_place("layer/usr/bin", e)) < 0)
		return r;
	dir = open("layer", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return err_sys(e, "open the new layer");
	if ((r = dev_fill(c, dir, e)) < 0)
		return r;
	r = sys_attach(c->base, c->top, "lower");
	if (r < 0)
		return err_set(e, -r, "attach the template: %s", strerror(-r));
	if (mount("overlay", "root", "overlay", MS_NOSUID | MS_NODEV, "lowerdir=lower,upperdir=layer,workdir=work,userxattr") < 0)
		return err_sys(e, "mount the template");
	/* straight to the tmpfs: programs map it, and inside_resize() finds it there */
	if (chmod("shm", 01777) < 0 || mount("shm", "root/dev/shm", NULL, MS_BIND, NULL) < 0)
		return err_sys(e, "make /dev/shm");
	return 0;
}

static int open_inside(int root, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };

	return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

/* The mount point inside, made when missing. Links of the template lead nowhere but inside. */
static int make_dest(int root, const char *dest, bool folder, struct err *e)
{
	char path[PATH_MAX];
	AUTO_FD int at = open_inside(root, ".");

	if (at < 0 || str_copy(path, sizeof path, dest) < 0)
		return err_set(e, EINVAL, "mount at '%s': too long", dest);
	for (char *p = path; at >= 0 && *p;) {
		char *end = p + 1 + strcspn(p + 1, "/"), keep = *end;
		int next;

		*end = 0;
		next = open_inside(root, path);
		if (next < 0 && errno == ENOENT) {
			bool last = !keep && !folder;

			if ((last ? mknodat(at, p + 1, S_IFREG | 0644, 0) : mkdirat(at, p + 1, 0755)) < 0)
				return err_sys(e, "make '%s' to mount on", path);
			next = open_inside(root, path);
		}
		if (next < 0)
			return err_sys(e, "mount at '%s'", dest);
		close(at);
		at = next;
		*end = keep;
		p = end;
	}
	return fd_take(&at);
}

static int mounts_attach(struct child *c, struct err *e)
{
	AUTO_FD int root = open("root", O_PATH | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 0; i < c->s->nmounts; i++) {
		AUTO_FD int dest = -1;
		struct stat st;
		int r;

		if (fstat(c->mounts[i], &st) < 0)
			return err_sys(e, "look at '%s'", c->s->mounts[i].source);
		dest = make_dest(root, c->s->mounts[i].dest, S_ISDIR(st.st_mode), e);
		if (dest < 0)
			return dest;
		r = sys_attach(c->mounts[i], dest, "");
		if (r < 0)
			return err_set(e, -r, "mount '%s' at '%s': %s", c->s->mounts[i].source, c->s->mounts[i].dest, strerror(-r));
	}
	return 0;
}

int root_build(struct child *c, struct err *e)
{
	int r = top_mount(c, e);

	if (r < 0)
		return r;
	if (!c->s->listens && (r = listen_hidden(c, e)) < 0)
		return r;
	r = c->s->rootfs_fd < 0 ? host_root(c, e) : template_root(c, e);
	if (r < 0 || (r = dev_mount(c, e)) < 0)
		return r;
	sys_attach(c->guest, c->top, "root/usr/bin/sudo");   /* without it there is no sudo; nothing else is lost */
	if ((r = mounts_attach(c, e)) < 0)
		return r;
	if (chdir("root") < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return err_sys(e, "enter the new root");
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_sys(e, "leave the old root");
	return 0;
}
