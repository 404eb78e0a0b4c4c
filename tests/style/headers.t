#!/bin/sh
# Each header compiles alone, with all warnings: it includes what it needs and nothing relies on the order.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUREAU_BUILD:-build}
flags="-std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -Wstrict-prototypes -Wno-unused-function -Wno-unused-parameter
	-DBUREAU_LIBEXEC=\"x\" -DBUREAU_VERSION=\"x\" -Isrc -Itests -I$build/src -I$build"
libs=$(pkg-config --cflags jansson openssl sqlite3 zlib)
n=0 bad=0
for h in src/*/*.h tests/tap.h; do
	n=$((n + 1))
	# twice, so that a missing guard shows
	# shellcheck disable=SC2086
	if out=$(printf '#include "%s"\n#include "%s"\n' "${h#*/}" "${h#*/}" | ${CC:-cc} $flags $libs -fsyntax-only -x c - 2>&1); then
		echo "ok $n - $h"
	else
		bad=1
		echo "not ok $n - $h"
		printf '%s\n' "$out" | head -n 10 | sed 's/^/# /'
	fi
done
echo "1..$n"
exit $bad
