#!/bin/sh
# SPDX-License-Identifier: MIT
# The main job from nothing: install what is missing, build, and compare every layer of a checkpoint written by Hugging Face
# transformers with the tensors that transformers itself produced.
set -eu
cd "$(dirname "$0")/.."
sh tools/packages.sh
[ -x build/release/tools/plumb ] || echo "demo.sh: building, a minute or two"
cmake --preset release >build-demo.log 2>&1 && cmake --build --preset release --target plumb >>build-demo.log 2>&1 || {
	tail -n 30 build-demo.log >&2
	echo "demo.sh: the build failed; build-demo.log has all of it" >&2
	exit 2
}
rm -f build-demo.log
plumb=build/release/tools/plumb
tiny="golden/tiny/tiny.h5 --checkpoint golden/tiny/checkpoint"

set -x
$plumb check $tiny
$plumb run --checkpoint golden/tiny/checkpoint --tokens 5,17,42,99 --steps 12
