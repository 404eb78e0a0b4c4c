#!/bin/sh
# The daemon is killed in the middle; programs go on and the official SDK finds them again.
cd "$(dirname "$0")" || exit 1
command -v node >/dev/null || { echo "1..0 # SKIP no node on this machine"; exit 0; }
[ -d ../node_modules/e2b ] || { echo "1..0 # SKIP npm's e2b isn't installed (tools/deps test)"; exit 0; }
exec ../with-server node --test-reporter=tap restart.mjs
