#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/e2b_req.h"
#include "core/str.h"

#define JSON_TYPE "application/json"

/* How failures and small answers look in this dialect. */

void e2b_json(struct e2b_req *q, int status, json_t *v)
{
	struct buf b = BUF_INIT(64 << 20);

	if (!v || js_dump(v, &b) < 0)
		e2b_status(q->r, 500, "the answer could not be written");
	else
		http_reply_buf(q->r, status, JSON_TYPE, &b);
	buf_done(&b);
	json_decref(v);
}

void e2b_empty(struct e2b_req *q, int status)
{
	http_reply(q->r, status, NULL, "", 0);
}

static void reply_text(struct http_req *r, int status, const char *text)
{
	struct buf b = BUF_INIT(8192);

	buf_printf(&b, "{\"code\":%d,\"message\":", status);
	str_json(&b, text, strlen(text));
	buf_addc(&b, '}');
	if (status == 429 || status == 503)
		http_set(r, "Retry-After", "1");
	http_reply_buf(r, status, JSON_TYPE, &b);
	buf_done(&b);
}

void e2b_status(struct http_req *r, int status, const char *fmt, ...)
{
	char text[640];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	reply_text(r, status, text);
}

void e2b_fail_word(struct e2b_req *q, const char *word, const char *fmt, ...)
{
	struct buf b = BUF_INIT(8192);
	char text[640];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	e2b_error_json(&b, word, text);
	http_reply_buf(q->r, e2b_code_status(word), JSON_TYPE, &b);
	buf_done(&b);
}

/* EACCES is about the acting user, or about a file: only the guest's words tell which. */
bool e2b_no_user(const struct err *e)
{
	return e->code == EACCES && strstr(e->msg, "no user '");
}

const char *e2b_error_text(const struct e2b_req *q, const struct err *e, char *text, size_t size)
{
	if (e->code == ESRCH && *q->what)
		snprintf(text, size, "%s not found", q->what);
	else
		snprintf(text, size, "%s%s%s%s", e->msg, *e->hint ? " (" : "", e->hint, *e->hint ? ")" : "");
	if (e2b_no_user(e))
		return "unauthenticated";
	return e2b_code(e->code);
}

void e2b_fail(struct e2b_req *q, const struct err *e)
{
	char text[640];
	const char *word;

	if (q->data_plane && e2b_is_gone(q)) {
		e2b_gone(q->r, q->id);
		return;
	}
	word = e2b_error_text(q, e, text, sizeof text);
	if (q->face == E2B_FACE_RPC)
		e2b_fail_word(q, word, "%s", text);
	else
		/* a file that says EACCES isn't a key that is wrong */
		reply_text(q->r, e->code == EACCES && !e2b_no_user(e) ? 403 : ops_http_status(e->code), text);
}

/* A person's browser, not a program: it gets a page. */
static bool wants_page(struct http_req *r)
{
	const char *agent = http_req_header(r, "user-agent"), *accept = http_req_header(r, "accept");
	const char *mode = http_req_header(r, "sec-fetch-mode");

	if (!agent || strncmp(agent, "Mozilla/", 8) != 0)
		return false;
	return !(accept && str_starts(accept, JSON_TYPE)) && !(mode && str_eq(mode, "cors"));
}

static void page(struct http_req *r, const char *title, const char *text)
{
	http_set(r, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'");
	http_replyf(r, 502, "text/html; charset=utf-8",
		"<!doctype html><meta charset=utf-8><title>%s</title>"
		"<body style=\"font:16px sans-serif;max-width:36em;margin:15vh auto;padding:0 1em\"><h1>%s</h1><p>%s</p>\n",
		title, title, text);
}

void e2b_gone(struct http_req *r, const char *id)
{
	http_set(r, "Cache-Control", "no-store");
	if (wants_page(r)) {
		page(r, "Sandbox Not Found", "It has ended, or it never was here. Its address holds no other program.");
		return;
	}
	/* the id has been checked: [a-z0-9] */
	http_replyf(r, 502, JSON_TYPE, "{\"sandboxId\":\"%s\",\"message\":\"The sandbox was not found\",\"code\":502}", id);
}

void e2b_port_closed(struct http_req *r, const char *id, uint16_t port)
{
	http_set(r, "Cache-Control", "no-store");
	if (wants_page(r)) {
		page(r, "Closed Port Error", "The sandbox is running, but no program in it has this port open.");
		return;
	}
	http_replyf(r, 502, JSON_TYPE, "{\"sandboxId\":\"%s\",\"message\":\"The sandbox is running but port is not open\",\"port\":%u,\"code\":502}",
		id, port);
}
