#!/bin/bash
# tools/deps on a machine that lacks everything, with an apt-get and a sudo that only write down what they are asked: as root, with sudo,
# without either; that it says what it does, and that it leaves alone what is there.
top=${BUREAU_TOP:-$(cd "$(dirname "$0")/../.." && pwd)}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin" "$dir/tools"
cp "$top/tools/deps" "$dir/tools/"
for p in sh env dirname sed grep cut head cat touch cmp ls chmod; do ln -s "$(command -v $p)" "$dir/bin/$p"; done
printf '#!/bin/sh\necho "$UID_HERE"\n' >"$dir/bin/id"
# installs: makes the programs of the packages in the group "run"
cat >"$dir/bin/apt-get" <<'X'
#!/bin/sh
echo "apt-get $* by ${BY:-myself}" >>"$LOG"
case "$*" in *" update") touch "$DIR/lists"; exit 0 ;; esac
[ -z "$NO_LISTS" ] || [ -e "$DIR/lists" ] || exit 100
[ -z "$BROKEN" ] || exit 0
for p in newuidmap mmdebstrap openssl; do printf '#!/bin/sh\n' >"$DIR/bin/$p"; chmod +x "$DIR/bin/$p"; done
X
printf '#!/bin/sh\necho "sudo $*" >>"$LOG"\nBY=sudo exec "$@"\n' >"$dir/sudo"
chmod +x "$dir"/bin/id "$dir/bin/apt-get" "$dir/sudo"
sed -i 's,^PATH=.*,:,' "$dir/tools/deps"       # /usr/sbin would have what is to be missing
n=0 bad=0
ok() { # ok STATUS NAME
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$dir/out" "$dir/log"; bad=1; fi
}
deps() { # deps UID [NAME=VALUE...] -- ARGS; into out, log and status
	local uid=$1 env=()
	shift
	while [ "$1" != -- ]; do env+=("$1"); shift; done
	shift
	: >"$dir/log"
	env -i PATH="$dir/bin" DIR="$dir" LOG="$dir/log" UID_HERE="$uid" "${env[@]}" "$dir/tools/deps" "$@" >"$dir/out" 2>&1
	status=$?
}
forget() { rm -f "$dir"/bin/{newuidmap,mmdebstrap,openssl} "$dir/lists"; }

deps 0 -- --check run
[ $status = 1 ] && [ "$(grep -c '^missing: Debian package' "$dir/out")" = 3 ] && [ ! -s "$dir/log" ]; ok $? "--check says what is missing, and installs nothing"
deps 0 -- run
[ $status = 0 ] && grep -q '^deps: installing uidmap mmdebstrap openssl$' "$dir/out" && grep -qE '^apt-get .*install uidmap mmdebstrap openssl by myself$' "$dir/log"; ok $? "root: it says what it installs, and does"
deps 0 -- run
[ $status = 0 ] && [ ! -s "$dir/out" ] && [ ! -s "$dir/log" ]; ok $? "what is there is left alone"
deps 0 -- --check run
[ $status = 0 ] && grep -qx 'nothing is missing' "$dir/out"; ok $? "and nothing is missing"
forget
deps 0 NO_LISTS=1 -- run
[ $status = 0 ] && [ "$(grep -c update "$dir/log")" = 1 ]; ok $? "no lists of packages yet: they are fetched, once"
forget
deps 1000 -- run
[ $status = 1 ] && grep -q '^deps: needs root for: .*apt-get' "$dir/out" && [ ! -s "$dir/log" ]; ok $? "neither root nor sudo: it says what it would need root for"
cp "$dir/sudo" "$dir/bin/sudo"
deps 1000 -- run
[ $status = 0 ] && grep -q '^sudo env DEBIAN_FRONTEND=noninteractive apt-get .*install' "$dir/log" && grep -q 'by sudo$' "$dir/log"; ok $? "with sudo: apt-get by sudo, and nothing else"
[ "$(grep -c '^sudo' "$dir/log")" = "$(grep -c '^apt-get' "$dir/log")" ]; ok $? "each of it said"
forget
deps 0 BROKEN=1 -- run
[ $status = 1 ] && grep -q '^deps: still missing after installing: uidmap mmdebstrap openssl' "$dir/out"; ok $? "what isn't there afterwards is a failure that names it"
rm "$dir/bin/apt-get"
deps 0 -- run
[ $status = 1 ] && grep -q "this isn't Debian.*uidmap" "$dir/out"; ok $? "another system: what to install there"
deps 0 -- nonsense
[ $status = 2 ] && grep -q -- '--strict' "$dir/out"; ok $? "an unknown word: what there is"
echo "1..$n"
exit $bad
