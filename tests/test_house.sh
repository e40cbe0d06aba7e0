#!/bin/sh
# SPDX-License-Identifier: MIT
# The house rules that no compiler checks: the direction of includes, a licence line in every source file, files of a size one
# can read in a sitting, plain ASCII, and for every op the files that belong to it. usage: test_house.sh SOURCE_DIR.
# It judges a small tree of its own first, good and with one fault at a time, and fails if a fault passes.
set -u
folders="core ref kernels opt golden tests tools"

# The arrows: FOLDER, a colon, and the folders whose headers it may include (beside its own).
arrows="core: ref:core kernels:core opt:core,kernels golden:core tools:core,ref,opt,golden
	tests:core,ref,kernels,opt,golden,tools"
cuda_users="kernels opt tests" # who may include CUDA's headers

lines_at_most=800
# LIMIT: these are longer and wait to be split; the list may only become shorter.
long="tests/test_compare.c tests/simt_kernels.cu"

sources() { # every source file of the tree that is the current folder
	find $(for f in $folders cmake .ci; do if [ -e "$f" ]; then echo "$f"; fi; done) CMakeLists.txt -type f \
		\( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.sh' -o -name '*.py' \
		-o -name '*.cmake' -o -name '*.in' -o -name CMakeLists.txt -o -path '.ci/*' \) 2>/dev/null | sort
	for f in .clang-format .clang-tidy; do if [ -e "$f" ]; then echo "$f"; fi; done
}

includes() { # FILE:LINE: what is wrong with an include
	sources | grep -E '\.([ch]|cu|cuh|cpp)$' | xargs awk -v arrows="$arrows" -v cuda="$cuda_users" '
		BEGIN {
			n = split(arrows, rule)
			for (i = 1; i <= n; i++) {
				split(rule[i], side, ":")
				known[side[1]] = may[side[1], side[1]] = 1
				m = split(side[2], below, ",")
				for (j = 1; j <= m; j++)
					may[side[1], below[j]] = 1
			}
			n = split(cuda, user, " ")
			for (i = 1; i <= n; i++)
				cuda_user[user[i]] = 1
		}
		match($0, /^[ \t]*#[ \t]*include[ \t]*["<][^">]*[">]/) {
			what = substr($0, RSTART, RLENGTH)
			quoted = what ~ /"/
			sub(/^[^"<]*["<]/, "", what)
			sub(/[">]$/, "", what)
			from = FILENAME
			sub(/\/.*/, "", from)
			to = what
			sub(/\/.*/, "", to)
			here = FILENAME ":" FNR ": "
			if (to in known && what ~ /\//) {
				if (!((from, to) in may))
					print here from "/ may not include " to "/ (" what ")"
				if (what !~ /\.h$/)
					print here "includes a file that is no header (" what ")"
			} else if (quoted)
				print here "\"" what "\" is not named from the top folder"
			else if (what ~ /^(cuda|cublas|cooperative_groups|nv|cub|thrust|driver_types)/ && !(from in cuda_user))
				print here from "/ may not include CUDA (" what ")"
		}'
}

licences() { # the line is one of the first three: a script begins with #!
	sources | xargs awk '
		function judge() { if (file && !has) print file ": no SPDX-License-Identifier line" }
		FNR == 1 { judge(); file = FILENAME; has = 0 }
		FNR <= 3 && /SPDX-License-Identifier: MIT/ { has = 1 }
		END { judge() }'
}

lengths() {
	sources | xargs wc -l | awk -v most="$lines_at_most" -v long=" $long " '
		$2 == "total" { next }
		$1 > most && !index(long, " " $2 " ") {
			print $2 ": " $1 " lines, at most " most ": split it along a seam a reader would name"
		}
		$1 <= most && index(long, " " $2 " ") {
			print $2 ": " $1 " lines; take it from the list of long files in tests/test_house.sh"
		}'
}

ascii() {
	sources | xargs env LC_ALL=C awk '/[^\t -~]/ { print FILENAME ":" FNR ": a byte that is not ASCII text" }'
}

