#!/bin/sh
# SPDX-License-Identifier: MIT
# A resource specification for ctest: the GPUs of this machine, one test at a time on each.
# usage: resource-spec.sh [GPUS] >gpus.json; ctest -L gpu -j 8 --resource-spec-file gpus.json
set -eu
gpus=${1:-$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)}
case $gpus in
'' | *[!0-9]* | 0)
	echo "resource-spec.sh: '$gpus' GPUs, expected 1 or more" >&2
	exit 2
	;;
esac
printf '{"version": {"major": 1, "minor": 0}, "local": [{"gpus": ['
i=0
while [ "$i" -lt "$gpus" ]; do
	[ "$i" -eq 0 ] || printf ', '
	printf '{"id": "%d", "slots": 1}' "$i"
	i=$((i + 1))
done
printf ']}]}\n'
