#!/bin/sh
# SPDX-License-Identifier: MIT
# Registers: no kernel may spill or have a stack frame, on sm_90 and on sm_121. A frame a kernel needs is written down in its
# file, as `LIMIT: stack frame of NAME_kernel`. Needs nvcc, not a GPU; without nvcc, or with one that does not know both
# machines, it is skipped (77). usage: test_resources.sh SOURCE_DIR [NVCC_OPTION ...]
set -u
source=$1
shift
cd "$source" || exit 2

machines="90 121"
if ! command -v nvcc >/dev/null 2>&1; then
	echo "test_resources: skipped, no nvcc on the PATH"
	exit 77
fi
for machine in $machines; do
	if ! nvcc --list-gpu-code | grep -qx "sm_$machine"; then
		echo "test_resources: skipped, this nvcc does not know sm_$machine"
		exit 77
	fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The compiler's words about FILE.cu go to NAME.MACHINE.log; one that fails leaves NAME.MACHINE.log.failed beside it.
cat >"$work/compile.sh" <<'END'
machine=$1 file=$2
log=$WORK/$(basename "$file" .cu).$machine.log
nvcc -std=c++17 -I. $OPTIONS -arch="sm_$machine" -cubin -Xptxas -v -o "$log.cubin" "$file" >"$log" 2>&1 || : >"$log.failed"
END

compile() { # compile FILE...: each for each machine, as many at a time as there are cores
	for machine in $machines; do
		printf "$machine %s\n" "$@"
	done | xargs -P "$(nproc)" -n 2 sh "$work/compile.sh"
}

# judge FILE MACHINE: one line a kernel, and what is wrong with it; status 1 for a spill, a frame that is not written down, a
# file that does not compile or one in which the compiler names no kernel.
judge() {
	log=$work/$(basename "$1" .cu).$2.log
	if [ -e "$log.failed" ]; then
		cat "$log"
		echo "test_resources: $1 does not compile for sm_$2"
		return 1
	fi
	awk -v file="$1" -v machine="sm_$2" '
		FILENAME == file {
			if (sub(/.*LIMIT: stack frame of /, "") && match($0, /^[A-Za-z0-9_]+/))
				written[RLENGTH substr($0, 1, RLENGTH)] = 1 # as the compiler spells names
			next
		}
		/Compiling entry function/ { entries++ }
		/Function properties for/ { name = $NF }
		/bytes stack frame/ {
			functions++
			frame = $1 > 0
			for (w in written)
				if (index(name, w))
					frame = 0
			verdict = $5 + $9 > 0 ? "SPILLS" : frame ? "STACK FRAME" : "ok"
			wrong += verdict != "ok"
			what = $0
			sub(/^ */, "", what)
		}
		/Used [0-9]+ registers/ {
			match($0, /Used [0-9]+/)
			printf "%-11s %-6s %3d registers, %s: %s\n", verdict, machine, substr($0, RSTART + 5, RLENGTH - 5), what, name
		}
		END {
			if (entries == 0 || functions < entries) {
				printf "test_resources: %s: %d kernels, resources of %d functions: ", file, entries, functions
				print "the compiler does not say what was asked"
				wrong++
			}
			exit wrong > 0
		}' "$1" "$log"
}

# FILE and what judge has to say of it, so that a test which sees nothing is not taken for kernels that are clean
planted="tests/resources/clean.cu:0 tests/resources/spill.cu:1 tests/resources/frame.cu:1 tests/resources/frame_written.cu:0
	tests/resources/empty.cu:1 tests/resources/broken.cu:1"

export OPTIONS="$*" WORK="$work"
compile kernels/*.cu $(for p in $planted; do echo "${p%:*}"; done)
failed=0 files=0
for file in kernels/*.cu; do
	for machine in $machines; do
		judge "$file" "$machine" || failed=$((failed + 1))
		files=$((files + 1))
	done
done
for p in $planted; do
	for machine in $machines; do
		judge "${p%:*}" "$machine" >"$work/said" 2>&1
		if [ $? -ne "${p#*:}" ]; then
			cat "$work/said"
			echo "test_resources: ${p%:*} for sm_$machine should have been found $([ "${p#*:}" -eq 0 ] && echo good || echo bad)"
			failed=$((failed + 1))
		fi
	done
done
echo "test_resources: $files compilations of kernels, $failed failures"
[ "$failed" -eq 0 ] && [ "$files" -gt 0 ]
