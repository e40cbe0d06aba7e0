#!/bin/sh
# SPDX-License-Identifier: MIT
# The project of tools/template, built outside of the tree against an installed Plumb, by CMake, by pkg-config and with the header
# alone: its kernels pass, the wrong variants are named. So does the example at the top of plumb/kernel.h, as it stands there.
# usage: test_template.sh SOURCE_DIR BUILD_DIR
set -eu
source=$(cd "$1" && pwd) build=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "test_template: $1"
	cat "$work/said"
	exit 1
}

check() { # check STATUS FILE.so [OPTION...]: what plumb check says of its attn_gate
	expected=$1 file=$2
	shift 2
	status=0
	"$work/prefix/bin/plumb" check "$source/golden/tiny/tiny.h5" --checkpoint "$source/golden/tiny/checkpoint" --view local \
		--op "attn_gate=$file" "$@" >"$work/said" 2>&1 || status=$?
	[ "$status" -eq "$expected" ] || fail "$file: exit status $status, expected $expected"
}

cmake --install "$build" --prefix "$work/prefix" >/dev/null
cp -r "$work/prefix/share/plumbline/template" "$work/mine"
cd "$work/mine"

cmake -S . -B right -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/said" 2>&1 || fail "cmake with the installed package"
cmake --build right >"$work/said" 2>&1 || fail "building"
cmake -S . -B wrong -DPLUMB_INCLUDE="$work/prefix/include" -DWRONG=ON -DCMAKE_CUDA_COMPILER=NOTFOUND >"$work/said" 2>&1 ||
	fail "cmake with the header alone"
cmake --build wrong --target gate >"$work/said" 2>&1 || fail "building the wrong one"
check 0 right/gate.so
check 0 right/gate.so --policy bf16
check 0 right/gate.so --bounds
"$work/prefix/bin/plumb" test --op attn_gate=right/gate.so >"$work/said" 2>&1 || fail "plumb test finds fault with the right kernel"
if "$work/prefix/bin/plumb" test --op attn_gate=wrong/gate.so >"$work/said" 2>&1; then fail "plumb test passes the wrong kernel"; fi
check 1 wrong/gate.so
grep -q "layer03/attention/gated (attn_gate of wrong/gate.so): FAIL" "$work/said" || fail "the wrong kernel is not named"

if command -v pkg-config >/dev/null; then
	flags=$(PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name plumbline.pc)") pkg-config --cflags plumbline)
	# shellcheck disable=SC2086
	cc -O2 -shared -fPIC $flags -o by_hand.so gate.c -lm
	check 0 ./by_hand.so
fi

# the example of the header
sed -n '/^ \*     #include <math.h>/,/^ \*     PLUMB_KERNELS/s/^ \*     //p' "$work/prefix/include/plumb/kernel.h" >example.c
[ "$(wc -l <example.c)" -gt 10 ] || fail "no example in plumb/kernel.h"
cc -std=c11 -Wall -Wextra -Werror -O2 -shared -fPIC -I "$work/prefix/include" -o example.so example.c -lm
check 0 ./example.so

# the header in other languages, alone
for language in c c++; do
	printf '#include <plumb/kernel.h>\nint main(void) { return 0; }\n' >"alone.$language"
	cc -x "$language" -Wall -Wextra -Wpedantic -Werror -I "$work/prefix/include" -fsyntax-only "alone.$language"
done

