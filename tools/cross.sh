#!/bin/sh
# SPDX-License-Identifier: MIT
# The CPU of a GB10 is an Arm: builds reference and simt for aarch64, runs them through qemu on this machine, and compares the
# digests of golden/tiny with those of the native build. usage: tools/cross.sh [NATIVE_BUILD_DIR] (default: the release
# preset, built here). Everything it makes lies under build/aarch64 (PLUMB_CROSS_DIR chooses another folder).
# Ubuntu keeps arm64 in an archive of its own: name a sources.list with it in PLUMB_CROSS_SOURCES.
set -eu
cd "$(dirname "$0")/.."
sh tools/packages.sh g++-aarch64-linux-gnu qemu-user

native=${1:-}
if [ -n "$native" ] && [ ! -x "$native/tools/plumb" ]; then
	echo "cross.sh: $native has no tools/plumb" >&2
	exit 2
fi
dir=${PLUMB_CROSS_DIR:-build/aarch64}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
sysroot=$dir/sysroot apt=$dir/apt build=$dir/build
golden="golden/tiny/tiny.h5 --checkpoint golden/tiny/checkpoint"
packages="libc6-dev libstdc++6 libgomp1 libhdf5-dev libopenblas-dev libcjson-dev check"
log=$dir/log

or_show_log() { # or_show_log WHAT: the last lines of the log, and out
	tail -n 40 "$log" >&2
	echo "cross.sh: $1 failed; $log has all of it" >&2
	exit 2
}

# An apt of its own, which takes this for an arm64 machine with nothing installed: it finds the dependencies and downloads
# the packages; they are unpacked, not installed, and the machine's own packages and lists stay as they are.
arm64_apt() {
	apt-get -q -y -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt/state" \
		-o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root \
		${PLUMB_CROSS_SOURCES:+-o Dir::Etc::sourcelist="$PLUMB_CROSS_SOURCES" -o Dir::Etc::sourceparts=-} "$@"
}

make_sysroot() {
	rm -rf "$sysroot" "$apt"
	mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$sysroot/usr/lib"
	: >"$apt/status"
	arm64_apt update && arm64_apt install --download-only --no-install-recommends $packages || return 1
	# packages from before the merge of /lib into /usr/lib have files in both
	ln -s usr/lib "$sysroot/lib"
	for deb in "$apt"/cache/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$sysroot" || return 1
	done
	find "$sysroot" -type l -lname '/*' | while read -r link; do
		ln -sfn "$sysroot$(readlink "$link")" "$link"
	done
	rm -rf "$apt"
	echo "$packages" >"$sysroot/complete"
}

if [ "$(cat "$sysroot/complete" 2>/dev/null)" != "$packages" ]; then
	echo "cross.sh: aarch64 libraries into $sysroot"
	make_sysroot >"$log" 2>&1 || or_show_log "fetching the aarch64 libraries"
fi
echo "cross.sh: build for aarch64"
{
	cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" \
		-DPLUMB_SYSROOT="$sysroot" && cmake --build "$build" --target plumb
} >"$log" 2>&1 || or_show_log "the aarch64 build"
if [ -z "$native" ]; then
	echo "cross.sh: native build"
	native=build/release
	{ cmake --preset release && cmake --build --preset release --target plumb; } >"$log" 2>&1 || or_show_log "the native build"
fi
# what the linker made, so that a native program can never be compared with itself
file_machine() { od -An -tu2 -j18 -N2 "$1" | tr -d ' '; }
if [ "$(file_machine "$build/tools/plumb")" != 183 ]; then # EM_AARCH64
	echo "cross.sh: $build/tools/plumb is not an aarch64 program" >&2
	exit 2
fi

status=0
for policy in f32 bf16; do
	for run in "--mode twin" "--set opt --device simt"; do
		here=$("$native/tools/plumb" check $golden --quiet --digest --policy $policy $run | awk '/^digest/ { print $2 }')
		there=$(OMP_WAIT_POLICY=passive qemu-aarch64 -L "$sysroot" "$build/tools/plumb" check $golden --quiet --digest --policy $policy $run |
			awk '/^digest/ { print $2 }')
		verdict=equal
		if [ -z "$here" ] || [ "$here" != "$there" ]; then
			verdict=DIFFERENT status=1
		fi
		printf '%-4s %-23s native %s  aarch64 %s  %s\n' "$policy" "$run" "${here:-none}" "${there:-none}" "$verdict"
	done
done
exit $status
