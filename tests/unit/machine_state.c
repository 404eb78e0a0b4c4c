#include "machine/state.h"

#include <errno.h>
#include <string.h>
#include "tap.h"

static bool reach[MS_COUNT];

static void walk(enum machine_state s)
{
	if (reach[s])
		return;
	reach[s] = true;
	for (int e = 0; e < ME_COUNT; e++) {
		int n = state_next(s, (enum machine_event)e);

		if (n >= 0)
			walk((enum machine_state)n);
	}
}

static bool reaches_last(enum machine_state s)
{
	memset(reach, 0, sizeof reach);
	walk(s);
	return reach[MS_ENDED] || reach[MS_FAILED];
}

int main(void)
{
	int used[ME_COUNT] = { 0 };

	walk(MS_CREATING);
	for (int s = 0; s < MS_COUNT; s++)
		ok(reach[s], "'%s' can be reached", state_name((enum machine_state)s));
	for (int s = 0; s < MS_COUNT; s++) {
		int out = 0;

		for (int e = 0; e < ME_COUNT; e++)
			out += state_next((enum machine_state)s, (enum machine_event)e) >= 0;
		if (s == MS_ENDED || s == MS_FAILED)
			ok(out == 0, "'%s' is an end", state_name((enum machine_state)s));
		else
			ok(out > 0 && reaches_last((enum machine_state)s), "'%s' can be left for good", state_name((enum machine_state)s));
	}
	for (size_t i = 0; i < state_edges_n; i++) {
		used[state_edges[i].event]++;
		for (size_t j = 0; j < i; j++)
			if (state_edges[i].from == state_edges[j].from && state_edges[i].event == state_edges[j].event)
				ok(0, "one edge for one event");
	}
	for (int e = 0; e < ME_COUNT; e++)
		ok(used[e] > 0, "event '%s' is used", event_name((enum machine_event)e));
	ok(state_next(MS_ENDED, ME_END) == -EINVAL, "the dead stay dead");
	return done_testing();
}