# plumb new-kernel: for every op a source that compiles, and that plumb runs
plumb=$work/prefix/bin/plumb ops=0
mkdir new
for op in $("$plumb" list ops | awk 'NR > 1 && /^[a-z_]+ / { print $1 }') hc_norm_down+hc_up_mix; do
	"$plumb" new-kernel "$op" "new/$ops" >"$work/said" 2>&1 || fail "new-kernel $op"
	cc -std=c11 -Wall -Wextra -Werror -I "$work/prefix/include" -fsyntax-only new/$ops/*.c || fail "the source of new-kernel $op"
	grep -q "Computes" new/$ops/*.c || fail "new-kernel $op: no contract"
	"$plumb" list "${op%+*}" | grep -q "^Source " || fail "list $op: no contract"
	ops=$((ops + 1))
done
[ "$ops" -gt 20 ] || fail "only $ops ops are listed"
"$plumb" new-kernel attn_gate new/mine >new/said
# what it says next is what one types: the build finds Plumb wherever it runs from
sed -n 's/^build it: //p' new/said >new/build
sh new/build >"$work/said" 2>&1 || fail "the line that new-kernel says builds nothing: $(cat new/build)"
[ -f new/mine/build/attn_gate.so ] || fail "no shared object of new-kernel's line"
status=0
sh -c "${plumb%/*}/$(sed -n 's/^test it: *//p' new/said)" >"$work/said" 2>&1 || status=$?
[ "$status" -eq 1 ] && grep -q "attn_gate is not written yet" "$work/said" || fail "the line to test it: $(cat "$work/said")"
status=0
"$plumb" new-kernel hc_inject+atn_gate new/none >"$work/said" 2>&1 || status=$?
[ "$status" -eq 2 ] && grep -q "did you mean 'attn_gate'" "$work/said" && [ ! -e new/none ] || fail "an op that is none"
status=0
"$plumb" new-kernel argmax+embed new/none >"$work/said" 2>&1 || status=$?
[ "$status" -eq 2 ] && grep -q "no layer runs embed right after argmax: after argmax comes nothing" "$work/said" && [ ! -e new/none ] ||
	fail "ops that are no neighbours"
# its own tests: those of an empty kernel fail, those of a right one pass
ctest --test-dir new/mine/build --output-on-failure >"$work/said" 2>&1 && fail "ctest passes an empty kernel"
grep -q "hostile .*Failed" "$work/said" && grep -q "golden_bf16 .*Failed" "$work/said" && grep -q "attn_gate is not written yet" "$work/said" ||
	fail "ctest of an empty kernel"
mv new/mine/attn_gate.c new/empty.c
cp gate.c new/mine/attn_gate.c
ctest --test-dir new/mine/build >"$work/said" 2>&1 || fail "ctest of a right kernel"
grep -q "hostile .*Passed" "$work/said" || fail "ctest runs no plumb test"
cp new/empty.c new/mine/attn_gate.c
"$plumb" new-kernel moe_gate_up+moe_down new/fused >new/fused_said
grep -q "hostile moe_gate_up+moe_down moe_gate_up_moe_down HOSTILE)" new/fused/CMakeLists.txt || fail "the tests of a fused kernel"
sh -c "$(sed -n 's/^build it: //p' new/fused_said)" >"$work/said" 2>&1 || fail "building new/fused"
status=0
sh -c "${plumb%/*}/$(sed -n 's/^test it: *//p' new/fused_said)" >"$work/said" 2>&1 || status=$?
[ "$status" -eq 1 ] && grep -q "moe_gate_up_moe_down is not written yet" "$work/said" || fail "the line to test a fused kernel"
"$plumb" new-kernel attn_gate new/gpu --cuda >new/gpu_said
grep -q "HOSTILE DEVICE cuda" new/gpu/CMakeLists.txt && grep -q "ctest --test-dir new/gpu/build" new/gpu_said ||
	fail "the tests of a CUDA kernel"
(cd new/mine && cmake -S . -B build -DCMAKE_PREFIX_PATH="$work/prefix" && cmake --build build) >"$work/said" 2>&1 || fail "building new/mine"
check 1 new/mine/build/attn_gate.so
grep -q "op attn_gate layer 3 position 0: .* attn_gate is not written yet" "$work/said" || fail "the new kernel does not run"
echo mine >new/mine/attn_gate.c
status=0
"$plumb" new-kernel attn_gate new/mine >"$work/said" 2>&1 || status=$?
[ "$status" -eq 2 ] && [ "$(cat new/mine/attn_gate.c)" = mine ] || fail "new-kernel writes over a file"

cuda="no nvcc"
if [ -e right/gate_cuda.so ]; then
	cuda="the CUDA one compiles"
	check 3 right/gate_cuda.so --device simt
	grep -q "wants pointers of a GPU" "$work/said" || fail "what a CUDA kernel wants is not said"
	sh -c "$(sed -n 's/^build it: //p' new/gpu_said)" >"$work/said" 2>&1 || fail "building new/gpu"
	if ! command -v nvidia-smi >/dev/null; then
		ctest --test-dir new/gpu/build >"$work/said" 2>&1 || fail "ctest of a CUDA kernel without a GPU"
		[ "$(grep -c "Skipped" "$work/said")" -ge 3 ] || fail "a GPU that is not there is not said to be skipped"
	fi
fi
echo "test_template: the template builds and is judged; $cuda"
