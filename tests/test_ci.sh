#!/bin/sh
# SPDX-License-Identifier: MIT
# The recipes of tools/ci and cmake/PlumbTest.cmake, done: an engine's repository with a right and a wrong kernel against an installed
# Plumb, its hook, its shards under GNU parallel, in a Slurm job array (a stub of sbatch runs the tasks) and as the jobs of the
# GitHub workflow, whose own lines are taken from the YAML. usage: test_ci.sh SOURCE_DIR BUILD_DIR
set -eu
source=$(cd "$1" && pwd) build=$(cd "$2" && pwd)
work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT
unset CMAKE_PREFIX_PATH PLUMB JOBS BUILD KERNELS COLUMNS SBATCH_OPTIONS || true
: >"$work/said"
fail() {
	echo "test_ci: $1"
	cat "$work/said"
	exit 1
}
run() { # run STATUS COMMAND...: what it says is in $work/said
	expected=$1 status=0
	shift
	"$@" >"$work/said" 2>&1 || status=$?
	[ "$status" -eq "$expected" ] || fail "$*: exit status $status, expected $expected"
}
said() { # said WORDS...: the last command said them
	for words; do grep -qF -e "$words" "$work/said" || fail "nothing says '$words'"; done
}

run 0 cmake --install "$build" --prefix "$work/prefix"
plumb=$work/prefix/bin/plumb ci=$work/prefix/share/plumbline/ci
[ -x "$ci/parallel.sh" ] && [ -x "$ci/pre-commit" ] || fail "the recipes are not installed"
for page in man/man1/plumb.1 bash-completion/completions/plumb zsh/site-functions/_plumb fish/vendor_completions.d/plumb.fish; do
	# a tree in which only the program was built has none of them
	[ ! -e "$build/plumb.1" ] || [ -s "$work/prefix/share/$page" ] || fail "share/$page is not installed"
done

# --- an engine's repository ---
engine=$work/engine
mkdir "$engine"
cp "$source/tools/template/gate.c" "$engine/gate.c"
for name in router fused; do
	sed 's,"core/plumb_kernel.h",<plumb/kernel.h>,' "$source/tests/user/$name.c" >"$engine/$name.c"
done
cat >"$engine/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(engine LANGUAGES C)
list(APPEND CMAKE_PREFIX_PATH $work/prefix)
find_package(plumbline REQUIRED)
enable_testing()
foreach(kind right wrong)
  add_library(gate_\${kind} MODULE EXCLUDE_FROM_ALL gate.c)
  target_link_libraries(gate_\${kind} PRIVATE plumbline::kernel m)
  set_target_properties(gate_\${kind} PROPERTIES PREFIX "")
endforeach()
target_compile_definitions(gate_wrong PRIVATE WRONG)
foreach(name router fused)
  add_library(\${name} MODULE EXCLUDE_FROM_ALL \${name}.c)
  target_link_libraries(\${name} PRIVATE plumbline::kernel m)
endforeach()
plumb_add_kernel_test(fused hc_norm_down+hc_up_mix fused VIEW local LABELS tail)
plumb_add_kernel_test(fused_hostile hc_norm_down+hc_up_mix fused HOSTILE LABELS tail)
plumb_add_kernel_test(router moe_router router VIEW local LABELS tail)
plumb_add_kernel_test(router_hostile moe_router router HOSTILE LABELS tail)
plumb_add_kernel_test(gate attn_gate gate_right VIEW local LAYERS 3 LABELS engine JUNIT junit)
plumb_add_kernel_test(gate_bf16 all gate_right VIEW local POLICY bf16)
plumb_add_kernel_test(gate_gpu attn_gate gate_right VIEW local DEVICE cuda)
if(WRONG)
  plumb_add_kernel_test(gate_wrong attn_gate gate_wrong VIEW local LAYERS 3)
endif()
END
run 0 cmake -S "$engine" -B "$engine/build"
run 0 ctest --test-dir "$engine/build" -L simt --no-tests=error # nothing was built before: the fixture does
said "gate_right.build" "100% tests passed"
grep -q '<testcase .*name="layer03/attention/gated"' "$engine/build/junit/gate.xml" || fail "no JUnit report of the kernel"
run 0 ctest --test-dir "$engine/build" -N -FA . -L engine
said "gate" "Total Tests: 1"
run 0 ctest --test-dir "$engine/build" -N -FA . -L '^attn_gate$'
said "Total Tests: 2"
if ! command -v nvidia-smi >/dev/null; then # a kernel of the host is no kernel of a GPU either way; without one it is skipped
	run 0 ctest --test-dir "$engine/build" -L gpu
	said "gate_gpu" "Skipped"
