#!/bin/sh
# Pure cgroup v2 and the kernel of Debian bookworm. The first run makes its disks.
# timeout: 420
exec "$(dirname "$0")/relay" bookworm
