#!/bin/sh
# SPDX-License-Identifier: MIT
# clang-tidy (.clang-tidy) over every C file of core, ref, opt, golden and tools, with the commands of a configured build.
# usage: tools/tidy.sh [BUILD_DIR [FILE...]]; default build/release and all files. Some minutes. Exit status 1: findings, 2: it cannot run.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ $# -eq 0 ] || shift
command -v clang-tidy >/dev/null || { echo "tidy.sh: no clang-tidy" >&2; exit 2; }
[ -f "$build/compile_commands.json" ] || { echo "tidy.sh: $build/compile_commands.json is not there: cmake --preset release" >&2; exit 2; }
files=$(mktemp) said=$(mktemp)
trap 'rm -f "$files" "$said"' EXIT
if [ $# -gt 0 ]; then
	printf '%s\n' "$@" >"$files"
else
	find core ref opt golden tools -name '*.c' -not -path 'tools/template/*' | sort >"$files"
	[ -n "$(grep '"file":.*/opt/cuda.c"' "$build/compile_commands.json")" ] || sed -i '/^opt\/cuda.c$/d' "$files" # of the cuda preset
fi
status=0
# tools/tidy_model.h comes first, but not into the file that defines what it models
export build
xargs -n 1 -P "${PLUMB_JOBS:-$(nproc)}" sh -c 'case $1 in core/status.c) set -- "$1" ;; *) set -- "$1" --extra-arg=-include --extra-arg=tools/tidy_model.h ;; esac
	clang-tidy -p "$build" --quiet "$@"' sh <"$files" >"$said" 2>&1 || status=1
grep -v -E '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header-filter|^$' "$said" || true
echo "tidy.sh: $(wc -l <"$files") files, $(grep -c -E '(warning|error): ' "$said") findings"
exit $status