fi
# a tail that is left out shows in no golden file here, and in hostile inputs at once; of several ops in one on a model of odd sizes
export ROUTER_FAULT=tail FUSED_FAULT=tail
run 8 ctest --test-dir "$engine/build" -L tail --output-on-failure
said "router_hostile (Failed)" "fused_hostile (Failed)" "2 tests failed" "values of logits are wrong" "replay  plumb test --case" \
	"hc_norm_down+hc_up_mix in layer"
unset ROUTER_FAULT FUSED_FAULT
run 0 cmake -S "$engine" -B "$engine/build" -DWRONG=ON
run 8 ctest --test-dir "$engine/build" -L plumb -LE gpu
said "gate_wrong (Failed)" "1 tests failed"
# words that are not known, and halves of pairs
for line in 'plumb_add_kernel_test(x attn_gate gate_right NONSENSE)' 'plumb_add_kernel_test(x attn_gate gate_right GOLDEN a.h5)' \
	'plumb_add_kernel_test(x attn_gate gate_right DEVICE tpu)' 'plumb_add_kernel_test(x attn_gate gate_right CASES a.h5 VIEW local)' \
	'plumb_add_kernel_test(x attn_gate gate_right HOSTILE VIEW local)'; do
	mkdir -p "$work/bad"
	cp "$engine/gate.c" "$engine/router.c" "$engine/fused.c" "$work/bad/"
	{ cat "$engine/CMakeLists.txt" && echo "$line"; } >"$work/bad/CMakeLists.txt"
	run 1 cmake -S "$work/bad" -B "$work/bad/build"
	said "plumb_add_kernel_test(x)"
done

# --- several GPUs share one run: a stub of plumb says which it saw ---
mkdir "$work/gpus"
cat >"$work/gpus/plumb" <<END
#!/bin/sh
case " \$* " in *" --checksums "*) exit 0 ;; esac
echo "\${CUDA_VISIBLE_DEVICES-none}" >>"$work/gpus/seen"
END
chmod +x "$work/gpus/plumb"
cat >"$work/gpus/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(gpus LANGUAGES NONE)
set(plumbline_GOLDEN_DIR $source/golden)
set(PLUMB_PROGRAM $work/gpus/plumb)
include($source/cmake/PlumbTest.cmake)
enable_testing()
foreach(i RANGE 1 6)
  plumb_add_kernel_test(on_gpu_\${i} attn_gate mine.so DEVICE cuda)
endforeach()
END
run 0 cmake -S "$work/gpus" -B "$work/gpus/build"
run 0 "$ci/resource-spec.sh" 2
cp "$work/said" "$work/gpus.json"
run 0 ctest --test-dir "$work/gpus/build" -L gpu -j 6 --resource-spec-file "$work/gpus.json"
[ "$(sort -u "$work/gpus/seen" | tr '\n' ' ')" = "0 1 " ] && [ "$(wc -l <"$work/gpus/seen")" -eq 6 ] ||
	fail "six tests on two GPUs saw: $(tr '\n' ' ' <"$work/gpus/seen")"
: >"$work/gpus/seen"
run 0 ctest --test-dir "$work/gpus/build" -L gpu # without a specification nothing is chosen for them
[ "$(sort -u "$work/gpus/seen")" = none ] || fail "without a resource specification tests saw: $(sort -u "$work/gpus/seen")"
for gpus in 0 x ''; do run 2 "$ci/resource-spec.sh" "${gpus:-none}"; done

# --- the hook ---
cd "$engine"
git init -q .
git config user.name test
git config user.email test@example.invalid
printf 'build/\n' >.gitignore
ln -s "$ci/pre-commit" .git/hooks/pre-commit
export KERNELS='\.c$'
git add .gitignore CMakeLists.txt && run 0 git commit -m "no kernel"
git add gate.c && run 1 git commit -m "the wrong kernel is among the tests"
said "gate_wrong (Failed)"
run 0 cmake -S "$engine" -B "$engine/build" -DWRONG=OFF
run 0 git commit -m "kernels"
unset KERNELS
cd "$work"

