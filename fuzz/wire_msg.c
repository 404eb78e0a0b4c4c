/* The decoder against arbitrary bytes: the first ones choose which fields are asked for. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t touch(const char *s)
{
	return strlen(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *v[9];
	struct msg_reader r;
	struct err e;
	size_t n, sum = 0;
	uint8_t plan[8] = { 0 };

	if (size < sizeof plan)
		return 0;
	memcpy(plan, data, sizeof plan);
	if (msg_reader_init(&r, data + sizeof plan, size - sizeof plan, NULL, 0, &e) < 0)
		return 0;
	for (size_t i = 0; i < 3 * sizeof plan; i++) {
		const uint8_t *p;

		switch (plan[i % sizeof plan] % 8) {
		case 0: sum += msg_get_u8(&r); break;
		case 1: sum += msg_get_u16(&r); break;
		case 2: sum += msg_get_u32(&r); break;
		case 3: sum += msg_get_u64(&r); break;
		case 4: sum += touch(msg_get_str(&r, plan[0])); break;
		case 5:
			p = msg_get_bytes(&r, MSG_MAX, &n);
			for (size_t j = 0; j < n; j++)
				sum += p[j];
			break;
		case 6:
			n = msg_get_strv(&r, v, 8, 100);
			for (size_t j = 0; j < n; j++)
				sum += touch(v[j]);
			if (v[n])
				abort();
			break;
		case 7: if (msg_take_fd(&r) != -1) abort(); break;
		}
	}
	if (msg_reader_end(&r, &e) == 0 && r.bad)
		abort();
	return (int)(sum & 0);
}
