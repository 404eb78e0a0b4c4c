#include "machine/guest_priv.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* What a message may hold: lists are read into these, which are good until the next message. One loop, one message at a time. */
static const char *list_a[GUEST_ARGS + 1], *list_b[GUEST_META + 1];
static uint16_t ports[4096];

#define NAME_MAX_ 256
#define TEXT_MAX 1024
#define PATH_MAX_ (2 * GUEST_PATH)

static void get_entry(struct msg_reader *r, struct guest_entry *n)
{
	n->path = msg_get_str(r, PATH_MAX_);
	n->mode = msg_get_u32(r);
	n->size = msg_get_u64(r);
	n->modified = msg_get_u64(r);
	n->uid = msg_get_u32(r);
	n->gid = msg_get_u32(r);
	n->owner = msg_get_str(r, NAME_MAX_);
	n->group = msg_get_str(r, NAME_MAX_);
	n->target = msg_get_str(r, PATH_MAX_);
	n->nmeta = msg_get_strv(r, list_b, GUEST_META, 8192);
	n->meta = list_b;
}

static void get_prog(struct msg_reader *r, struct guest_msg *m)
{
	m->prog.pid = msg_get_u32(r);
	m->prog.flags = msg_get_u32(r);
	m->prog.cmd = msg_get_str(r, MSG_MAX);
	m->prog.nargs = msg_get_strv(r, list_a, GUEST_ARGS, MSG_MAX);
	m->prog.args = list_a;
	m->prog.cwd = msg_get_str(r, PATH_MAX_);
	m->prog.tag = msg_get_str(r, TEXT_MAX);
}