# --- shards: GNU parallel, Slurm ---
set -- "$source/golden/tiny/tiny.h5" --checkpoint "$source/golden/tiny/checkpoint"
run 0 "$plumb" check "$@" --view local --quiet --digest
digest=$(awk '/^digest/ { print $2 }' "$work/said")
[ ${#digest} -eq 32 ] || fail "no digest"
parallel="GNU parallel is not here"
if command -v parallel >/dev/null; then
	export PLUMB="$plumb"
	run 0 "$ci/parallel.sh" 3 "$work/parallel" check "$@" --view local
	said "3 shards" "$digest" "91 passed, 0 failed"
	[ -s "$work/parallel/whole.json" ] && [ -s "$work/parallel/whole.xml" ] || fail "parallel.sh leaves no reports"
	run 1 "$ci/parallel.sh" 2 "$work/parallel" check "$@" --view local --op "attn_gate=$engine/build/gate_wrong.so"
	said "FAIL" "1 failed"
	run 2 "$ci/parallel.sh" 2 "$work/parallel" check "$@" --no-such-option
	said "plumb merge:"
	parallel="GNU parallel runs them"
fi
mkdir "$work/bin"
cat >"$work/bin/sbatch" <<'END'
#!/bin/bash
# A stub: runs an array's tasks one after the other, as Slurm would start them; the job behind them after that.
array='' skip=${SKIP:-}
while [ $# -gt 0 ]; do
	case $1 in
	--array=*) array=${1#--array=} ;;
	-*) ;;
	*) break ;;
	esac
	shift
done
head -1 "$1" | grep -q '^#!' || exit 1
if [ "$array" ]; then
	for ((i = ${array%-*}; i <= ${array#*-}; i++)); do
		[ "$i" = "$skip" ] || SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_COUNT=${array#*-} SLURM_CPUS_PER_TASK=1 "$@" >>"$STUB_LOG" 2>&1
	done
	echo "4711;cluster"
else
	"$@" >>"$STUB_LOG" 2>&1
	echo 4712
fi
exit 0
END
chmod +x "$work/bin/sbatch"
export PLUMB="$plumb" STUB_LOG="$work/slurm.log"
slurm() { # slurm STATUS ...: the recipe under the stub, and the status that it leaves
	want=$1
	shift
	PATH="$work/bin:$PATH" run 0 "$ci/slurm.sh" "$@"
	[ "$(cat "$2/status")" -eq "$want" ] || fail "slurm.sh: status is '$(cat "$2/status")', want $want; $(tail -3 "$STUB_LOG")"
}
slurm 0 3 "$work/slurm" check "$@" --view local
grep -q "$digest" "$work/slurm/whole.json" || fail "slurm.sh: another digest than that of one run"
SKIP=2 slurm 2 3 "$work/slurm" check "$@" --view local
grep -q "1 of 3 shards is missing: 2" "$STUB_LOG" || fail "slurm.sh: the task that was lost is not named"

# --- the workflow: YAML that is sound, and its own lines, with what the jobs would hand to one another ---
cat >"$work/steps.py" <<'END'
"""steps.py FILE.yml JOB ID: the run lines of a step, expressions of its matrix and env put in; without JOB: the files are sound."""
import sys
try:
    import yaml
except ImportError:
    print("yaml is not here")
    sys.exit(77)
with open(sys.argv[1]) as f:
    tree = yaml.safe_load(f)
if len(sys.argv) > 2:
    step = next(s for s in tree["jobs"][sys.argv[2]]["steps"] if s.get("id") == sys.argv[3])
    print(step["run"])
elif "jobs" in tree:
    assert tree[True] == ["push", "pull_request"], tree  # YAML 1.1 reads `on` so
    for name, job in tree["jobs"].items():
        assert job["runs-on"] and job["steps"], name
        for needed in [job.get("needs", [])] if isinstance(job.get("needs", []), str) else job.get("needs", []):
            assert needed in tree["jobs"], needed
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), (name, step)
    assert tree["jobs"]["verdict"]["if"] == "always()"  # a shard that died must not leave a green run
    assert tree["jobs"]["shard"]["strategy"]["fail-fast"] is False
else:
    assert tree["repos"][0]["hooks"][0]["entry"].startswith("ctest "), tree
END
yaml="its YAML was not read"
status=0
python3 "$work/steps.py" "$ci/github.yml" >"$work/said" 2>&1 || status=$?
if [ "$status" -ne 77 ]; then
	[ "$status" -eq 0 ] || fail "github.yml"
	run 0 python3 "$work/steps.py" "$ci/pre-commit-config.yaml"
	mkdir "$work/job" "$work/job/build"
	cd "$work/job"
	ln -s "$work/prefix" prefix
	cp "$engine/build/gate_right.so" build/
	python3 "$work/steps.py" "$ci/github.yml" shard shard >step.sh
	"$plumb" check --help | grep -q -e --html || sed -i 's/--html "[^"]*"//' step.sh
	for shard in 1 2 3; do SHARD=$shard/3 run 0 bash -e step.sh; done
	mkdir "$work/verdict"
	cp -r shard-* prefix/bin "$work/verdict/"
	cd "$work/verdict"
	python3 "$work/steps.py" "$ci/github.yml" verdict verdict >step.sh
	run 0 bash -e step.sh
	said "3 shards" "184 passed"
	[ -s whole.xml ] || fail "the workflow leaves no JUnit report"
	rm shard-2.json
	run 2 bash -e step.sh
	said "1 of 3 shards is missing: 2"
	yaml="the workflow's lines give one verdict"
fi
echo "test_ci: kernels of an engine are judged by ctest, hook and shards; $parallel; $yaml"
