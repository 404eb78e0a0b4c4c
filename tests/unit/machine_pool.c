/* When a computer may be made in advance: not while the host has little memory to give. */
#include "machine/machine_priv.h"

#include "tap.h"

int main(void)
{
	ok(pool_affords("MemTotal:       24659632 kB\nMemFree:  1 kB\nMemAvailable:   23659632 kB\nBuffers: 7 kB\n"), "plenty");
	ok(pool_affords("MemAvailable:     524289 kB\n"), "just enough");
	ok(!pool_affords("MemAvailable:     524288 kB\n"), "512 MiB are the host's");
	ok(!pool_affords("MemTotal:       24659632 kB\nMemFree:  9999999 kB\nMemAvailable:          0 kB\n"), "nothing");
	ok(pool_affords("MemTotal: 1 kB\n") && pool_affords(""), "a kernel that doesn't say");
	return done_testing();
}
