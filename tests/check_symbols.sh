#!/bin/sh
# SPDX-License-Identifier: MIT
# Usage: check_symbols.sh ARCHIVE. No kernel file shows the linker anything but its launchers. A kernel template that is
# not static would: its simt, race and cuda builds have one name, and the linker would silently keep one for all.
set -eu
objects=$(ar t "$1" | grep -c -E '\.(simt|race)\.cpp\.o$' || true)
bad=$(nm -A -C --defined-only "$1" | grep -E '\.(simt|race)\.cpp\.o:' | grep -E ' [TWVuBDRG] ' |
	grep -v -E ' (plumb_(simt|race)_[a-z0-9_]+|DW\.ref\.__gxx_personality_v0)$' |
	grep -v -E ' (plumb_simt_(plain|race)_build::|dim3::dim3\()' || true)
if [ -n "$bad" ]; then
	echo "kernel files with symbols that should be static:"
	echo "$bad"
	exit 1
fi
echo "$objects kernel objects, launchers only"
