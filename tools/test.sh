#!/bin/sh
# SPDX-License-Identifier: MIT
# All tests from nothing: install what is missing, build with and without sanitizers, run everything. CI runs this.
# PLUMB_TEST_PRESETS chooses the builds (default "release dev").
set -eu
cd "$(dirname "$0")/.."
sh tools/packages.sh

presets=${PLUMB_TEST_PRESETS:-"release dev"}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0 skipped=0 bad=""

# A leak report of a library that a forked Check test leaves behind is not ours to fix; leaks of our own are found by the
# tests that run without forking.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

for preset in $presets; do
	echo "== $preset: build"
	cmake --preset "$preset" >"$log" 2>&1 && cmake --build --preset "$preset" >>"$log" 2>&1 || {
		tail -n 60 "$log"
		echo "test.sh: preset $preset does not build"
		exit 2
	}
	echo "== $preset: tests"
	ctest --preset "$preset" -j "$(nproc)" >"$log" 2>&1 || bad="$bad $preset"
	# the list of single tests is long; the failures come with their output
	grep -v -E '^ *(Start|Test project)' "$log"
	p=$(grep -c ' Passed ' "$log" || true)
	s=$(grep -c '\*\*\*Skipped' "$log" || true)
	f=$(grep -E -c '\*\*\*(Failed|Timeout|Exception|Not Run)' "$log" || true)
	passed=$((passed + p)) skipped=$((skipped + s)) failed=$((failed + f))
	# a test that cannot run is skipped by name; which may be is written down, so that no other goes quiet
	grep '\*\*\*Skipped' "$log" | sed -E 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+).*/\1/' | sort -u | while read -r name; do
		if ! grep -qx "$name" tests/may_skip.txt; then
			echo "test.sh: $name was skipped and is not in tests/may_skip.txt"
			exit 1
		fi
	done || bad="$bad $preset(skips)"
done

if [ "$passed" -eq 0 ]; then
	echo "test.sh: no test has run"
	failed=$((failed + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ -z "$bad" ]
