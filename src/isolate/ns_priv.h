#ifndef ISOLATE_NS_PRIV_H
#define ISOLATE_NS_PRIV_H
#include <limits.h>
#include "core/fd.h"
#include "isolate/backend.h"
/* ns_priv -- what the parts of the ns backend share. The parent's half is ns.c and idmap.c; the child's is ns_child.c,
 * root.c, etc.c, dev.c and net.c. */

/* How ids inside become ids outside. */
enum id_mode {
	IDS_RANGE,      /* root: 65,536 ids of the computer's own; layers are idmapped to them */
	IDS_NESTED,     /* in a user namespace that has 65,536 ids (ours, by newuidmap, or a container's): the same ids */
	IDS_ONE,        /* one id: root and user inside are both us */
};
#define ISOLATE_ETC_MAX 32

#define STOCK_NETS 4
struct stock_net { int ns, doors[BOX_DOORS]; };
struct stock_kind { struct stock_net nets[STOCK_NETS]; size_t n; bool wanted; };

enum { SHARE_INSTANCES, SHARE_WATCHES, SHARES };
struct isolate {
	enum id_mode ids;
	char map[2][512];        /* IDS_NESTED: uid and gid maps of a computer, written as ours are cut */
	char share[SHARES][24];  /* a plain user: what its computers may have of share_files; "" = no limit of ours */
	uid_t uid;               /* ours */
	gid_t gid;
	bool once;
	bool ipv6;
	uint32_t features;
	struct cgroup_host groups;
	char guest[PATH_MAX];
	struct { char name[63]; bool dir; } etc[ISOLATE_ETC_MAX];   /* in the host's /etc, what template `host` shows, read-only */
	size_t netc;
	bool own_session;        /* we lead a session without a terminal: its computers need none of their own */
	bool split_usr;          /* /bin, /lib… are folders of their own */
	int kit_net;             /* kit.c: the network namespace that the shared /sys shows; -1 = every computer mounts its own */
	int own_net;             /* ours */
	struct stock_kind stock[2];      /* stock.c: without and with a network */
};

#define USER_ID 1000u
#define FDS_MAX (BOX_MOUNTS + 3)

/* The child's view. Lives on the child's copy of the parent's stack. */
struct child {
	const struct isolate *h;
	const struct box_spec *s;
	int sync;                        /* our end */
	int base, mounts[BOX_MOUNTS];    /* detached trees: /usr or the template's root; the mounts asked for. -1 = none */
	bool base_mapped;                /* base shows ids of the computer's own */
	int sys;                         /* detached sysfs; -1 = mount one */
	bool has_net;                    /* cloned into a namespace of the stock */
	int guest;                       /* detached read-only mount of the guest's program */
	int listen_fd, conn_fd;
	int report_fd;                   /* core/sanitize.h; -1 = none */
	int top;                         /* the tmpfs that holds everything */
	int doors[BOX_DOORS];
	uint32_t unenforced;
};
/* The parent's words, in this order: ids are mapped (with the detached trees that only it may make), then the v1 groups are
 * there to enter, limits and all (with the listening socket first, when `listens`). */
enum go_kind { GO_IDS, GO_GROUPS };
struct go { uint8_t kind; bool mapped, listens; uint32_t unenforced; };
struct report { int code; uint32_t unenforced; uint8_t door[BOX_DOORS]; char msg[320], hint[160]; };

_Noreturn void child_run(struct child *c);
int ns_guest_tree(const struct isolate *h, struct err *e);  /* a detached mount of the guest's program, read-only */
int child_report(struct child *c, const struct err *e);
int isolate_probe(struct isolate *h, uint32_t *ret_features, char *missing, size_t size);   /* probe.c */
/* inside.c */
int inside_doors(const struct isolate *h, struct box *b, struct err *e);
int inside_resize(const struct isolate *h, struct box *b, const struct box_limits *l, struct err *e);
int listen_hidden(struct child *c, struct err *e);          /* ns_child.c: in the top file system, the working folder */
int root_build(struct child *c, struct err *e);            /* root.c: assembles, and makes it / */
int etc_fill(struct child *c, int dir, struct err *e);     /* etc.c: the files of template `host` below dir */
int etc_binds(struct child *c, struct err *e);             /* the host's own files, on ./root/etc */
void share_inside(const struct isolate *h);                /* host.c: in the computer's user namespace, where it has one id */
void etc_scan(struct isolate *h);
int kit_make(struct isolate *h, struct err *e);            /* kit.c: at a serving keeper's start, as root */
int kit_sys(const struct isolate *h);                      /* a detached tree for one computer, or -errno */
int stock_add(struct isolate *h, struct err *e);           /* stock.c: 1 made, 0 there are enough */
bool stock_take(struct isolate *h, bool redirect, struct stock_net *ret);   /* true: we are in it; its descriptors are the caller's */
int stock_leave(const struct isolate *h, struct err *e);
void stock_free(struct isolate *h);
int dev_fill(struct child *c, int dir, struct err *e);     /* dev.c: mount points and links, before the root is mounted */
int dev_mount(struct child *c, struct err *e);             /* on ./root/dev, ./root/proc, ./root/sys */
int net_up(struct err *e);                                 /* net.c: loopback */
int net_redirect(bool *ret_ipv6, struct err *e);           /* routes and rules of KEEPER_NET_ALL */
int net_doors(bool ipv6, int doors[BOX_DOORS], struct err *e);
int caps_drop(struct err *e);                              /* caps.c */
bool caps_full(void);                                      /* are we root with what root needs, or only in name (a container) */
int caps_keep_for_keeper(struct err *e);

/* idmap.c: a detached copy of the caller's folder, whose owner shows as `user` inside. Range mode only. */
int idmap_tree(const struct box_spec *s, const struct box_mount *m, struct err *e);
pid_t idmap_holder(void);
bool subid_enter(const pid_t *living, size_t n_living, int given);     /* subid.c: we are in a user namespace with 65,536 ids now */
/* A user namespace with these maps: descriptor. */
int idmap_userns(const char *uids, const char *gids, struct err *e);

/* sys.c: thin wrappers where one call takes three */
int sys_clone_tree(int dirfd, const char *path, bool recursive);      /* a detached copy: descriptor or -errno */
int sys_set_tree(int fd, bool recursive, bool read_only, int userns); /* nosuid, nodev, read-only, idmap (userns < 0: none) */
int sys_attach(int fd, int dirfd, const char *path);                  /* mounts the detached tree there */
int sys_bind_ro(const char *from, int dirfd, const char *to, bool recursive);
int sys_write(int dirfd, const char *path, const char *text);
#endif
