/* place -- where a server lives: its state folder, who owns what in it, its sockets.
 *
 *   DIR                root's (or yours); searchable, so that bureaud reaches what is its own
 *   DIR/lock           held by the supervisor: one server a folder
 *   DIR/server.json    where the server is, for clients; there while it runs
 *   DIR/api-key        bureaud's, 0600
 *   DIR/audit/         bureaud's, 0700
 *   DIR/store/         bureaud's, 0700
 *   DIR/run/           the keeper's: sockets of guests, and the keeper's own
 *   DIR/keeper/ DIR/templates/    the keeper's; see wire/keeper_proto.h
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/fd.h"
#include "core/log.h"
#include "core/str.h"
#include "daemon/serve.h"
#include "http/url.h"
#include "ops/setup.h"
#include "wire/sock.h"

#define OWN_UID 61990                /* when there is no user 'bureau'; the door's is the next */

static int default_state(struct serve *s, struct err *e)
{
	const char *env = getenv("BUREAU_STATE"), *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	int n;

	if (env && env[0])
		n = snprintf(s->state_buf, sizeof s->state_buf, "%s", env);
	else if (s->root)
		n = snprintf(s->state_buf, sizeof s->state_buf, "/var/lib/bureau");
	else if (xdg && xdg[0] == '/')
		n = snprintf(s->state_buf, sizeof s->state_buf, "%s/bureau", xdg);
	else if (home && home[0] == '/')
		n = snprintf(s->state_buf, sizeof s->state_buf, "%s/.local/state/bureau", home);
	else
		return err_set(e, ENOENT, "there is no HOME to keep state in; say where with --state DIR");
	return n >= (int)sizeof s->state_buf ? err_set(e, ENAMETOOLONG, "the state folder's name is too long") : 0;
}

/* An absolute name, whatever was given: the daemons don't share our working folder for ever. */
static int resolve_state(struct serve *s, struct err *e)
{
	char given[4096], *real;

	if (s->state)
		str_copy(given, sizeof given, s->state);
	else if (default_state(s, e) < 0)
		return -e->code;
	else
		str_copy(given, sizeof given, s->state_buf);
	if (fd_mkdirs(given, 0755, e) < 0)
		return -e->code;
	real = realpath(given, NULL);
	if (!real)
		return err_sys(e, "find the state folder '%s'", given);
	if (str_copy(s->state_buf, sizeof s->state_buf, real) < 0) {
		free(real);
		return err_set(e, ENAMETOOLONG, "the state folder's name is too long");
	}
	free(real);
	s->state = s->state_buf;
	s->state_fd = open(s->state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return s->state_fd < 0 ? err_sys(e, "open the state folder '%s'", s->state) : 0;
}

static void choose_user(struct serve *s)
{
	const struct passwd *pw;

	s->root = geteuid() == 0;
	s->uid = geteuid();
	s->gid = getegid();
	if (!s->root)
		return;
	pw = getpwnam("bureau");
	s->uid = pw && pw->pw_uid ? pw->pw_uid : OWN_UID;
	s->gid = pw && pw->pw_uid ? pw->pw_gid : OWN_UID;
}

static int lock(struct serve *s, struct err *e)
{
	s->lock_fd = openat(s->state_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock_fd < 0)
		return err_sys(e, "open '%s/lock'", s->state);
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return err_sys(e, "lock '%s'", s->state);
		err_set(e, EBUSY, "a server runs on '%s' already", s->state);
		return err_hint(e, "'bureau stop' stops it; --state DIR names another folder");
	}
	return 0;
}

/* bureaud has a user of its own: every folder above must let it pass. */
static int check_reach(const struct serve *s, struct err *e)
{
	char path[4096];
	struct stat st;

	str_copy(path, sizeof path, s->state);
	for (char *slash; (slash = strrchr(path, '/')) && slash != path;) {
		*slash = '\0';
		if (stat(path, &st) < 0)
			return err_sys(e, "look at '%s'", path);
		if (st.st_mode & S_IXOTH)
			continue;
		err_set(e, EACCES, "the server's user (uid %d) can't reach '%s': folder '%s' is closed to it", (int)s->uid, s->state, path);
		return err_hint(e, "chmod o+x '%s', or choose another --state", path);
	}
	return 0;
}

