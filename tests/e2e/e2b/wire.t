#!/bin/sh
# E2B's wire, route by route, as the SDKs of all ages speak it and beyond what today's ask for. timeout: 300
cd "$(dirname "$0")" || exit 1
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3 on this machine"; exit 0; }
exec ../with-server python3 wire.py
