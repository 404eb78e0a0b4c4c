#!/bin/sh
# The same below a domain with wildcard TLS: E2B_DOMAIN. timeout: 600
cd "$(dirname "$0")" || exit 1
command -v node >/dev/null || { echo "1..0 # SKIP no node on this machine"; exit 0; }
[ -d ../node_modules/e2b ] || { echo "1..0 # SKIP npm's e2b isn't installed (tools/deps test)"; exit 0; }
exec ../with-server --tls node --test-reporter=tap suite.mjs
