#include "wire/msg.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Written and read byte by byte: no alignment, no byte order, and the compiler makes single moves of it. */
static void le_put(uint8_t *p, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t le_get(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

/* Room for n more bytes, or NULL and bad. */
static uint8_t *room(struct msg_writer *w, size_t n)
{
	uint8_t *at;

	if (w->bad || n > w->cap - w->len) {
		w->bad = true;
		return NULL;
	}
	at = w->p + w->len;
	w->len += n;
	return at;
}

static void put_int(struct msg_writer *w, uint64_t v, size_t n)
{
	uint8_t *at = room(w, n);

	if (at)
		le_put(at, v, n);
}

void msg_writer_init(struct msg_writer *w, void *mem, size_t cap, uint16_t type, uint32_t id)
{
	w->p = mem;
	w->len = 0;
	w->cap = cap < MSG_MAX ? cap : MSG_MAX;
	w->bad = false;
	w->nfds = 0;
	put_int(w, type, 2);
	put_int(w, 0, 2);
	put_int(w, id, 4);
}

void msg_put_u8(struct msg_writer *w, uint8_t v) { put_int(w, v, 1); }
void msg_put_u16(struct msg_writer *w, uint16_t v) { put_int(w, v, 2); }
void msg_put_u32(struct msg_writer *w, uint32_t v) { put_int(w, v, 4); }
void msg_put_u64(struct msg_writer *w, uint64_t v) { put_int(w, v, 8); }

void msg_put_bytes(struct msg_writer *w, const void *p, size_t n)
{
	uint8_t *at;

	if (n > MSG_MAX) {
		w->bad = true;
		return;
	}
	put_int(w, n, 4);
	at = room(w, n);
	if (at && n)
		memcpy(at, p, n);
}

void msg_put_str(struct msg_writer *w, const char *s)
{
	msg_put_bytes(w, s ? s : "", s ? strlen(s) : 0);
	put_int(w, 0, 1);
}

void msg_put_strv(struct msg_writer *w, const char *const *v, size_t n)
{
	if (n > MSG_MAX) {
		w->bad = true;
		return;
	}
	put_int(w, n, 4);
	for (size_t i = 0; i < n && !w->bad; i++)
		msg_put_str(w, v[i]);
}

void msg_put_fd(struct msg_writer *w, int fd)
{
	if (w->bad || fd < 0 || w->nfds == MSG_FDS || w->len < MSG_HEAD) {
		w->bad = true;
		return;
	}
	w->fds[w->nfds++] = fd;
	le_put(w->p + 2, w->nfds, 2);
}

static void close_all(const int *fds, unsigned from, unsigned n)
{
	for (unsigned i = from; i < n; i++)
		close(fds[i]);
}

int msg_reader_init(struct msg_reader *r, const void *mem, size_t n, const int *fds, unsigned nfds, struct err *e)
{
	const uint8_t *p = mem;
	unsigned said;

	memset(r, 0, sizeof *r);
	r->bad = true;
	if (n < MSG_HEAD || n > MSG_MAX || nfds > MSG_FDS) {
		close_all(fds, 0, nfds);
		return err_set(e, EPROTO, "message of %zu bytes with %u descriptors", n, nfds);
	}
	said = (unsigned)le_get(p + 2, 2);
	if (said != nfds) {
		close_all(fds, 0, nfds);
		return err_set(e, EPROTO, "message names %u descriptors but brings %u", said, nfds);
	}
	r->type = (uint16_t)le_get(p, 2);
	r->id = (uint32_t)le_get(p + 4, 4);
	r->p = p + MSG_HEAD;
	r->end = p + n;
	if (nfds)
		memcpy(r->fds, fds, nfds * sizeof *fds);
	r->nfds = nfds;
	r->bad = false;
	return 0;
}

/* The next n bytes, or NULL and bad. */
static const uint8_t *take(struct msg_reader *r, size_t n)
{
	const uint8_t *at = r->p;

	if (r->bad || n > (size_t)(r->end - r->p)) {
		r->bad = true;
		return NULL;
	}
	r->p += n;
	return at;
}

static uint64_t get_int(struct msg_reader *r, size_t n)
{
	const uint8_t *at = take(r, n);

	return at ? le_get(at, n) : 0;
}

uint8_t msg_get_u8(struct msg_reader *r) { return (uint8_t)get_int(r, 1); }
uint16_t msg_get_u16(struct msg_reader *r) { return (uint16_t)get_int(r, 2); }
uint32_t msg_get_u32(struct msg_reader *r) { return (uint32_t)get_int(r, 4); }
uint64_t msg_get_u64(struct msg_reader *r) { return get_int(r, 8); }

const char *msg_get_str(struct msg_reader *r, size_t max)
{
	size_t n = (size_t)get_int(r, 4);
	const uint8_t *at;

	if (n > max || n > MSG_MAX)
		r->bad = true;
	at = take(r, n + 1);
	if (!at)
		return "";
	if (memchr(at, 0, n + 1) != at + n) {
		r->bad = true;
		return "";
	}
	return (const char *)at;
}

const void *msg_get_bytes(struct msg_reader *r, size_t max, size_t *ret_n)
{
	size_t n = (size_t)get_int(r, 4);
	const uint8_t *at;

	*ret_n = 0;
	if (n > max)
		r->bad = true;
	at = take(r, n);
	if (!at)
		return "";
	*ret_n = n;
	return at;
}

size_t msg_get_strv(struct msg_reader *r, const char **v, size_t cap, size_t max_each)
{
	size_t n = (size_t)get_int(r, 4), i;

	if (n > cap)
		r->bad = true;
	for (i = 0; i < n && !r->bad; i++) {
		v[i] = msg_get_str(r, max_each);
		if (r->bad)
			break;
	}
	if (r->bad)
		i = 0;
	v[i] = NULL;
	return i;
}

int msg_take_fd(struct msg_reader *r)
{
	if (r->bad || r->next_fd == r->nfds) {
		r->bad = true;
		return -1;
	}
	return r->fds[r->next_fd++];
}

int msg_reader_end(struct msg_reader *r, struct err *e)
{
	unsigned left = r->nfds - r->next_fd;

	close_all(r->fds, r->next_fd, r->nfds);
	r->next_fd = r->nfds;
	if (r->bad)
		return err_set(e, EPROTO, "message of type %u is cut short or has a field out of bounds", r->type);
	if (r->p != r->end)
		return err_set(e, EPROTO, "message of type %u has %zu bytes too many", r->type, (size_t)(r->end - r->p));
	if (left)
		return err_set(e, EPROTO, "message of type %u has %u descriptors too many", r->type, left);
	return 0;
}
