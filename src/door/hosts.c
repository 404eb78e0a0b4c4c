#include "door/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/fd.h"
#include "core/str.h"

#define FILE_MAX (1 << 20)
#define LOOK_MS 1000

struct watched { const char *path; char *text; struct timespec mtime; ino_t ino; off_t size; };

struct hosts {
	struct watched resolv, hosts;
	struct server servers[HOSTS_SERVERS];
	size_t nservers;
	bool fixed;             /* given by the caller: no file is read */
	int64_t looked_at;
};

int hosts_parse_server(const char *s, struct server *ret)
{
	struct server v = { .port = 53 };
	char text[ADDR_TEXT + 20];
	const char *port = NULL;
	uint64_t n;

	if (*s == '[') {
		size_t len = strcspn(++s, "]");

		if (s[len] != ']' || (s[len + 1] != '\0' && s[len + 1] != ':') || len >= sizeof text)
			return -EINVAL;
		memcpy(text, s, len);
		text[len] = '\0';
		port = s[len + 1] ? s + len + 2 : NULL;
	} else {
		if (str_copy(text, sizeof text, s) < 0)
			return -EINVAL;
		char *colon = strchr(text, ':');

		if (colon && !strchr(colon + 1, ':')) {
			*colon = '\0';
			port = s + (colon - text) + 1;
		}
	}
	char *zone = strchr(text, '%');

	if (zone) {
		*zone = '\0';
		v.scope = if_nametoindex(zone + 1);
	}
	if (addr_parse(text, &v.addr) < 0)
		return -EINVAL;
	if (port && (str_u64(port, 65535, &n) < 0 || n == 0))
		return -EINVAL;
	if (port)
		v.port = (uint16_t)n;
	*ret = v;
	return 0;
}

/* The next word of a line; NULL at its end or where a comment starts. *at moves on; the word is copied, cut words are skipped. */
static const char *next_word(const char **at, char *out, size_t size)
{
	for (;;) {
		const char *s = *at + strspn(*at, " \t\r");
		size_t n = strcspn(s, " \t\r\n#;");

		*at = s + n;
		if (!n)
			return NULL;
		if (n >= size)
			continue;
		memcpy(out, s, n);
		out[n] = '\0';
		return out;
	}
}

static const char *next_line(const char *s)
{
	s += strcspn(s, "\n");
	return *s ? s + 1 : s;
}

size_t hosts_parse_resolv(const char *text, struct server ret[HOSTS_SERVERS])
{
	char word[256];
	size_t n = 0;

	for (const char *line = text; *line && n < HOSTS_SERVERS; line = next_line(line)) {
		const char *at = line;

		if (!next_word(&at, word, sizeof word) || !str_eq(word, "nameserver"))
			continue;
		if (!next_word(&at, word, sizeof word))
			continue;
		if (strchr(word, ':') && !strchr(strchr(word, ':') + 1, ':'))
			continue;       /* resolv.conf knows no ports */
		n += hosts_parse_server(word, &ret[n]) == 0;
	}
	return n;
}

size_t hosts_parse_lookup(const char *text, const char *name, struct addr *ret, size_t max)
{
	char word[256];
	size_t n = 0;

	for (const char *line = text; *line && n < max; line = next_line(line)) {
		const char *at = line;
		struct addr a;

		if (!next_word(&at, word, sizeof word) || addr_parse(word, &a) < 0)
			continue;
		while (next_word(&at, word, sizeof word))
			if (strcasecmp(word, name) == 0) {
				ret[n++] = a;
				break;
			}
	}
	return n;
}

/* Small local files, read at most once after each change. */
static bool reread(struct watched *w)
{
	struct stat st;
	char *text;
	size_t n;
	struct err e;

	if (stat(w->path, &st) < 0) {
		if (!w->text)
			return false;
		free(w->text);
		w->text = NULL;
		return true;
	}
	if (w->text && st.st_ino == w->ino && st.st_size == w->size && st.st_mtim.tv_sec == w->mtime.tv_sec &&
	    st.st_mtim.tv_nsec == w->mtime.tv_nsec)
		return false;
	if (!S_ISREG(st.st_mode) || fd_read_file(AT_FDCWD, w->path, FILE_MAX, &text, &n, &e) < 0)
		return false;
	free(w->text);
	w->text = text;
	w->ino = st.st_ino;
	w->size = st.st_size;
	w->mtime = st.st_mtim;
	return true;
}

static void look(struct hosts *h)
{
	int64_t now = clock_mono_ms();

	if (h->fixed || (h->looked_at && now - h->looked_at < LOOK_MS))
		return;
	h->looked_at = now;
	reread(&h->hosts);
	if (!reread(&h->resolv) && h->nservers)
		return;
	h->nservers = h->resolv.text ? hosts_parse_resolv(h->resolv.text, h->servers) : 0;
	if (!h->nservers) {     /* as libc does */
		h->servers[0] = (struct server){ .addr = { .family = 4, .b = { 127, 0, 0, 1 } }, .port = 53 };
		h->nservers = 1;
	}
}

int hosts_create(const char *servers, struct hosts **ret, struct err *e)
{
	struct hosts *h = calloc(1, sizeof *h);
	char one[ADDR_TEXT + 16];

	if (!h)
		return err_set(e, ENOMEM, "read the resolver's settings: no memory");
	h->resolv.path = "/etc/resolv.conf";
	h->hosts.path = "/etc/hosts";
	h->fixed = servers != NULL;
	for (const char *s = servers; s && *s;) {
		size_t n = strcspn(s, ",");

		if (n < sizeof one) {
			memcpy(one, s, n);
			one[n] = '\0';
		}
		if (n >= sizeof one || h->nservers == HOSTS_SERVERS || hosts_parse_server(one, &h->servers[h->nservers]) < 0) {
			free(h);
			err_set(e, EINVAL, "resolver '%s': not an address", servers);
			return err_hint(e, "write it as 192.0.2.1, 192.0.2.1:53 or [2001:db8::1]:53; %d at most, with commas between", HOSTS_SERVERS);
		}
		h->nservers++;
		s += n + (s[n] == ',');
	}
	*ret = h;
	return 0;
}

void hosts_free(struct hosts *h)
{
	if (!h)
		return;
	free(h->resolv.text);
	free(h->hosts.text);
	free(h);
}

size_t hosts_servers(struct hosts *h, struct server ret[HOSTS_SERVERS])
{
	look(h);
	memcpy(ret, h->servers, sizeof h->servers);
	return h->nservers;
}

size_t hosts_lookup(struct hosts *h, const char *name, struct addr *ret, size_t max)
{
	look(h);
	return h->hosts.text ? hosts_parse_lookup(h->hosts.text, name, ret, max) : 0;
}
