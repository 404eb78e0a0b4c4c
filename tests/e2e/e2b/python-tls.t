#!/bin/sh
# The official Python SDK, sync and async, below a domain with wildcard TLS. timeout: 600
cd "$(dirname "$0")" || exit 1
py=$PWD/../../../.venv/bin/python
[ -x "$py" ] || py=python3
"$py" -c 'import e2b' 2>/dev/null || { echo "1..0 # SKIP PyPI's e2b isn't installed (tools/deps test)"; exit 0; }
exec ../with-server --tls "$py" suite.py