/* A folder of bureaud's own. */
static int own_folder(struct serve *s, const char *name, mode_t mode, struct err *e)
{
	AUTO_FD int fd = -1;

	if (mkdirat(s->state_fd, name, mode) < 0 && errno != EEXIST)
		return err_sys(e, "make '%s/%s'", s->state, name);
	fd = openat(s->state_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, "open '%s/%s'", s->state, name);
	if (fchmod(fd, mode) < 0 || (s->root && fchown(fd, s->uid, s->gid) < 0))
		return err_sys(e, "give '%s/%s' to user %d", s->state, name, (int)s->uid);
	return 0;
}

static int own_file(struct serve *s, const char *name, struct err *e)
{
	AUTO_FD int fd = openat(s->state_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
	struct stat st;

	if (fd < 0)
		return err_sys(e, "open '%s/%s'", s->state, name);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, EPERM, "'%s/%s' isn't a regular file", s->state, name);
	if (fchmod(fd, 0600) < 0 || (s->root && fchown(fd, s->uid, s->gid) < 0))
		return err_sys(e, "give '%s/%s' to user %d", s->state, name, (int)s->uid);
	return 0;
}

static int folders(struct serve *s, struct err *e)
{
	static const struct { const char *name; mode_t mode; } keepers[] = { { "run", 0711 }, { "templates", 0755 }, { "keeper", 0700 } };
	struct stat st;

	if (fstat(s->state_fd, &st) < 0)
		return err_sys(e, "stat '%s'", s->state);
	if (st.st_uid != geteuid())
		return err_set(e, EPERM, "the state folder '%s' belongs to user %d, not to you", s->state, (int)st.st_uid);
	/* the key and server.json are trusted by name, and a name in here would be anybody's */
	if (st.st_mode & S_IWOTH) {
		err_set(e, EPERM, "anybody may write to the state folder '%s'", s->state);
		return err_hint(e, "chmod o-w '%s', or choose another --state", s->state);
	}
	/* bureaud must be able to pass through; what is inside has modes of its own */
	if (s->root && (st.st_mode & 0011) != 0011 && fchmod(s->state_fd, (st.st_mode & 07777) | 0011) < 0)
		return err_sys(e, "let user %d into '%s'", (int)s->uid, s->state);
	for (size_t i = 0; i < sizeof keepers / sizeof keepers[0]; i++)
		if (mkdirat(s->state_fd, keepers[i].name, keepers[i].mode) < 0 && errno != EEXIST)
			return err_sys(e, "make '%s/%s'", s->state, keepers[i].name);
	if (s->root && check_reach(s, e) < 0)
		return -e->code;
	if (own_folder(s, "store", 0700, e) < 0 || own_folder(s, "audit", 0700, e) < 0 || ops_key_make(s->state, e) < 0)
		return -e->code;
	/* where it was before it had a folder */
	renameat2(s->state_fd, "audit.log", s->state_fd, "audit/audit.log", RENAME_NOREPLACE);
	return own_file(s, "api-key", e) < 0 ? -e->code : 0;
}

/* ---- sockets ---- */

static bool loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return (ntohl(((const struct sockaddr_in *)(const void *)sa)->sin_addr.s_addr) >> 24) == 127;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
}

