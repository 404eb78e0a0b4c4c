/* report_time -- the timeline: one bar an attempt, one lane for each computer that was there at the same time. */
#include <stdlib.h>
#include "core/fd.h"
#include "core/str.h"
#include "secretary/report_priv.h"

#define BARS 4000
#define LANES 64
#define WIDTH 1040
#define LANE_HEIGHT 20

struct bar { const char *task, *error, *computer; int64_t from, to; };

static int by_start(const void *a, const void *b)
{
	int64_t x = ((const struct bar *)a)->from, y = ((const struct bar *)b)->from;

	return (x > y) - (x < y);
}

static size_t collect(const json_t *doc, struct bar *bars)
{
	size_t n = 0, i, k;
	json_t *t, *a;

	json_array_foreach(json_object_get(doc, "tasks"), i, t) {
		json_array_foreach(json_object_get(t, "log"), k, a) {
			if (n == BARS)
				return n;
			bars[n] = (struct bar){ json_string_value(json_object_get(t, "id")), json_string_value(json_object_get(a, "error")),
				json_string_value(json_object_get(a, "computer")), json_integer_value(json_object_get(a, "started")),
				json_integer_value(json_object_get(a, "ended")) };
			n += bars[n].task && bars[n].from && bars[n].to >= bars[n].from;
		}
	}
	return n;
}

static void draw_bar(struct buf *b, const struct bar *bar, int lane, int64_t t0, double scale)
{
	double x = (double)(bar->from - t0) * scale, w = (double)(bar->to - bar->from) * scale;

	buf_printf(b, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"><title>", bar->error ? "cut" : "bar", x,
		20 + lane * LANE_HEIGHT, w < 2 ? 2 : w, LANE_HEIGHT - 4);
	html_text(b, bar->task);
	buf_adds(b, " on ");
	html_text(b, bar->computer);
	buf_adds(b, ", ");
	html_ms(b, bar->to - bar->from);
	if (bar->error) {
		buf_adds(b, ": ");
		html_text(b, bar->error);
	}
	buf_adds(b, "</title></rect>");
}

void report_timeline(struct buf *b, const json_t *doc)
{
	AUTO_FREE struct bar *bars = calloc(BARS + 1, sizeof *bars);
	int64_t free_at[LANES] = { 0 }, t0, t1 = 0;
	size_t n = bars ? collect(doc, bars) : 0;
	AUTO_FREE int *lane_of = calloc(n + 1, sizeof *lane_of);
	int lanes = 0;
	double scale;

	if (!n || !lane_of)
		return;
	qsort(bars, n, sizeof *bars, by_start);
	t0 = bars[0].from;
	for (size_t i = 0; i < n; i++) {
		int lane = 0;

		while (lane < LANES - 1 && free_at[lane] > bars[i].from)
			lane++;
		free_at[lane] = bars[i].to;
		lane_of[i] = lane;
		lanes = lane >= lanes ? lane + 1 : lanes;
		t1 = bars[i].to > t1 ? bars[i].to : t1;
	}
	scale = WIDTH / (double)(t1 > t0 ? t1 - t0 : 1);
	buf_printf(b, "<h2>Timeline</h2><p class=\"soft\">%zu attempts, at most %d computers at once</p><svg viewBox=\"0 0 %d %d\" role=\"img\">", n, lanes, WIDTH,
		24 + lanes * LANE_HEIGHT);
	for (int i = 0; i <= 4; i++) {
		int x = WIDTH * i / 4;

		buf_printf(b, "<line x1=\"%d\" x2=\"%d\" y1=\"16\" y2=\"%d\"/><text x=\"%d\" y=\"11\" text-anchor=\"%s\">", x, x, 24 + lanes * LANE_HEIGHT, x,
			i == 0 ? "start" : i == 4 ? "end" : "middle");
		html_ms(b, (t1 - t0) * i / 4);
		buf_adds(b, "</text>");
	}
	for (size_t i = 0; i < n; i++)
		draw_bar(b, &bars[i], lane_of[i], t0, scale);
	buf_adds(b, "</svg>");
}