# Every row OP(ENUM, name, "stage", ...) of plumb_ops[] has its contract, oracle, twin, launch, and the kernel file and test
# of its stage.
ops() {
	rows=$(sed -n 's/^[[:space:]]*OP([A-Z0-9_]*, *\([a-z0-9_]*\), *"\([a-z0-9_]*\)".*/\1:\2/p' core/op.c)
	count=$(sed -n '/^#define PLUMB_EACH_OP(X)/,/^$/p' core/op.h | grep -c '^[[:space:]]*X([A-Z0-9_]*, *[a-z0-9_]*)')
	if [ "$(echo "$rows" | grep -c :)" -ne "$count" ]; then
		echo "core/op.c: $(echo "$rows" | grep -c :) rows of plumb_ops[] seen, PLUMB_EACH_OP has $count ops"
	fi
	for row in $rows; do
		op=${row%:*} base=${row#*:}
		[ "$base" = hyper_connection ] && base=hc
		for need in "core/ops/$base.h:struct plumb_$op {" "ref/$base.c:${op}_ref(" "ref/twin/$base.c:${op}_twin(" \
			"opt/$base.c:${op}_opt(" "kernels/$base.cu:PLUMB_LAUNCHER(" "tests/test_$base.c:${op}_"; do
			if [ ! -f "${need%%:*}" ]; then
				echo "${need%%:*}: missing, the op $op needs it"
			elif ! grep -qF "${need#*:}" "${need%%:*}"; then
				echo "${need%%:*}: nothing says '${need#*:}', the op $op needs it"
			fi
		done
	done
}

judge() { # judge FOLDER: what is wrong with the tree there, a line each
	(cd "$1" && { includes; licences; lengths; ascii; ops; } 2>&1)
}

# --- the tree it proves itself on ---

say() { # say FILE LINE...: a source file of the small tree
	said=$tree/$1
	shift
	mkdir -p "${said%/*}"
	printf '%s\n' "/* SPDX-License-Identifier: MIT */" "$@" >"$said"
}

good_tree() {
	say core/op.h '#define PLUMB_EACH_OP(X) \' '	X(EMBED, embed)' ''
	say core/op.c '#include "core/op.h"' '	OP(EMBED, embed, "embed", "a row"),'
	say core/ops/embed.h 'struct plumb_embed {' '};'
	say ref/embed.c '#include "core/ops/embed.h"' 'int embed_ref(void);'
	say ref/twin/embed.c '#include "ref/twin/twin.h"' 'int embed_twin(void);'
	say kernels/embed.cu '#include <cuda_runtime.h>' '#include "core/op.h"' 'int PLUMB_LAUNCHER(embed)(void);'
	say opt/embed.c '#include "kernels/embed.h"' 'int embed_opt(void);'
	say golden/golden.c '#include "core/op.h"' '#include <hdf5.h>'
	say tests/test_embed.c '#include "opt/opt.h"' '#include "ref/ref.h"' 'embed_twin'
	say tools/main.c '#include "golden/golden.h"' '#include "ref/ref.h"'
	say CMakeLists.txt
	for f in $long; do
		say "$f"
		yes '/* long */' | head -n $((lines_at_most + 1)) >>"$tree/$f"
	done
	cp -r "$tree" "$work/good"
}

small_tree() {
	rm -rf "$tree"
	cp -r "$work/good" "$tree"
}

proven=0 wrong=0
found() { # found WORDS: the tree as it is now is judged bad, in these words; then it is good again
	judge "$tree" >"$work/said"
	if ! grep -qF -- "$1" "$work/said"; then
		echo "test_house: a tree in which it should have found '$1' was judged:"
		cat "$work/said"
		wrong=$((wrong + 1))
	fi
	proven=$((proven + 1))
	small_tree
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
good_tree
judge "$tree" >"$work/said"
if [ -s "$work/said" ]; then
	echo "test_house: a good tree was judged:"
	cat "$work/said"
	wrong=$((wrong + 1))
fi
for pair in core:ref core:opt core:kernels core:golden core:tools core:tests ref:opt ref:kernels ref:golden ref:tools ref:tests \
	kernels:ref kernels:opt kernels:golden opt:ref opt:golden opt:tools golden:ref golden:opt golden:kernels golden:tools \
	tools:tests; do
	say "${pair%:*}/bad.c" "#include \"${pair#*:}/some.h\""
	found "${pair%:*}/bad.c:2: ${pair%:*}/ may not include ${pair#*:}/"
done
say core/ops/bad.h '  #  include <ref/ref.h>'
found 'core/ops/bad.h:2: core/ may not include ref/'
say ref/bad.c '#include "../opt/opt.h"'
found 'ref/bad.c:2: "../opt/opt.h" is not named from the top folder'
say opt/bad.c '#include "kernels/embed.cu"'
found 'opt/bad.c:2: includes a file that is no header'
say ref/twin/bad.c '#include <cuda_runtime_api.h>'
found 'ref/twin/bad.c:2: ref/ may not include CUDA'
echo 'int x;' >"$tree/tools/bad.c"
found 'tools/bad.c: no SPDX'
printf 'cmake\n' >"$tree/CMakeLists.txt"
found 'CMakeLists.txt: no SPDX'
printf 'int x;\n' >"$tree/core/bad.h.in"
found 'core/bad.h.in: no SPDX'
printf 'Checks: x\n' >"$tree/.clang-tidy"
found '.clang-tidy: no SPDX'
say opt/bad.c
yes '/* */' | head -n "$lines_at_most" >>"$tree/opt/bad.c"
found "opt/bad.c: $((lines_at_most + 1)) lines"
say "${long%% *}"
found "${long%% *}: 1 lines; take it from the list"
say kernels/bad.cu "$(printf '/* caf\303\251 */')"
found 'kernels/bad.cu:2: a byte that is not ASCII'
say core/op.h '#define PLUMB_EACH_OP(X) \' '	X(EMBED, embed) \' '	X(OTHER, other)' ''
found 'core/op.c: 1 rows of plumb_ops[] seen, PLUMB_EACH_OP has 2 ops'
for file in core/ops/embed.h ref/embed.c ref/twin/embed.c kernels/embed.cu opt/embed.c tests/test_embed.c; do
	rm "$tree/$file"
	found "$file: missing, the op embed needs it"
	say "$file"
	found "$file: nothing says"
done

# --- and the tree it is there for ---

judge "$1" >"$work/said"
cat "$work/said"
files=$(cd "$1" && sources | wc -l)
echo "test_house: $files source files, $(wc -l <"$work/said") faults; $proven planted faults, $wrong not found"
[ ! -s "$work/said" ] && [ "$wrong" -eq 0 ] && [ "$files" -gt 100 ]
