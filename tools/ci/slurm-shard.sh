#!/bin/sh
# SPDX-License-Identifier: MIT
#SBATCH --job-name=plumb
#SBATCH --cpus-per-task=8
#SBATCH --time=02:00:00
#SBATCH --output=plumb-%A-%a.log
# One task of a Slurm job array: shard SLURM_ARRAY_TASK_ID of SLURM_ARRAY_TASK_COUNT. tools/ci/slurm.sh submits it; by hand:
#   sbatch --array=1-16 slurm-shard.sh OUT check mine.h5 --checkpoint DIR --set opt
# Add --gres=gpu:1 (and --device cuda) for GPUs: Slurm then shows a task its own GPU only.
set -eu
out=$1
shift
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"
exec "${PLUMB:-plumb}" "$@" --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" \
	--json "$out/shard-$SLURM_ARRAY_TASK_ID.json" --verbose
