#!/bin/sh
# SPDX-License-Identifier: MIT
# Behind a job array of tools/ci/slurm.sh: OUT/shard-*.json into whole.json, whole.xml and status.
set -u
out=$1 status=0
"${PLUMB:-plumb}" merge "$out"/shard-*.json --json "$out/whole.json" --junit "$out/whole.xml" || status=$?
echo "$status" >"$out/status.tmp" && mv "$out/status.tmp" "$out/status"
exit "$status"
