#!/bin/sh
# SPDX-License-Identifier: MIT
# Install what building Plumb needs, if it is missing: Debian 12, Ubuntu 24.04 and their relatives. Says nothing when all is
# there. As another user than root it asks through sudo. usage: tools/packages.sh [MORE_PACKAGES ...]
set -eu

packages="gcc g++ make cmake ninja-build pkg-config libhdf5-dev libopenblas-dev libcjson-dev check python3 $*"
missing=""
for p in $packages; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
# a compiler or cmake from elsewhere serves as well
for tool in gcc g++ make cmake ninja:ninja-build pkg-config clang aarch64-linux-gnu-g++:g++-aarch64-linux-gnu qemu-aarch64:qemu-user python3; do
	if command -v "${tool%%:*}" >/dev/null 2>&1; then
		missing=$(printf '%s ' $missing | sed "s/\\(^\\| \\)${tool##*:} / /")
	fi
done
# and so does a library that pkg-config finds, as on systems without these packages
for library in check libcjson:libcjson-dev openblas:libopenblas-dev hdf5:libhdf5-dev hdf5-serial:libhdf5-dev; do
	if [ -n "$missing" ] && pkg-config --exists "${library%%:*}" 2>/dev/null; then
		missing=$(printf '%s ' $missing | sed "s/\\(^\\| \\)${library##*:} / /")
	fi
done
missing=$(printf '%s ' $missing | sed 's/^ *//; s/ *$//')
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	echo "packages.sh: this system has no apt-get; please install the equivalents of: $missing" >&2
	exit 2
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
	as_root="sudo"
	command -v sudo >/dev/null 2>&1 || {
		echo "packages.sh: neither root nor sudo; please have installed: $missing" >&2
		exit 2
	}
fi
echo "packages.sh: installing $missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $as_root apt-get update -q && $as_root apt-get install -q -y --no-install-recommends $missing; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	echo "packages.sh: could not install $missing" >&2
	exit 2
fi
