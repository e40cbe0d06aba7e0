#!/bin/sh
# SPDX-License-Identifier: MIT
# An engine's repository against an installed Plumb: its ctest builds a kernel with plumbline::kernel and has plumbline::plumb
# judge it with the golden files that were installed; a wrong kernel fails there. Prefixes that are moved, staged by DESTDIR or
# have a multiarch lib folder, and the build tree without any install, serve too. usage: test_install.sh SOURCE_DIR BUILD_DIR
set -eu
source=$(cd "$1" && pwd) build=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CMAKE_PREFIX_PATH PKG_CONFIG_PATH || true

fail() {
	echo "test_install: $1"
	cat "$work/said"
	exit 1
}

mkdir "$work/engine"
cp "$source/tools/template/gate.c" "$work/engine/"
cat >"$work/engine/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(engine LANGUAGES C)
find_package(plumbline 0.1 REQUIRED)
enable_testing()
foreach(kind right wrong)
  add_library(gate_${kind} MODULE gate.c)
  target_link_libraries(gate_${kind} PRIVATE plumbline::kernel m)
  add_test(NAME gate_${kind} COMMAND plumbline::plumb check ${plumbline_GOLDEN_DIR}/tiny/tiny.h5
    --checkpoint ${plumbline_GOLDEN_DIR}/tiny/checkpoint --view local --layers 3 --quiet --op attn_gate=$<TARGET_FILE:gate_${kind}>)
endforeach()
target_compile_definitions(gate_wrong PRIVATE WRONG)
END

engine() { # engine NAME PREFIX: the engine's own tests, with Plumb found below PREFIX
	cmake -S "$work/engine" -B "$work/engine-$1" -DCMAKE_PREFIX_PATH="$2" >"$work/said" 2>&1 || fail "$1: cmake"
	cmake --build "$work/engine-$1" >"$work/said" 2>&1 || fail "$1: building"
	status=0
	ctest --test-dir "$work/engine-$1" >"$work/said" 2>&1 || status=$?
	[ "$status" -ne 0 ] || fail "$1: ctest passes a wrong kernel"
	grep -q "gate_right .* *Passed" "$work/said" || fail "$1: a right kernel does not pass"
	grep -q "gate_wrong .*\*\*\*Failed" "$work/said" || fail "$1: a wrong kernel does not fail"
	engines=$((engines + 1))
}

module() { # module PREFIX PC_DIR: what pkg-config says leads to files
	for name in plumb golden includedir; do
		path=$(PKG_CONFIG_PATH=$2 pkg-config --variable=$name plumbline)
		[ -e "$path" ] || fail "pkg-config: $name is '$path', which is not there"
		[ "$(realpath "$path" | cut -c "1-${#1}")" = "$1" ] || fail "pkg-config: $name is '$path', not below $1"
	done
	[ "$(PKG_CONFIG_PATH=$2 pkg-config --modversion plumbline)" = "$("$1/bin/plumb" --version | cut -d ' ' -f 2)" ] ||
		fail "pkg-config and plumb have different versions"
}

engines=0
work=$(realpath "$work")
: >"$work/said"
engine in_tree "$build"

cmake --install "$build" --prefix "$work/first" >"$work/said" 2>&1 || fail "cmake --install"
mv "$work/first" "$work/moved"
engine moved "$work/moved"
for file in share/doc/plumbline/LICENSE share/doc/plumbline/docs share/plumbline/template/gate.c share/plumbline/golden/cases include/plumb/kernel.h; do
	[ -e "$work/moved/$file" ] || fail "$file is not installed"
done
[ -z "$(find "$work/moved" -name '*.a' -o -name '*.so')" ] || fail "a library is installed"
if command -v pkg-config >/dev/null; then
	module "$work/moved" "$(dirname "$(find "$work/moved" -name plumbline.pc)")"
fi
sed 's/plumbline 0.1/plumbline 9.0/' "$work/engine/CMakeLists.txt" >"$work/said"
mkdir "$work/newer" && cp "$work/said" "$work/newer/CMakeLists.txt" && cp "$work/engine/gate.c" "$work/newer/"
if cmake -S "$work/newer" -B "$work/newer/build" -DCMAKE_PREFIX_PATH="$work/moved" >"$work/said" 2>&1; then
	fail "a version that is not there is found"
fi

# as a distribution does it: /usr, a lib folder of the architecture, and a staging folder
cmake -S "$source" -B "$work/usr" -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu -DBUILD_TESTING=OFF \
	>"$work/said" 2>&1 || fail "cmake with a multiarch lib folder"
mkdir -p "$work/usr/tools"
cp "$build/tools/plumb" "$work/usr/tools/plumb"
DESTDIR="$work/stage" cmake --install "$work/usr" >"$work/said" 2>&1 || fail "cmake --install with DESTDIR"
if command -v pkg-config >/dev/null; then
	module "$work/stage/usr" "$work/stage/usr/lib/x86_64-linux-gnu/pkgconfig"
fi
engine staged "$work/stage/usr"
echo "test_install: $engines engines found Plumb and were judged"
