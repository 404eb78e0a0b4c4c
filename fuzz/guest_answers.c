/* What a hostile guest answers: one byte chooses the request that the message claims to answer, the rest is the message. */
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include "machine/guest_priv.h"

static const uint16_t requests[] = { G_HELLO, G_CONFIGURE, G_START, G_ATTACH, G_LIST, G_STAT, G_DIR, G_READ, G_WRITE, G_WATCH, G_DIAL, G_PORTS,
	G_METRICS, G_ENVS, G_DETACH };

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct guest_msg m;
	struct msg_reader r;
	struct err e;
	size_t sum = 0;
	int fd = -1;

	if (n < 1 || n > MSG_MAX || msg_reader_init(&r, p + 1, n - 1, NULL, 0, &e) < 0)
		return 0;
	if (!guest_decode(&r, requests[(p[0] >> 1) % (sizeof requests / sizeof requests[0])], p[0] & 1, &fd, &m) && !r.bad && r.p == r.end) {
		/* whatever passed can be read to its end */
		sum += m.prog.cmd ? strlen(m.prog.cmd) : 0;
		for (size_t i = 0; i < m.prog.nargs; i++)
			sum += strlen(m.prog.args[i]);
		for (size_t i = 0; i < m.nstrs; i++)
			sum += strlen(m.strs[i]);
		for (size_t i = 0; i < m.entry.nmeta; i++)
			sum += strlen(m.entry.meta[i]);
		for (size_t i = 0; i < m.nports; i++)
			sum += m.ports[i];
		for (size_t i = 0; i < m.len; i++)
			sum += ((const uint8_t *)m.bytes)[i];
		if (m.has_entry)
			sum += strlen(m.entry.path) + strlen(m.entry.owner) + strlen(m.entry.group) + strlen(m.entry.target);
	}
	msg_reader_end(&r, &e);
	return sum == SIZE_MAX;
}
