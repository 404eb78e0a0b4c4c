#!/bin/sh
# timeout: 300
# crash.t by a plain user with a range of ids: a restarted keeper must find the user namespace of the one before, or it can't end what it adopted.
here=$(cd "$(dirname "$0")" && pwd)
[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP crash.t is run by a plain user already"; exit 0; }
grep -qs '^bureau-test:' /etc/subuid && [ -x /usr/bin/newuidmap ] ||
	{ echo "1..0 # SKIP no user bureau-test with a range in /etc/subuid (useradd -m bureau-test)"; exit 0; }
exec setpriv --reuid="$(id -u bureau-test)" --regid="$(id -g bureau-test)" --init-groups env HOME=/nonexistent PYTHONDONTWRITEBYTECODE=1 python3 "$here/crash.t"
