#!/bin/sh
# SPDX-License-Identifier: MIT
# A long plumb command in N shards on this machine, under GNU parallel (Debian, Ubuntu: apt-get install parallel).
# usage: parallel.sh N OUT COMMAND [OPERAND OPTION...]    e.g. parallel.sh 8 out check mine.h5 --checkpoint DIR --set opt
# OUT gets shard-I.json and shard-I.log of each, and whole.json, whole.xml (JUnit). Exit status of the whole: that of plumb merge, to
# which a shard that was lost is an error. JOBS: how many at once (default: as many as cores). PLUMB: the program (default: plumb).
set -u
[ $# -ge 3 ] || { sed -n '3,6s/^# //p' "$0"; exit 2; }
n=$1 out=$2
shift 2
PLUMB=${PLUMB:-plumb}
mkdir -p "$out" && rm -f "$out"/shard-*.json || exit 2 # results of an earlier run are no results of this one

# a shard's threads share the machine with the others'
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=passive
export OMP_NUM_THREADS OMP_WAIT_POLICY
seq "$n" | parallel --quote --jobs "${JOBS:-100%}" --results "$out/shard-{}.log" \
	"$PLUMB" "$@" --shard "{}/$n" --json "$out/shard-{}.json" --quiet >"$out/shards.log" 2>&1
"$PLUMB" merge "$out"/shard-*.json --json "$out/whole.json" --junit "$out/whole.xml"
