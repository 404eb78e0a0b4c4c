/* expect -- what is kept of a program's output, what it's compared with, what is captured from it. */
#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include "core/str.h"
#include "secretary/run_priv.h"

void keep_init(struct keep *k)
{
	buf_init(&k->head, KEEP_HEAD);
	buf_init(&k->tail, 2 * KEEP_TAIL);
	k->total = 0;
}

void keep_done(struct keep *k)
{
	buf_done(&k->head);
	buf_done(&k->tail);
}

void keep_add(struct keep *k, const char *p, size_t n)
{
	size_t room = KEEP_HEAD - k->head.len, take = n < room ? n : room;

	k->total += n;
	if (take)
		buf_add(&k->head, p, take);
	p += take;
	n -= take;
	if (n > KEEP_TAIL) {
		p += n - KEEP_TAIL;
		n = KEEP_TAIL;
	}
	if (!n)
		return;
	if (k->tail.len + n > KEEP_TAIL)
		buf_consume(&k->tail, k->tail.len + n - KEEP_TAIL);
	buf_add(&k->tail, p, n);
}

/* Any bytes as JSON text: what isn't UTF-8 becomes U+FFFD */
static json_t *as_text(const char *p, size_t n)
{
	AUTO_BUF struct buf b = BUF_INIT(8 * KEEP_HEAD);
	json_t *v = NULL;

	str_json(&b, p, n);
	js_parse(buf_at(&b), b.len, &v, NULL);
	return v;
}

json_t *keep_text(const struct keep *k)
{
	AUTO_BUF struct buf b = BUF_INIT(SHOW_HEAD + SHOW_TAIL + 128);
	const struct buf *end = k->tail.len ? &k->tail : &k->head;
	size_t tail = end->len < SHOW_TAIL ? end->len : SHOW_TAIL;

	if (k->total <= SHOW_HEAD + SHOW_TAIL && k->total <= k->head.len)
		return as_text(buf_at(&k->head), k->head.len);
	buf_add(&b, buf_at(&k->head), SHOW_HEAD);
	buf_printf(&b, "\n[… %llu bytes left out …]\n", (unsigned long long)(k->total - SHOW_HEAD - tail));
	buf_add(&b, buf_at(end) + end->len - tail, tail);
	return as_text(buf_at(&b), b.len);
}

int run_text(struct run *r, const char *text, struct buf *out, struct err *e)
{
	int rc;

	buf_init(out, SUBST_MAX);
	rc = subst_text(&r->subst, text, out, e);
	if (rc >= 0 && memchr(buf_at(out), 0, out->len))
		rc = err_set(e, EINVAL, "a value has a NUL in it");
	return rc;
}

static bool exit_fits(const struct toml *want, int code)
{
	if (!want)
		return code == 0;
	if (want->type == TOML_INT)
		return want->num == code;
	toml_each(v, want) {
		if (v->num == code)
			return true;
	}
	return false;
}

/* How it ended, in words, when that isn't what was expected. */
static int exit_check(struct run *r, const struct spec_step *st, const struct client_exit *x, struct err *e)
{
	if (x->oom)
		return err_set(e, ENOMEM, "the computer ran out of memory%s", r->spec->computer.memory ? " (see computer.memory)" : "");
	if (x->how == CLIENT_TIMED_OUT)
		return err_set(e, ETIMEDOUT, "it took too long and was ended");
	if (x->how == CLIENT_SIGNALED)
		return err_set(e, EINVAL, "it died of signal %d (%s)", x->code, sigdescr_np(x->code) ? sigdescr_np(x->code) : "unknown");
	if (!exit_fits(st->expect.exit, x->code))
		return err_set(e, EINVAL, "it ended with exit code %d%s", x->code, x->code == 127 ? ": no such program in the computer" : "");
	return 0;
}

static bool equal(const struct buf *have, const struct buf *want)
{
	size_t n = have->len, m = want->len;

	/* one line end at the end makes no difference */
	n -= n && buf_at(have)[n - 1] == '\n';
	m -= m && buf_at(want)[m - 1] == '\n';
	return n == m && memcmp(buf_at(have), buf_at(want), n) == 0;
}

static int matches(const struct buf *have, const char *pattern, bool *ret, struct err *e)
{
	AUTO_FREE char *text = strndup(buf_at(have), have->len);
	regex_t re;

	if (!text || regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB | REG_NEWLINE))
		return err_set(e, EINVAL, "'%.60s' is not an extended regular expression", pattern);
	*ret = regexec(&re, text, 0, NULL, 0) == 0;
	regfree(&re);
	return 0;
}

static int output_check(struct run *r, const char *text, const struct keep *k, const char *stream, char how, struct err *e)
{
	static const struct { char how; const char *word; } words[] = { { '=', "equal" }, { '~', "match" }, { 'c', "contain" } };
	AUTO_BUF struct buf want = BUF_INIT(1);
	bool good = false;
	const char *word = "";
	int rc;

	if (!text)
		return 0;
	rc = run_text(r, text, &want, e);
	if (rc >= 0 && how == '~')
		rc = matches(&k->head, buf_at(&want), &good, e);
	if (rc < 0)
		return rc;
	if (how == '=')
		good = k->total == k->head.len && equal(&k->head, &want);
	if (how == 'c')
		good = !want.len || memmem(buf_at(&k->head), k->head.len, buf_at(&want), want.len);
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		if (words[i].how == how)
			word = words[i].word;
	}
	return good ? 0 : err_set(e, EINVAL, "its %s doesn't %s '%.100s'", stream, word, buf_at(&want));
}

int expect_check(struct run *r, const struct spec_step *st, const struct client_exit *x, struct err *e)
{
	const struct { const char *text; const struct keep *k; const char *stream; char how; } rules[] = {
		{ st->expect.stdout_equals, &r->out, "stdout", '=' }, { st->expect.stdout_contains, &r->out, "stdout", 'c' },
		{ st->expect.stdout_matches, &r->out, "stdout", '~' }, { st->expect.stderr_contains, &r->err, "stderr", 'c' },
		{ st->expect.stderr_matches, &r->err, "stderr", '~' },
	};
	int rc = exit_check(r, st, x, e);

	for (size_t i = 0; i < sizeof rules / sizeof *rules && rc >= 0; i++)
		rc = output_check(r, rules[i].text, rules[i].k, rules[i].stream, rules[i].how, e);
	return rc;
}

static json_t *text_value(const struct keep *k)
{
	size_t n = k->head.len;

	while (n && (buf_at(&k->head)[n - 1] == '\n' || buf_at(&k->head)[n - 1] == '\r'))
		n--;
	return as_text(buf_at(&k->head), n);
}

int expect_capture(struct run *r, const struct spec_step *st, const struct client_exit *x, struct err *e)
{
	if (!st->capture)
		return 0;
	toml_each(v, st->capture) {
		const struct keep *k = str_eq(v->str, "stderr") ? &r->err : &r->out;
		json_t *val = NULL;

		if (str_eq(v->str, "exit")) {
			val = json_integer(x ? x->code : 0);
		} else if (k->total > k->head.len || (x && x->lost)) {
			return err_set(e, EFBIG, "capture '%.40s': more than %u bytes", v->key, KEEP_HEAD);
		} else if (str_eq(v->str, "json")) {
			if (js_parse(buf_at(&k->head), k->head.len, &val, e) < 0)
				return err_wrap(e, "capture '%.40s'", v->key);
		} else {
			val = text_value(k);
		}
		if (!val)
			return err_set(e, ENOMEM, "no memory");
		json_object_set_new(r->result, v->key, val);
	}
	return 0;
}
