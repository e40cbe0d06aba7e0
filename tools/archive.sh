#!/bin/sh
# SPDX-License-Identifier: MIT
# The source archive of a commit: plumbline-VERSION.tar.gz with everything that is committed, the same bytes from the same commit on
# every machine (the times are the commit's; owners, modes and the order of files are fixed). usage: tools/archive.sh [COMMIT [FOLDER]]
# Prints its name and SHA-256. Exit status 2: no commit, or a file that cannot be written.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
commit=${1:-HEAD} folder=${2:-.}

refuse() {
	echo "archive.sh: $1" >&2
	exit 2
}

# a folder inside of another repository is not ours
[ "$(git -C "$here" rev-parse --show-toplevel 2>/dev/null)" = "$(realpath "$here")" ] ||
	refuse "$here is not a git repository: an archive is made of a commit"
id=$(git -C "$here" rev-parse --verify --quiet "$commit^{commit}") || refuse "'$commit' is not a commit"
version=$(git -C "$here" show "$id:CMakeLists.txt" | sed -n 's/^project(plumbline VERSION \([0-9.]*\).*/\1/p')
[ -n "$version" ] || refuse "CMakeLists.txt of $id has no project(plumbline VERSION ...)"
[ -d "$folder" ] || refuse "$folder is not a folder"
if [ "$commit" = HEAD ] && [ -n "$(git -C "$here" status --porcelain --untracked-files=no)" ]; then
	echo "archive.sh: files differ from the commit; the archive has what is committed" >&2
fi

name=plumbline-$version
out=$folder/$name.tar.gz
part=$(mktemp "$folder/.$name.XXXXXX") || refuse "$folder cannot be written"
trap 'rm -f "$part" "$part.tar"' EXIT
git -C "$here" -c tar.umask=0022 -c core.autocrlf=false archive --format=tar --prefix="$name/" "$id" >"$part.tar"
gzip -n -9 <"$part.tar" >"$part"
chmod 644 "$part"
sync "$part" 2>/dev/null || true
mv "$part" "$out"
echo "$out  $(sha256sum <"$out" | cut -d ' ' -f 1)  commit $id"
