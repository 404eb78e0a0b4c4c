/* Bytes as the keeper's peers send them, through the real link and tables; computers are made by a back end that always fails.
 * Input: messages, each after two bytes of its length. */
#include "core/fd.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int no_start(struct isolate *h, const struct box_spec *s, struct box *ret, struct err *e)
{
	(void)h;
	box_init(ret);
	/* touch what was decoded, so that a sanitizer sees every byte of it */
	for (size_t i = 0; i < s->nmounts; i++)
		if (strlen(s->mounts[i].source) + strlen(s->mounts[i].dest) == 0)
			abort();
	return err_set(e, strlen(s->hostname) > 63 ? EINVAL : EAGAIN, "never");
}

static const struct backend fake = { .name = "fake", .start = no_start };

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	static struct isolate *host;
	static struct keeper k = { .backend = &fake, .once = true, .state_fd = -1, .templates_fd = -1, .run_fd = -1, .records_fd = -1 };
	struct err e;
	int pair[2];
	char answer[4096];

	if (!host) {
		if (isolate_create("/bin/sh", NULL, NULL, 0, -1, &host, &e) < 0 || loop_create(&k.loop, &e) < 0 || map_create(&k.by_id) < 0 || map_create(&k.by_slot) < 0)
			abort();
		k.host = host;
		list_init(&k.peers);
	}
	if (sock_pair(pair, &e) < 0 || keeper_peer(&k, pair[0], &e) < 0)
		abort();
	while (n > 2) {
		size_t len = (size_t)p[0] | (size_t)p[1] << 8;

		p += 2;
		n -= 2;
		len = len < n ? len : n;
		if (send(pair[1], p, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			break;
		p += len;
		n -= len;
		loop_turn(k.loop, 0);
		while (recv(pair[1], answer, sizeof answer, MSG_DONTWAIT) > 0)
			;
	}
	close(pair[1]);
	for (int i = 0; i < 4 && !list_empty(&k.peers); i++)
		loop_turn(k.loop, 0);
	loop_turn(k.loop, 0);
	k.quitting = false;
	return 0;
}
