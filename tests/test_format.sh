#!/bin/sh
# SPDX-License-Identifier: MIT
# Every C, C++ and CUDA file is as clang-format 14 lays it out (.clang-format); and a file that is not is found.
# usage: test_format.sh SOURCE_DIR. Skipped (77) without clang-format 14: other versions lay out some lines differently.
set -u
cd "$1" || exit 1
format=""
for name in clang-format-14 clang-format; do
	if "$name" --version 2>/dev/null | grep -q 'version 14\.'; then
		format=$name
		break
	fi
done
[ -n "$format" ] || { echo "skipped: no clang-format 14"; exit 77; }

odd=$(printf '/* a */\nint  main( void )\n{\n    return 0;\n}\n' | "$format" --assume-filename=core/odd.c --dry-run -Werror 2>&1)
if ! echo "$odd" | grep -q 'clang-format-violations'; then
	echo "test_format: an odd file passes: $odd"
	exit 1
fi

list=$(mktemp)
trap 'rm -f "$list"' EXIT
find core ref kernels opt golden tests tools -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) | sort >"$list"
files=$(wc -l <"$list")
# two at a time, in pieces: what is wrong is printed, and a piece with something wrong fails xargs
if ! xargs -n 40 -P 2 "$format" --dry-run -Werror <"$list"; then
	echo "test_format: $format -i FILE mends these"
	exit 1
fi
echo "test_format: $files files as $format lays them out"
[ "$files" -gt 200 ]
