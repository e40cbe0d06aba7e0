#!/bin/sh
# SPDX-License-Identifier: MIT
# Everything that needs a GPU, from a finished build of the cuda preset: digests of twin, simt and cuda, the tests on the
# device, and compute-sanitizer over golden/tiny and over a model of the release's widths. Prints a line a step and a
# verdict. usage: tools/gpu.sh [BUILD_DIR]
set -u
cd "$(dirname "$0")/.."
build=${1:-build/cuda}
plumb=$build/tools/plumb
golden="golden/tiny/tiny.h5 --checkpoint golden/tiny/checkpoint"
passed=0 failed=0 skipped=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

step() { # step NAME COMMAND...
	name=$1
	shift
	start=$(date +%s)
	"$@" >"$log" 2>&1
	rc=$?
	spent=$(($(date +%s) - start))
	case $rc in
	0) passed=$((passed + 1)) verdict=pass ;;
	77) skipped=$((skipped + 1)) verdict=skipped ;;
	*) failed=$((failed + 1)) verdict="FAIL (exit status $rc)" ;;
	esac
	printf '%-44s %s, %d s\n' "$name" "$verdict" "$spent"
	[ "$rc" -eq 0 ] || tail -n 25 "$log"
}

digest() { # the digest line of a check; its exit status
	"$plumb" check $golden --quiet --digest "$@" | awk '/^digest/ { print $2 }'
}

same_digests() { # same_digests POLICY [OPTION...]
	policy=$1
	shift
	a=$(digest --policy $policy "$@" --mode twin) b=$(digest --policy $policy "$@" --set opt --device simt)
	c=$(digest --policy $policy "$@" --set opt --device cuda)
	d=$(digest --policy $policy "$@" --set opt --device cuda --page-seed 5)
	set -- $policy
	printf '  %s: twin %s\n  %s: simt %s\n  %s: cuda %s\n  %s: cuda %s (again, other pages)\n' \
		"$1" "$a" "$1" "$b" "$1" "$c" "$1" "$d"
	[ -n "$a" ] && [ "$a" = "$b" ] && [ "$a" = "$c" ] && [ "$a" = "$d" ]
}

same_traces() { # golden files by the twin and by the GPU hold the same bits; the GPU's can be made again
	made=$(mktemp -d)
	"$plumb" golden make "$made/twin.h5" --checkpoint golden/tiny/checkpoint --prompt-from golden/tiny/tiny.h5 --ties lower --mode twin &&
		"$plumb" golden make "$made/cuda.h5" --checkpoint golden/tiny/checkpoint --prompt-from golden/tiny/tiny.h5 --ties lower \
			--set opt --device cuda --save-seconds 0 &&
		"$plumb" golden diff "$made/twin.h5" "$made/cuda.h5" &&
		"$plumb" golden verify "$made/cuda.h5" --checkpoint golden/tiny/checkpoint
	rc=$?
	rm -rf "$made"
	return $rc
}

command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for policy in f32 bf16; do
	step "digests, policy $policy" same_digests $policy
	cat "$log"
	step "digests, policy $policy, kv fp8, state f16" same_digests $policy --kv-format fp8 --state-format f16
	cat "$log"
	step "check cuda against transformers, $policy" "$plumb" check $golden --set opt --device cuda --policy $policy
	step "guarded, $policy" "$plumb" check $golden --set opt --device cuda --policy $policy --guard --view local
done
step "golden files by cuda" same_traces
step "the cases that ship, on the GPU" "$plumb" replay golden/cases/*.h5 --set opt --device cuda --repeat 3
step "plumb test on the GPU, 2000 cases" "$plumb" test --device cuda --cases 2000
step "bisect: opt on the GPU against the twin" "$plumb" bisect $golden --set opt --device cuda --steps 2
export PLUMB_TEST_DEVICE=cuda
for test in test_sets test_profile_runs test_ops_cuda test_formats_cuda test_format_rows_cuda test_format_shapes_cuda test_state_formats_cuda \
	test_graph_cuda test_simt_cuda test_synthetic_cuda test_user_gpu test_qsa test_attention; do
	step "$test on the GPU" "$build/tests/$test"
	grep -E '^[0-9]+%' "$log" || true
done
step "bench: the check, then small sizes" "$plumb" bench --synthetic small --profile served --context 1000 --device cuda
step "drift of the GDN state on the GPU, 4096 tokens" "$plumb" drift --steps 4096 --set opt --device cuda
if command -v compute-sanitizer >/dev/null 2>&1; then
	for tool in memcheck racecheck initcheck synccheck; do
		step "compute-sanitizer $tool, tiny" compute-sanitizer --tool $tool --error-exitcode 9 \
			"$plumb" check $golden --set opt --device cuda --view local --quiet
		for profile in served least-bytes dense-fp8 served-gdn-fp8; do # the kernels of the release's widths, as one graph
			step "compute-sanitizer $tool, widths, $profile" compute-sanitizer --tool $tool --error-exitcode 9 \
				"$plumb" run --synthetic widths --profile $profile --policy bf16 --tokens 1,2,3 --steps 3 --context 3000 \
				--set opt --device cuda
		done
	done
else
	echo "compute-sanitizer is not on the PATH: not run"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
