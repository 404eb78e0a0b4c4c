#!/bin/sh
# The checkers themselves: each finds the fault it is there for. A checker that passes everything would look just as green.
set -u
top=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
mkdir -p src/core src/wire
printf 'core:\nwire: core\n' >src/LAYERS
n=0 bad=0

# finds NAME PATTERN COMMAND... -- the command fails and its output has the pattern
finds() {
	name=$1 pattern=$2
	shift 2
	n=$((n + 1))
	if out=$("$@" 2>&1); then ok=no; elif printf '%s\n' "$out" | grep -q -- "$pattern"; then ok=yes; else ok=no; fi
	if [ $ok = yes ]; then echo "ok $n - $name"; else
		bad=1
		echo "not ok $n - $name"
		printf '%s\n' "$out" | head -n 5 | sed 's/^/# /'
	fi
}
passes() {
	name=$1
	shift
	n=$((n + 1))
	if out=$("$@" 2>&1); then echo "ok $n - $name"; else
		bad=1
		echo "not ok $n - $name"
		printf '%s\n' "$out" | head -n 5 | sed 's/^/# /'
	fi
}

echo '#include "wire/msg.h"' >src/core/up.c
finds "layers: an include upwards" "core may not include wire/msg.h" "$top/tools/check-layers" src/LAYERS src/core/up.c
echo '#include "msg_priv.h"' >src/wire/short.c
finds "layers: an include without its module" "module/file.h" "$top/tools/check-layers" src/LAYERS src/wire/short.c
echo '#include "core/x_priv.h"' >src/wire/priv.c
finds "layers: another module's private header" "private to core" "$top/tools/check-layers" src/LAYERS src/wire/priv.c
echo '#include "core/buf.h"' >src/wire/down.c
passes "layers: an include downwards is fine" "$top/tools/check-layers" src/LAYERS src/wire/down.c

function() { printf 'int %s(void)\n{\n' "$1"; i=0; while [ $i -lt "$2" ]; do echo '	x();'; i=$((i + 1)); done; echo '}'; }
function short 60 >src/core/short.c
passes "size: 60 lines" "$top/tools/check-size" src/core/short.c
function long 61 >src/core/long.c
finds "size: 61 lines" "long() has 61 lines" "$top/tools/check-size" src/core/short.c src/core/long.c
seq 801 >src/core/big.c
finds "size: 801 lines" "801 lines" "$top/tools/check-size" src/core/big.c src/core/short.c
{ echo 'static const int t[] ='; echo '{'; seq -s, 100 | tr , '\n' | sed 's/$/,/'; echo '};'; function short 5; } >src/core/table.c
passes "size: a table is no function" "$top/tools/check-size" src/core/table.c

echo 'int f(char *d) { return sprintf (d, "x"); }' >src/core/ban.c
finds "banned: a call" "ban.c:1: sprintf() is not used here" "$top/tools/check-banned" src/core/ban.c
printf '/* sprintf(x) */ // atoi(x)\nint f(struct s *p) { p->system(1); my_atoi(2); return snprintf("system(1)"); }\n' >src/core/fine.c
passes "banned: not in words, members or longer names" "$top/tools/check-banned" src/core/fine.c
echo "1..$n"
exit $bad
