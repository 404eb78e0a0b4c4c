#!/bin/sh
# What a client may cost: memory, descriptors, and what happens to bytes that aren't right. timeout: 600
cd "$(dirname "$0")" || exit 1
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3 on this machine"; exit 0; }
exec ../with-server python3 limits.py
