#!/bin/sh
# SPDX-License-Identifier: MIT
# Overlap of launches, in the machine code: kernels that ask for weights before they wait for the launch before (kernels/device.h)
# do so after the compiler too, which had put all such loads of hc_up_mix behind the wait. Needs nvcc and cuobjdump, not a GPU;
# without them it is skipped (77). usage: test_overlap.sh SOURCE_DIR [NVCC_OPTION ...]
set -u
source=$1
shift
cd "$source" || exit 2

# files, and the kernels of them that have all of their weights asked for before the wait, as the compiler spells names
files="hc linear moe attention"
kernels="hc_norm_down_kernel hc_up_mix_wide_kernel linear_wide_kernel linear_staged_kernel moe_router_kernelILb1E moe_down_wide_kernel
	attn_weighted_kernel"
machines="90 121"
for tool in nvcc cuobjdump; do
	if ! command -v $tool >/dev/null 2>&1; then
		echo "test_overlap: skipped, no $tool on the PATH"
		exit 77
	fi
done
for machine in $machines; do
	if ! nvcc --list-gpu-code | grep -qx "sm_$machine"; then
		echo "test_overlap: skipped, this nvcc does not know sm_$machine"
		exit 77
	fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# judge CUBIN MACHINE KERNEL...: a line for each instance of a kernel; status 1 for one whose loads of weights (past the first
# cache, or to shared memory) stand behind its last wait, or that has none, and for a kernel without instances.
judge() {
	cubin=$1 machine=$2
	shift 2
	cuobjdump -sass "$cubin" >"$cubin.sass" 2>&1 || return 1
	awk -v machine="sm_$machine" -v kernels="$*" '
		function end() {
			if (name != "") {
				verdict = before == 0 ? "NONE BEFORE" : after > 0 ? "BEHIND" : "ok"
				wrong += verdict != "ok"
				printf "%-11s %-6s %2d loads of weights before the wait, %d behind: %s\n", verdict, machine, before, after, name
			}
			name = ""
		}
		/Function : / {
			end()
			before = after = 0
			for (i = 1; i <= count; i++)
				if (index($NF, kernel[i])) {
					name = $NF
					seen[i]++
				}
		}
		BEGIN { count = split(kernels, kernel, " ") }
		/ACQBULK/ { before += after; after = 0 }
		/LDG[^ ]*\.NA\.|LDGSTS/ { after++ }
		END {
			end()
			for (i = 1; i <= count; i++)
				if (!seen[i]) {
					printf "test_overlap: %s is in no file for %s\n", kernel[i], machine
					wrong++
				}
			exit wrong > 0
		}' "$cubin.sass"
}

compile() { # compile MACHINE FILE...
	machine=$1
	shift
	for file in "$@"; do
		nvcc -std=c++17 -I. $OPTIONS -arch="sm_$machine" -cubin -o "$work/$(basename "$file" .cu).$machine.cubin" "$file" || exit 1
	done
}

export OPTIONS="$*"
failed=0
for kernel in $kernels; do
	if ! grep -q "${kernel%%IL*}(" $(printf 'kernels/%s.cu ' $files); then
		echo "test_overlap: no file has $kernel"
		failed=$((failed + 1))
	fi
done
for machine in $machines; do
	compile "$machine" $(printf 'kernels/%s.cu ' $files) tests/resources/late.cu &
done
wait
for machine in $machines; do
	for file in $files; do
		of_file=""
		for kernel in $kernels; do
			grep -q "${kernel%%IL*}(" "kernels/$file.cu" && of_file="$of_file $kernel"
		done
		judge "$work/$file.$machine.cubin" "$machine" $of_file || failed=$((failed + 1))
	done
	# a kernel that loads behind the wait has to be told
	if judge "$work/late.$machine.cubin" "$machine" late_kernel >"$work/late.log" || ! grep -q "^BEHIND\|^NONE" "$work/late.log"; then
		echo "test_overlap: a kernel that loads behind the wait is not told on sm_$machine"
		failed=$((failed + 1))
	fi
done
echo "test_overlap: $failed failures"
[ "$failed" -eq 0 ]
