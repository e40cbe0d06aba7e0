#!/bin/sh
# SPDX-License-Identifier: MIT
# tools/archive.sh, on a repository made of the files that are here now: the same bytes twice, from another clone, with another umask
# and time zone; it has exactly the files that git has, unpacks to the same contents, names its commit, and configures.
# usage: test_archive.sh SOURCE_DIR. Skipped (77) where there is no git or SOURCE_DIR is no repository.
set -eu
source=$(cd "$1" && pwd)
command -v git >/dev/null || { echo "skipped: no git"; exit 77; }
[ "$(git -C "$source" rev-parse --show-toplevel 2>/dev/null)" = "$(realpath "$source")" ] || { echo "skipped: $source is no git repository"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
: >"$work/said"

fail() {
	echo "test_archive: $1"
	cat "$work/said"
	exit 1
}

archive() { # archive REPOSITORY FOLDER: the file it makes there
	mkdir -p "$2"
	"$1/tools/archive.sh" HEAD "$2" >"$work/said" 2>&1 || fail "archive.sh"
	ls "$2"/plumbline-*.tar.gz
}

# the files as they are now, committed or not, but not what git ignores
mkdir "$work/tree"
(cd "$source" && git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f; do [ -e "$f" ] && printf "%s\0" "$f"; done' sh |
	tar -c --null -T - | tar -x -C "$work/tree")
commit() { git -c user.name=x -c user.email=x@y -c commit.gpgsign=false "$@" >/dev/null 2>&1; }
(cd "$work/tree" && commit init && commit add -A && commit commit -m x) || fail "git"

first=$(archive "$work/tree" "$work/1")
git clone -q "$work/tree" "$work/clone"
find "$work/clone" -not -path '*/.git/*' -type f -exec touch -d 2001-01-01 {} +
second=$(umask 077 && TZ=Asia/Tokyo LC_ALL=C.UTF-8 archive "$work/clone" "$work/2")
cmp "$first" "$second" >"$work/said" 2>&1 || fail "not the same bytes twice"

name=$(basename "$first" .tar.gz)
tar -tzf "$first" | grep -v '/$' | sed "s|^$name/||" | LC_ALL=C sort >"$work/has"
git -C "$work/tree" ls-files | LC_ALL=C sort >"$work/want"
diff "$work/want" "$work/has" >"$work/said" || fail "not the files of the commit"
for file in LICENSE NEWS.md README.md golden/tiny/tiny.h5 golden/tiny/checkpoint/model.safetensors cmake/commit.txt tools/demo.sh; do
	grep -qx "$file" "$work/has" || fail "$file is not in the archive"
done
if grep -E '(^|/)(build|__pycache__)/|\.(o|so|pyc|part)$' "$work/has" >"$work/said"; then
	fail "built files in the archive"
fi
tar -xzf "$first" -C "$work"
(cd "$work/tree" && git ls-files -z | grep -zvx cmake/commit.txt | xargs -0 sha256sum) >"$work/sums"
(cd "$work/$name" && sha256sum --quiet -c "$work/sums") >"$work/said" 2>&1 || fail "contents changed"
id=$(git -C "$work/tree" rev-parse HEAD)
grep -qx "$id" "$work/$name/cmake/commit.txt" || fail "cmake/commit.txt does not name the commit $id"
[ -x "$work/$name/tools/demo.sh" ] || fail "tools/demo.sh cannot be executed"

# it configures on its own, knows its commit, and is not fooled by a repository around it
cmake -S "$work/$name" -B "$work/build" >"$work/said" 2>&1 || fail "cmake"
grep -q "PLUMB_COMMIT=\\\\*\"$(echo "$id" | cut -c 1-12)" "$work/build/compile_commands.json" || fail "the build does not know its commit"

if "$work/$name/tools/archive.sh" HEAD "$work/1" >"$work/said" 2>&1; then fail "an archive of what is no repository"; fi
grep -q "is not a git repository" "$work/said" || fail "why is not said"
if "$work/tree/tools/archive.sh" no-such-commit "$work/1" >"$work/said" 2>&1; then fail "an archive of no commit"; fi
if "$work/tree/tools/archive.sh" HEAD "$work/nowhere" >"$work/said" 2>&1; then fail "an archive in no folder"; fi
rest=$(find "$work/1" "$work/2" -name '.plumbline*')
[ -z "$rest" ] || fail "files left: $rest"
echo "test_archive: $(wc -l <"$work/has") files, $(wc -c <"$first") bytes, the same twice"