static void get_ports(struct msg_reader *r, struct guest_msg *m)
{
	uint32_t n = msg_get_u32(r);

	if (n > sizeof ports / sizeof ports[0]) {
		r->bad = true;
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		ports[i] = msg_get_u16(r);
	m->ports = ports;
	m->nports = n;
}

static void get_metrics(struct msg_reader *r, struct guest_msg *m)
{
	m->metrics.cpus = msg_get_u32(r);
	m->metrics.cpu_used = msg_get_u32(r);
	m->metrics.mem_used = msg_get_u64(r);
	m->metrics.mem_total = msg_get_u64(r);
	m->metrics.mem_cache = msg_get_u64(r);
	m->metrics.disk_used = msg_get_u64(r);
	m->metrics.disk_total = msg_get_u64(r);
}

/* What a descriptor must be before anybody reads, writes or hands it on. */
static bool is_file(int fd, mode_t type, int how)
{
	int flags = fcntl(fd, F_GETFL);
	struct stat st;

	return flags >= 0 && !(flags & O_PATH) && ((flags & O_ACCMODE) == how || (flags & O_ACCMODE) == O_RDWR) && fstat(fd, &st) == 0 &&
		(st.st_mode & S_IFMT) == type;
}

static int socket_option(int fd, int option)
{
	int v = -1;
	socklen_t n = sizeof v;

	return getsockopt(fd, SOL_SOCKET, option, &v, &n) < 0 ? -1 : v;
}

/* Whether it's connected isn't asked: the other end may have let go of it already. */
static bool is_tcp(int fd)
{
	int domain = socket_option(fd, SO_DOMAIN);

	return (domain == AF_INET || domain == AF_INET6) && socket_option(fd, SO_TYPE) == SOCK_STREAM && socket_option(fd, SO_ACCEPTCONN) == 0;
}

/* The fields of a G_OK that brings a descriptor. */
static const char *get_opened(struct msg_reader *r, uint16_t request, struct guest_msg *m)
{
	bool good;

	if (request != G_DIAL) {
		get_entry(r, &m->entry);
		m->has_entry = true;
	}
	if (request == G_READ)
		m->kind = msg_get_u8(r);
	if (request == G_READ && m->kind != GUEST_FILE && m->kind != GUEST_PIPE)
		return "opened a file of an unknown kind";
	*m->fd = msg_take_fd(r);
	if (*m->fd < 0)
		return NULL;             /* the reader is bad */
	if (request == G_DIAL)
		good = is_tcp(*m->fd);
	else
		good = is_file(*m->fd, m->kind == GUEST_PIPE ? S_IFIFO : S_IFREG, request == G_READ ? O_RDONLY : O_WRONLY);
	return good ? NULL : "sent a descriptor of another kind than was asked for";
}

/* The fields of a G_OK, by the request it answers. */
static const char *get_ok(struct msg_reader *r, uint16_t request, struct guest_msg *m)
{
	switch (request) {
	case G_HELLO:
		if (msg_get_u32(r) != GUEST_VERSION)
			return "speaks another version of the protocol";
		m->name = msg_get_str(r, 64);
		msg_get_u32(r);
		msg_get_u64(r);
		break;
	case G_START:
		m->prog.pid = msg_get_u32(r);
		if (!m->prog.pid)
			return "started a program without a pid";
		break;
	case G_ATTACH:
		get_prog(r, m);
		break;
	case G_LIST:
	case G_DIR:
		msg_get_u32(r);
		break;
	case G_STAT:
	case G_MKDIR:
	case G_MOVE:
		get_entry(r, &m->entry);
		m->has_entry = true;
		break;
	case G_READ:
	case G_WRITE:
	case G_DIAL:
		return get_opened(r, request, m);
	case G_PORTS:
		get_ports(r, m);
		break;
	case G_METRICS:
		get_metrics(r, m);
		break;
	case G_ENVS:
		m->nstrs = msg_get_strv(r, list_a, GUEST_ARGS, MSG_MAX);
		m->strs = list_a;
		break;
	default:
		break;
	}
	return NULL;
}

static const char *get_event(struct msg_reader *r, struct guest_msg *m)
{
	m->what = GW_EVENT;
	m->kind = msg_get_u8(r);
	if (m->kind < GUEST_CREATE || m->kind > GUEST_CHMOD)
		return "sent a watch event of an unknown kind";
	m->name = msg_get_str(r, PATH_MAX_);
	m->has_entry = msg_get_u8(r) != 0;
	if (m->has_entry)
		get_entry(r, &m->entry);
	return NULL;
}

static const char *get_out(struct msg_reader *r, struct guest_msg *m)
{
	m->what = GW_OUT;
	m->stream = msg_get_u8(r);
	if (m->stream < GUEST_STDOUT || m->stream > GUEST_PTY)
		return "sent output of an unknown kind";
	msg_get_u64(r);
	m->bytes = msg_get_bytes(r, GUEST_CHUNK, &m->len);
	return NULL;
}

/* Which request an event may belong to, and whether it's the last. */
struct rule { uint16_t event, a, b; bool answered, last; };
static const struct rule rules[] = {
	{ G_OUT, G_START, G_ATTACH, true, false },
	{ G_GAP, G_START, G_ATTACH, true, false },
	{ G_EXIT, G_START, G_ATTACH, true, true },
	{ G_PROC, G_LIST, 0, false, false },
	{ G_ENTRY, G_DIR, 0, false, false },
	{ G_EVENT, G_WATCH, 0, true, false },
	{ G_WATCH_END, G_WATCH, 0, true, true },
};

static const struct rule *find_rule(uint16_t event, uint16_t request, bool answered)
{
	for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
		if (rules[i].event == event && (rules[i].a == request || rules[i].b == request) && rules[i].answered == answered)
			return &rules[i];
	return NULL;
}

bool guest_is_stream(uint16_t type)
{
	return type == G_START || type == G_ATTACH || type == G_WATCH;
}

static const char *get_by_type(struct msg_reader *r, struct guest_msg *m)
{
	switch (r->type) {
	case G_OUT:
		return get_out(r, m);
	case G_GAP:
		m->what = GW_GAP;
		m->lost = msg_get_u64(r);
		return NULL;
	case G_EXIT:
		m->what = GW_EXIT;
		m->how = msg_get_u32(r);
		m->code = msg_get_u32(r);
		msg_get_u8(r);
		return m->how <= GUEST_TIMED_OUT && m->code <= 255 ? NULL : "sent an exit that can't be";
	case G_PROC:
		m->what = GW_PROC;
		get_prog(r, m);
		m->prog.ended = msg_get_u8(r) != 0;
		m->how = msg_get_u32(r);
		m->code = msg_get_u32(r);
		return NULL;
	case G_ENTRY:
		m->what = GW_ENTRY;
		get_entry(r, &m->entry);
		m->has_entry = true;
		return NULL;
	case G_EVENT:
		return get_event(r, m);
	default:
		m->what = GW_END;
		m->code = msg_get_u32(r);
		m->name = msg_get_str(r, TEXT_MAX);
		return NULL;
	}
}

const char *guest_decode(struct msg_reader *r, uint16_t request, bool answered, int *fd, struct guest_msg *m)
{
	const struct rule *rule;
	const char *fault;

	memset(m, 0, sizeof *m);
	m->fd = fd;
	if (r->type == G_OK || r->type == G_ERR) {
		if (answered)
			return "answered a request twice";
		m->what = GW_OK;
		m->last = r->type == G_ERR || !guest_is_stream(request);
		if (r->type == G_OK)
			return get_ok(r, request, m);
		m->what = GW_END;
		m->code = msg_get_u32(r);
		m->name = msg_get_str(r, TEXT_MAX);
		return NULL;
	}
	rule = find_rule(r->type, request, answered);
	if (!rule)
		return "sent a message that nobody asked for";
	m->last = rule->last;
	fault = get_by_type(r, m);
	return fault;
}
