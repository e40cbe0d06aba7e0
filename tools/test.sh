#!/bin/sh
# SPDX-License-Identifier: MIT
# All tests from nothing: install what is missing, build with and without sanitizers, run everything. CI runs this.
# PLUMB_TEST_PRESETS chooses the builds (default "release dev"). The last line counts; exit status 0 only if nothing failed.
set -eu
cd "$(dirname "$0")/.."

presets=${PLUMB_TEST_PRESETS:-"release dev"}
case " $presets " in
*" clang "*) sh tools/packages.sh clang libomp-dev ;;
*) sh tools/packages.sh ;;
esac

log=$(mktemp) results=$(mktemp)
trap 'rm -f "$log" "$results"' EXIT
passed=0 failed=0 skipped=0

# A leak report of a library that a forked Check test leaves behind is not ours to fix; leaks of our own are found by the
# tests that run without forking.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
# As many tests as cores run at once, each with as many threads: one that waits must not spin on the other's core.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}

# count PRESET STATUS: "PASSED FAILED SKIPPED" of the results that a ctest which ended with STATUS left; on stderr whatever is odd.
# Everything that is neither passed nor skipped has failed. A test that cannot run is skipped by name; which may be is
# written down, and one that is not has failed, so that none goes quiet. A ctest that fails without naming a test (there
# are none, or it died) is one failure too. The results are read, not the log: what tests print cannot be taken for one.
count() {
	awk -v preset="$1" -v status="$2" '
		function failure(what) { failed++; print "test.sh: " preset ": " what >"/dev/stderr" }
		FILENAME == "tests/may_skip.txt" { may[$1] = 1; next }
		/^\ttests="[0-9]+"/ { split($0, part, "\""); total = part[2] }
		/^\t<testcase name=/ {
			seen++
			split($0, part, "\"")
			name = part[2]
			if (/ status="run">$/)
				passed++
			else if (!/ status="notrun">$/)
				failed++
			next
		}
		/^\t\t<skipped message=/ { # why a test did not run
			if (!/"SKIP_RETURN_CODE=77"/)
				failed++
			else if (name in may)
				skipped++
			else
				failure(name " was skipped and is not in tests/may_skip.txt")
		}
		END {
			if (seen != total || passed + failed + skipped != total || total == 0)
				failure("results of " passed + failed + skipped " tests, ctest says " total + 0)
			else if (status != 0 && !failed)
				failure("ctest ended with " status)
			print passed + 0, failed + 0, skipped + 0
		}' tests/may_skip.txt "$results"
}

for preset in $presets; do
	echo "== $preset: build"
	if ! { cmake --preset "$preset" && cmake --build --preset "$preset"; } >"$log" 2>&1; then
		tail -n 60 "$log"
		echo "test.sh: preset $preset does not build"
		failed=$((failed + 1))
		continue
	fi
	echo "== $preset: tests"
	status=0
	: >"$results"
	ctest --preset "$preset" -j "$(nproc)" --output-junit "$results" >"$log" 2>&1 || status=$?
	# the list of single tests is long; the failures come with their output
	grep -v -E '^ *(Start|Test project)' "$log" || true
	counts=$(count "$preset" $status)
	set -- $counts
	passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
done

if [ "$passed" -eq 0 ] && [ "$failed" -eq 0 ]; then
	echo "test.sh: no test has run"
	failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
