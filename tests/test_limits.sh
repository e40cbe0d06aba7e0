#!/bin/sh
# SPDX-License-Identifier: MIT
# What the system grants or refuses: every command comes to an end, with a status and a line. usage: test_limits.sh SOURCE_DIR BUILD_DIR
set -u
source=$1 plumb=$2/tools/plumb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tiny="$source/golden/tiny/tiny.h5 --checkpoint $source/golden/tiny/checkpoint"
wrong=0 runs=0

# expect STATUS WORDS LIMIT ARGUMENT...: under ulimit LIMIT; WORDS have to be in what is said
expect() {
	status=$1 words=$2 limit=$3
	shift 3
	runs=$((runs + 1))
	(
		exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- # of a ctest that started this
		exec timeout 60 sh -c 'ulimit '"$limit"'; exec "$0" "$@"' "$plumb" "$@"
	) >"$work/said" 2>&1
	got=$?
	if [ $got -ne "$status" ] || ! grep -q -e "$words" "$work/said"; then
		echo "test_limits: ulimit $limit, plumb $*: exit status $got, expected $status and '$words': $(head -n 3 "$work/said")"
		wrong=$((wrong + 1))
	fi
}

# Address space. Sanitizers take more than any limit leaves.
if ! grep -q __asan_init "$plumb"; then
	expect 0 "plumb [0-9]" "-v 120000" --version
	expect 0 hc_inject "-v 120000" list ops
	expect 2 "out of memory: OpenBLAS takes 128 MiB" "-v 120000" check $tiny
	expect 0 "^pass" "-v 1000000" check $tiny --quiet --threads 2
	expect 0 "^pass" "-v 1000000" test hc_inject --jobs 1
fi

# Descriptors: a few are enough, too few is an error.
expect 2 "plumb check: " "-n 4" check $tiny
expect 0 "^pass" "-n 8" check $tiny --quiet

# More threads than there are.
OMP_NUM_THREADS=100000
export OMP_NUM_THREADS
expect 0 "^pass" "-c 0" check $tiny --quiet --view local
unset OMP_NUM_THREADS

# A part without a case is none that passes.
expect 2 "no case: --shard 4000.4096" "-c 0" test hc_inject --shard 4000/4096

echo "test_limits: $runs runs, $wrong wrong"
[ $wrong -eq 0 ] && [ $runs -gt 0 ]
