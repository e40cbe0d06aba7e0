#!/bin/sh
# SPDX-License-Identifier: MIT
# A long plumb command as a Slurm job array of N tasks, and a job behind it that joins the results, whatever became of the tasks.
# usage: slurm.sh N OUT COMMAND [OPERAND OPTION...]       e.g. slurm.sh 16 out check mine.h5 --checkpoint DIR --set opt
# OUT, on a file system that all nodes see, gets shard-I.json, whole.json, whole.xml (JUnit) and status, which holds the exit status of
# the whole: wait for it, or submit with SBATCH_WAIT=1 and read it. SBATCH_OPTIONS: of the array, e.g. "--gres=gpu:1 -p gpu".
set -eu
[ $# -ge 3 ] || { sed -n '3,6s/^# //p' "$0"; exit 2; }
n=$1 out=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
rm -f "$out"/shard-*.json "$out/status" # results of an earlier run are no results of this one

# shellcheck disable=SC2086 # options are words
array=$(sbatch --parsable --array="1-$n" ${SBATCH_OPTIONS:-} "$here/slurm-shard.sh" "$out" "$@")
array=${array%%;*} # "id;cluster"
sbatch --parsable --dependency="afterany:$array" --job-name=plumb-merge --output="$out/merge.log" "$here/slurm-merge.sh" "$out"
