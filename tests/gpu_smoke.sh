#!/bin/sh
# SPDX-License-Identifier: MIT
# On a machine with a GPU: build the cuda preset and run what needs one. A skipped test is a failure here: whoever calls
# this says that there is a GPU. Extra arguments go to ctest.
set -eu
cd "$(dirname "$0")/.."
cmake --preset cuda
cmake --build --preset cuda
log=$(mktemp)
trap 'rm -f "$log"' EXIT
ctest --preset cuda -L 'gpu|cuda' --no-tests=error --output-on-failure "$@" >"$log" 2>&1 || status=$?
cat "$log"
if grep -q 'Skipped' "$log"; then
	echo "gpu_smoke: tests were skipped, expected all to run" >&2
	exit 1
fi
exit "${status:-0}"
