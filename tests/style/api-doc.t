#!/bin/sh
# docs/API.md is what tools/gen-ops makes of schema/ops.
cd "$(dirname "$0")/../.." || exit 1
echo 1..1
if tools/gen-ops --doc - schema/ops | cmp -s - docs/API.md; then
	echo "ok 1 - docs/API.md is fresh"
else
	echo "not ok 1 - docs/API.md is stale: run tools/gen-ops --doc docs/API.md schema/ops"
fi