static int find_address(struct serve *s, struct sockaddr_storage *sa, socklen_t *len, struct err *e)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV }, *ai;
	char host[256], port_text[8], *p;
	uint16_t port = 0;
	int r;

	if (http_split_host(s->listen, strlen(s->listen), host, sizeof host, &port) < 0 || !strrchr(s->listen, ':'))
		return err_set(e, EINVAL, "--listen wants ADDRESS:PORT, such as 127.0.0.1:7070, not '%s'", s->listen);
	p = host[0] == '[' ? host + 1 : host;
	p[strcspn(p, "]")] = '\0';
	snprintf(port_text, sizeof port_text, "%u", port);
	r = getaddrinfo(str_eq(p, "localhost") ? "127.0.0.1" : p, port_text, &hints, &ai);
	if (r != 0)
		return err_set(e, EINVAL, "--listen: '%s' isn't a numeric address: %s", p, gai_strerror(r));
	memcpy(sa, ai->ai_addr, ai->ai_addrlen);
	*len = ai->ai_addrlen;
	freeaddrinfo(ai);
	if (!loopback((struct sockaddr *)sa) && s->no_key) {
		err_set(e, EPERM, "without a key this server listens on loopback only");
		return err_hint(e, "leave --no-key out, or listen on 127.0.0.1");
	}
	if (!loopback((struct sockaddr *)sa) && !s->cert)
		log_warn("listening on %s without TLS: the API key crosses the network in clear; put a TLS proxy in front, or use --tls-cert and --tls-key", s->listen);
	return 0;
}

static int listen_http(struct serve *s, struct err *e)
{
	struct sockaddr_storage sa;
	socklen_t len;
	char text[INET6_ADDRSTRLEN] = "";
	int one = 1;

	if (find_address(s, &sa, &len, e) < 0)
		return -e->code;
	s->http_fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->http_fd < 0)
		return err_sys(e, "make a socket");
	setsockopt(s->http_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(s->http_fd, (struct sockaddr *)&sa, len) < 0 || listen(s->http_fd, 4096) < 0) {
		err_sys(e, "listen on %s", s->listen);
		return e->code == EADDRINUSE ? err_hint(e, "something listens there already; --listen names another address or port (:0 = any)") : -e->code;
	}
	len = sizeof sa;
	getsockname(s->http_fd, (struct sockaddr *)&sa, &len);
	if (sa.ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)&sa;
		bool everywhere = in->sin_addr.s_addr == htonl(INADDR_ANY);

		inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
		snprintf(s->url, sizeof s->url, "%s://%s:%u", s->cert ? "https" : "http", everywhere ? "127.0.0.1" : text, ntohs(in->sin_port));
	} else {
		const struct sockaddr_in6 *in = (const void *)&sa;
		bool everywhere = IN6_IS_ADDR_UNSPECIFIED(&in->sin6_addr);

		inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
		snprintf(s->url, sizeof s->url, "%s://[%s]:%u", s->cert ? "https" : "http", everywhere ? "::1" : text, ntohs(in->sin6_port));
	}
	return 0;
}

/* The socket stays ours, so that bureaud can ask while the keeper is being started again. */
static int listen_keeper(struct serve *s, struct err *e)
{
	AUTO_FD int run = openat(s->state_fd, "run", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (run < 0)
		return err_sys(e, "open '%s/run'", s->state);
	if (sock_listen_at(run, "keeper.sock", 0600, 64, &s->keeper_fd, e) < 0)
		return -e->code;
	if (s->root && fchownat(run, "keeper.sock", s->uid, s->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, "give the keeper's socket to user %d", (int)s->uid);
	return 0;
}

int place_prepare(struct serve *s, struct err *e)
{
	choose_user(s);
	if (resolve_state(s, e) < 0 || lock(s, e) < 0 || folders(s, e) < 0 || listen_http(s, e) < 0)
		return -e->code;
	return listen_keeper(s, e);
}

int place_announce(const struct serve *s, struct err *e)
{
	AUTO_BUF struct buf b = BUF_INIT(2048);

	buf_adds(&b, "{\"url\":");
	str_json(&b, s->url, strlen(s->url));
	buf_printf(&b, ",\"pid\":%d,\"version\":\"%s\",\"key\":%s", (int)getpid(), BUREAU_VERSION, s->no_key ? "false" : "true");
	if (s->domain) {
		buf_adds(&b, ",\"domain\":");
		str_json(&b, s->domain, strlen(s->domain));
	}
	buf_adds(&b, "}\n");
	return fd_write_file(s->state_fd, "server.json", 0600, buf_at(&b), b.len, e);
}

void place_retract(const struct serve *s)
{
	unlinkat(s->state_fd, "server.json", 0);
}
