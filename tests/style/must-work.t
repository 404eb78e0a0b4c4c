#!/bin/sh
# Each test is in .ci/must-work once, and nothing else is: a new one may skip nothing in CI unless it says so there. And the list is kept.
top=${BUREAU_TOP:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "$top" || exit 1
export LC_ALL=C
listed=$(sed -n 's/^\([a-z0-9_-]*\)\( may skip.*\)\{0,1\}$/\1/p' .ci/must-work | grep . | sort)
there=$({ find tests -name node_modules -prune -o -name '*.t' -print; find tests/unit -name '*.c'; } | sed 's,.*/,,; s,\.[ct]$,,' | sort)
n=0
check() {
	n=$((n + 1))
	[ -z "$2" ] && echo "ok $n - $1" && return
	echo "not ok $n - $1"
	echo "$2" | sed 's/^/#   /'
	bad=1
}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 1
echo "$listed" >"$work/listed"
echo "$there" >"$work/there"
check "no two tests have one name" "$(uniq -d "$work/there")"
check "no test is listed twice" "$(uniq -d "$work/listed")"
check "each is listed" "$(comm -13 "$work/listed" "$work/there")"
check "and is there" "$(comm -23 "$work/listed" "$work/there")"
check "each line is a name with or without what may be skipped, or a comment" "$(grep -vE '^(#.*|[a-z0-9_-]+( may skip(: .+)?)?)?$' .ci/must-work)"
# what becomes of a skip: an allowed one, another, one of a whole test
try() {
	printf '#!/bin/sh\nprintf "%s"\n' "$2" >"$work/$1.t"
	chmod +x "$work/$1.t"
	MUST_WORK="$work/list" SKIPPED="$work/skipped" FAILED="$work/failed" tools/test-one "$work/$1.t" 2>/dev/null
}
printf 'strict\nhalf may skip: no moon\nfree may skip\n' >"$work/list"
is() { [ "$2" = "$3" ] && check "$1" "" || check "$1" "got: $2"; }
is "a skip in a listed test fails" "$(try strict 'ok 1 - x # SKIP no moon\n1..1\n' | sed -n 1p)" "not ok 1 - x (must work here, but was skipped) no moon"
is "so does one of all of it" "$(try strict '1..0 # SKIP no moon\n' | tail -n 1)" "not ok 1 - must work here, but was skipped: # SKIP no moon"
is "one for the reason that is allowed passes" "$(try half 'ok 1 - x # SKIP no moon\n1..1\n' | sed -n 1p)" "ok 1 - x # SKIP no moon"
is "one for another doesn't" "$(try half 'ok 1 - x # SKIP no sun\n1..1\n' | sed -n 1p)" "not ok 1 - x (must work here, but was skipped) no sun"
is "where anything may be skipped it may" "$(try free '1..0 # SKIP no moon\n')" "1..0 # SKIP no moon"
is "and in a test that isn't listed" "$(try other '1..0 # SKIP no moon\n')" "1..0 # SKIP no moon"
is "each is in the list of what was skipped" "$(cut -d: -f1 "$work/skipped" | paste -sd' ')" "strict strict half half free other"
echo "1..$n"
exit ${bad:-0}
