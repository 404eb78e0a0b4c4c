#!/bin/bash
# What `make install DESTDIR=...` puts somewhere is a whole Bureau that works from there.
top=${BUREAU_TOP:-$(cd "$(dirname "$0")/../.." && pwd)}
build=${BUREAU_BUILD:-$top/build}
[ ! -e "$build/sanitize-probe" ] || { echo "1..0 # SKIP a sanitized build isn't for installing"; exit 0; }
dir=$(mktemp -d)
chmod 755 "$dir"
trap 'rm -rf "$dir"' EXIT
export BUREAU_STATE=$dir/state
n=0 bad=0
ok() { # ok STATUS NAME
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; sed 's/^/# /' "$dir/out"; bad=1; fi
}
DESTDIR=$dir/root meson install -C "$build" --no-rebuild >"$dir/out" 2>&1; ok $? "installed below DESTDIR"
bureau=$(find "$dir/root" -name bureau -path '*/bin/*')
[ -x "$bureau" ]; ok $? "bureau is in bin"
moved=$dir/moved
mv "$(dirname "$(dirname "$bureau")")" "$moved"
"$moved/bin/bureau" run -- echo inside >"$dir/out" 2>&1 && grep -qx inside "$dir/out"; ok $? "it runs a sandbox with its own programs"
"$moved/bin/bureau" template list >"$dir/out" 2>&1; ok $? "and lists templates"
"$moved/bin/bureau" --version >"$dir/out" 2>&1; ok $? "and tells its version"
[ -s "$moved/share/man/man1/bureau.1" ] && [ -s "$moved/share/man/man5/bureau-job.5" ]; ok $? "its manual pages are where man looks"
serve() {
	"$moved/bin/bureau" serve --detach --listen 127.0.0.1:0 --pool 0 || return
	id=$("$moved/bin/bureau" sandbox create --template host --net none) && "$moved/bin/bureau" sandbox exec "$id" -- echo served
	"$moved/bin/bureau" stop
}
serve >"$dir/out" 2>&1; [ $? = 0 ] && grep -qx served "$dir/out"; ok $? "a server of it serves, and stops"
echo "1..$n"
exit $bad
