#!/bin/sh
# Pure cgroup v2 and the kernel of Debian trixie. The first run makes its disks.
# timeout: 420
exec "$(dirname "$0")/relay" trixie
