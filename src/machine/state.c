#include "machine/state.h"

#include <errno.h>
#include "core/str.h"

const struct state_edge state_edges[] = {
	{ MS_CREATING, ME_MADE, MS_RUNNING },
	{ MS_CREATING, ME_POOLED, MS_READY },
	{ MS_CREATING, ME_FAIL, MS_FAILED },
	{ MS_CREATING, ME_END, MS_ENDING },      /* killed while it was being made */
	{ MS_READY, ME_CLAIM, MS_RUNNING },
	{ MS_READY, ME_END, MS_ENDING },
	{ MS_READY, ME_GONE, MS_ENDED },
	{ MS_RUNNING, ME_PAUSE, MS_PAUSED },
	{ MS_RUNNING, ME_END, MS_ENDING },
	{ MS_RUNNING, ME_GONE, MS_ENDED },       /* ended by itself: its PID 1 is gone */
	{ MS_PAUSED, ME_RESUME, MS_RUNNING },
	{ MS_PAUSED, ME_END, MS_ENDING },
	{ MS_PAUSED, ME_GONE, MS_ENDED },
	{ MS_ENDING, ME_GONE, MS_ENDED },
};
const size_t state_edges_n = sizeof state_edges / sizeof state_edges[0];

static const char *const state_names[MS_COUNT] = {
	[MS_CREATING] = "creating", [MS_READY] = "ready", [MS_RUNNING] = "running", [MS_PAUSED] = "paused",
	[MS_ENDING] = "ending", [MS_ENDED] = "ended", [MS_FAILED] = "failed",
};
static const char *const event_names[ME_COUNT] = {
	[ME_MADE] = "made", [ME_POOLED] = "pooled", [ME_CLAIM] = "claim", [ME_PAUSE] = "pause", [ME_RESUME] = "resume",
	[ME_END] = "end", [ME_GONE] = "gone", [ME_FAIL] = "fail",
};

int state_next(enum machine_state from, enum machine_event event)
{
	for (size_t i = 0; i < state_edges_n; i++)
		if (state_edges[i].from == from && state_edges[i].event == event)
			return (int)state_edges[i].to;
	return -EINVAL;
}

const char *state_name(enum machine_state s)
{
	return s < MS_COUNT ? state_names[s] : "?";
}

const char *event_name(enum machine_event e)
{
	return e < ME_COUNT ? event_names[e] : "?";
}

bool state_is_live(enum machine_state s)
{
	return s == MS_CREATING || s == MS_RUNNING || s == MS_PAUSED;
}
