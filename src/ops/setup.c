#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include "core/fd.h"
#include "core/str.h"
#include "ops/ops_priv.h"

#define KEY_FILE "api-key"
#define KEY_HEX 40

static bool key_ok(const char *s)
{
	if (!str_starts(s, "e2b_") || strlen(s) != 4 + KEY_HEX)
		return false;
	return strspn(s + 4, "0123456789abcdef") == KEY_HEX;
}

int ops_key_make(const char *state_dir, struct err *e)
{
	AUTO_FREE char *path = NULL;
	AUTO_BUF struct buf b = BUF_INIT(80);
	uint8_t raw[KEY_HEX / 2];

	if (asprintf(&path, "%s/" KEY_FILE, state_dir) < 0) {
		path = NULL;
		return err_set(e, ENOMEM, "no memory");
	}
	if (access(path, F_OK) == 0)
		return 0;
	str_random(raw, sizeof raw);
	buf_adds(&b, "e2b_");
	str_hex(&b, raw, sizeof raw);
	buf_addc(&b, '\n');
	return fd_write_file(AT_FDCWD, path, 0600, buf_at(&b), b.len, e);
}

static int read_key(struct ops *o, struct err *e)
{
	AUTO_FREE char *path = NULL, *text = NULL;
	size_t n;
	int r;

	if (asprintf(&path, "%s/" KEY_FILE, o->o.state_dir) < 0) {
		path = NULL;
		return err_set(e, ENOMEM, "no memory");
	}
	r = fd_read_regular(AT_FDCWD, path, 200, &text, &n, e);
	if (r < 0)
		return r;
	while (n && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		text[--n] = '\0';
	if (!key_ok(text)) {
		err_set(e, EINVAL, "'%s' doesn't hold a key of the form e2b_ and %d hex digits", path, KEY_HEX);
		return err_hint(e, "remove it: the next start makes a new one");
	}
	str_copy(o->key, sizeof o->key, text);
	/* enough to tell keys apart in the audit, far too little to guess one */
	snprintf(o->key_name, sizeof o->key_name, "key:%.4s", text + 4);
	explicit_bzero(text, n);
	return 0;
}

int ops_create(const struct ops_opts *opts, struct ops **ret, struct err *e)
{
	struct ops *o = calloc(1, sizeof *o);
	struct sysinfo si;
	int r;

	if (!o)
		return err_set(e, ENOMEM, "operations: no memory");
	o->o = *opts;
	if (!o->o.default_timeout_ms)
		o->o.default_timeout_ms = 5 * 60 * 1000;
	o->audit_dir = o->audit_fd = -1;
	o->cpus = sysconf(_SC_NPROCESSORS_ONLN);
	if (o->cpus < 1)
		o->cpus = 1;
	if (sysinfo(&si) == 0)
		o->host_memory = (uint64_t)si.totalram * si.mem_unit;
	list_init(&o->calls);
	r = read_key(o, e);
	if (r == 0)
		r = audit_open(o, e);
	if (r < 0) {
		ops_free(o);
		return r;
	}
	*ret = o;
	return 0;
}

void ops_free(struct ops *o)
{
	if (!o)
		return;
	while (!list_empty(&o->calls))
		ops_cancel(container_of(o->calls.next, struct op_call, node));
	audit_close(o);
	explicit_bzero(o->key, sizeof o->key);
	free(o);
}
