#!/bin/sh
# SPDX-License-Identifier: MIT
# Ways in which a suite goes green without having looked, that no other test holds (docs/silent-green.md has them all).
# usage: test_silent_green.sh SOURCE_DIR BUILD_DIR
set -u
source=$1 build=$2
plumb=$build/tools/plumb
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cases=0 wrong=0
tiny="$source/golden/tiny/tiny.h5 --checkpoint $source/golden/tiny/checkpoint"

fault() {
	echo "test_silent_green: $1"
	wrong=$((wrong + 1))
}

# A filter that matches nothing: every suite, whatever its main does.
suites=0
for program in "$build"/tests/test_*; do
	[ -f "$program" ] && [ -x "$program" ] && grep -q srunner_run_all "$program" || continue
	CK_RUN_SUITE=no_such_suite timeout 60 "$program" >"$work/said" 2>&1 && fault "$program: no test ran, exit status 0"
	suites=$((suites + 1))
done
[ "$suites" -ge 50 ] || fault "$suites suites seen, expected 50 or more"

# Tests left out of the build: each file is in the list, and no option takes tests or the reference away.
for file in "$source"/tests/test_*; do
	name=$(basename "$file")
	grep -qF "${name%.*}" "$source/tests/CMakeLists.txt" || fault "tests/$name is in no list of tests/CMakeLists.txt"
done
options=$(sed -n 's/^option(\([A-Z_]*\) .*/\1/p' "$source/CMakeLists.txt" | sort | tr '\n' ' ')
[ "$options" = "PLUMB_CUDA PLUMB_FUZZ PLUMB_SANITIZE " ] ||
	fault "CMakeLists.txt has the options $options: say here what a new one leaves out, and who tests it"

# Memory: what a case needs is known first, and too much is an error, not a skip.
"$plumb" test --case "lm_head V=2000000000 D=100000 T=1 seed=1" >"$work/said" 2>&1
status=$?
if [ $status -ne 2 ] || ! grep -q GiB "$work/said"; then
	fault "a case of a million GiB: exit status $status, $(cat "$work/said")"
fi

# A file that is asked for and not there, a device that is none, a count that is none.
missing() { # missing STATUS ARGUMENT...
	expected=$1
	shift
	"$plumb" "$@" >"$work/said" 2>&1
	status=$?
	cases=$((cases + 1))
	[ $status -eq "$expected" ] || fault "plumb $*: exit status $status, expected $expected: $(tail -n 1 "$work/said")"
}
missing 2 check "$work/none.h5" --checkpoint "$source/golden/tiny/checkpoint"
missing 2 check "$source/golden/tiny/tiny.h5" --checkpoint "$work/none"
missing 2 check $tiny --tolerances "$work/none.json"
missing 2 check $tiny --op "attn_gate=$work/none.so"
missing 2 replay "$work/none.h5"
missing 2 run --expect "$work/none.json"
missing 2 bench --compare "$work/none.json"
missing 2 golden verify "$work/none.h5" --checkpoint "$source/golden/tiny/checkpoint"
missing 2 check $tiny --view local --layers 0 --op "hc_inject@3=$build/tests/user/inject.so"
missing 2 replay "$source/golden/cases/moe_router.h5" --op "moe_router@3=$build/tests/user/router.so"
missing 0 replay "$source/golden/cases/argmax.h5" --op "argmax@out=$build/tests/user/argmax.so"
missing 2 test attn_gate --op "hc_inject=$build/tests/user/inject.so"
missing 2 check $tiny --op "hc_inject=$build/tests/user/inject.so" --op hc_inject=ref
missing 2 test no_such_op
missing 2 test --class no_such_class
for device in cpu CUDA ''; do
	PLUMB_TEST_DEVICE=$device timeout 60 "$build/tests/test_sets" >"$work/said" 2>&1
	[ $? -eq 1 ] || fault "PLUMB_TEST_DEVICE='$device' test_sets passes"
done

# Nothing compared is no pass; and text, exit status, JSON and JUnit have one verdict.
verdict() { # verdict STATUS ARGUMENT...: of plumb check
	expected=$1
	shift
	"$plumb" check "$@" --json "$work/report.json" --junit "$work/report.xml" >"$work/said" 2>&1
	status=$?
	cases=$((cases + 1))
	[ $status -eq "$expected" ] || fault "plumb check $*: exit status $status, expected $expected: $(cat "$work/said")"
	if [ $expected -eq 0 ]; then
		wanted=true unwanted=FAIL
	else
		wanted=false unwanted='^pass'
		grep -q FAIL "$work/said" || fault "plumb check $*: fails, and nowhere says so"
		grep -q '<failure' "$work/report.xml" || fault "plumb check $*: fails, JUnit has no failure"
	fi
	grep -q "$unwanted" "$work/said" && fault "plumb check $*: exit status $status, but it says $unwanted"
	sed 's/"views".*//' "$work/report.json" | tr -d ' \t\n' | grep -q "\"pass\":$wanted" ||
		fault "plumb check $*: exit status $status, JSON does not say pass: $wanted"
}
cat >"$work/exact.json" <<'END'
{"version": 1, "rules": [
  {"view": "local", "policy": "f32", "exact": true, "reason": "what nobody meets"},
  {"view": "local", "policy": "bf16", "exact": true, "reason": "what nobody meets"},
  {"view": "propagated", "policy": "f32", "exact": true, "reason": "what nobody meets"},
  {"view": "propagated", "policy": "bf16", "exact": true, "reason": "what nobody meets"}]}
END
"$plumb" golden make "$work/few.h5" --checkpoint "$source/golden/tiny/checkpoint" --policy f32 --tokens 1,2,3 --steps 2 \
	--tensors greedy >"$work/said" 2>&1 || fault "golden make: $(cat "$work/said")"
verdict 0 $tiny --view local
verdict 1 $tiny --view local --tolerances "$work/exact.json"
verdict 1 "$work/few.h5" --checkpoint "$source/golden/tiny/checkpoint" --view local

# The reference stands on its own: nothing of the kernels or of their host side is linked into it, and the oracle has neither
# the twin's functions nor the arithmetic that the kernels share.
objects=0
for object in "$build"/CMakeFiles/plumbline.dir/ref/*.c.o "$build"/CMakeFiles/plumbline.dir/ref/twin/*.c.o; do
	nm -u "$object" | grep -E ' (plumb_(simt|race|cuda|device|mirror|opt)_|[a-z_]*_opt$)' >"$work/said" &&
		fault "$object calls $(tr -s ' \n' ' ' <"$work/said")"
	objects=$((objects + 1))
done
[ "$objects" -ge 20 ] || fault "$objects objects of the reference seen, expected 20 or more"
grep -nE '#include "(core/math32\.h|core/order\.h|kernels/|opt/)' $(ls "$source"/ref/*.c | grep -v bound) >"$work/said" &&
	fault "the oracle includes $(cat "$work/said")"

echo "test_silent_green: $suites suites, $objects objects, $cases runs of plumb; $wrong wrong"
[ "$wrong" -eq 0 ]
