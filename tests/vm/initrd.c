/* initrd -- the first program of a test machine: loads the modules that the disk needs (NN.ko, in order), mounts the root disk
 * and goes on with /bureau/init there. It replaces an initrd of a hundred times its size, which software emulation would
 * unpack for seconds. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MODULES 32
#define DISK_TRIES 500   /* of 10 ms */

static void load_modules(void)
{
	char name[16];

	for (int i = 0; i < MODULES; i++) {
		snprintf(name, sizeof name, "/%02d.ko", i);
		int fd = open(name, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return;
		if (syscall(SYS_finit_module, fd, "", 0) < 0)
			printf("initrd: load %s: %s\n", name, strerror(errno));
		close(fd);
	}
}

static int mount_wait(const char *dev, const char *where, unsigned long flags)
{
	const struct timespec pause = { 0, 10 * 1000 * 1000 };

	for (int i = 0; i < DISK_TRIES; i++) {
		if (mount(dev, where, "ext4", flags, NULL) == 0)
			return 0;
		nanosleep(&pause, NULL);
	}
	printf("initrd: mount %s: %s\n", dev, strerror(errno));
	return -1;
}

int main(void)
{
	static char *const argv[] = { (char *)"/bureau/init", NULL };
	static char *const envp[] = { (char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", (char *)"HOME=/root", NULL };

	setvbuf(stdout, NULL, _IONBF, 0);
	mkdir("/dev", 0755);
	if (mount("dev", "/dev", "devtmpfs", 0, NULL) < 0)
		printf("initrd: mount /dev: %s\n", strerror(errno));
	load_modules();
	if (mount_wait("/dev/vda", "/root", 0) < 0 || mount_wait("/dev/vdb", "/root/modules", MS_RDONLY) < 0 ||
	    mount_wait("/dev/vdc", "/root/bureau", MS_RDONLY) < 0)
		return 1;
	if (mount("/dev", "/root/dev", NULL, MS_MOVE, NULL) < 0 || chdir("/root") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
	    chdir("/") < 0) {
		printf("initrd: change the root: %s\n", strerror(errno));
		return 1;
	}
	execve(argv[0], argv, envp);
	printf("initrd: start %s: %s\n", argv[0], strerror(errno));
	return 1;
}
