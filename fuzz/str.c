/* The text decoders of core/str.h and core/clock.h. The first byte picks one, the rest is its input. What decodes must encode
 * back to the same value; what is refused must leave the buffer as it was. */
#include "core/clock.h"
#include "core/str.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

#define must(cond) do { if (!(cond)) abort(); } while (0)

static void base64(const char *s, size_t n)
{
	AUTO_BUF struct buf out = BUF_INIT(n + 8), back = BUF_INIT(2 * n + 8);

	buf_adds(&out, "kept");
	if (str_base64_decode(s, n, &out) < 0) {
		must(out.len == 4);
		return;
	}
	must(str_base64(&back, buf_at(&out) + 4, out.len - 4) == 0);
	must(back.len == n && memcmp(buf_at(&back), s, n) == 0);
}

static void percent(const char *s, size_t n)
{
	AUTO_BUF struct buf out = BUF_INIT(n + 8), enc = BUF_INIT(3 * n + 8), back = BUF_INIT(n + 8);

	if (str_percent_decode(s, n, false, &out) < 0) {
		must(out.len == 0);
		return;
	}
	must(strlen(buf_at(&out)) == out.len);
	must(str_percent_encode(&enc, buf_at(&out)) == 0);
	must(str_percent_decode(buf_at(&enc), enc.len, true, &back) == 0);
	must(back.len == out.len && memcmp(buf_at(&back), buf_at(&out), out.len) == 0);
}

static void quoting(const char *s, size_t n)
{
	AUTO_BUF struct buf json = BUF_INIT(6 * n + 8), html = BUF_INIT(6 * n + 8), hex = BUF_INIT(2 * n + 8);

	must(str_json(&json, s, n) == 0 && str_utf8(buf_at(&json), json.len));
	must(str_html(&html, s, n) == 0 && !memchr(buf_at(&html), '<', html.len));
	must(str_hex(&hex, s, n) == 0 && hex.len == 2 * n);
}

static void numbers(const char *text)
{
	uint64_t v = 0;
	char human[16], when[32];
	int64_t ms = 0, again = 0;

	if (str_u64(text, 1000, &v) == 0)
		must(v <= 1000);
	str_u64(text, UINT64_MAX, &v);
	str_duration(text, &v, NULL);
	if (str_size(text, &v, NULL) == 0) {
		str_size_human(v, human);
		must(strlen(human) < sizeof human);
	}
	if (clock_parse_rfc3339(text, &ms) == 0) {
		clock_rfc3339(ms, when);
		must(clock_parse_rfc3339(when, &again) == 0);
		/* an offset may reach out of the years that can be written */
		must(again == ms || ms < -62167219200000 || ms > 253402300799999);
	}
	if (str_id(text))
		must(str_name(text));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	char *text;

	if (n == 0)
		return 0;
	text = malloc(n);
	if (!text)
		return 0;
	memcpy(text, p + 1, n - 1);
	text[n - 1] = '\0';
	switch (p[0] % 4) {
	case 0: base64(text, n - 1); break;
	case 1: percent(text, n - 1); break;
	case 2: quoting(text, n - 1); break;
	case 3: numbers(text); break;
	}
	free(text);
	return 0;
}
