#!/bin/sh
# SPDX-License-Identifier: MIT
# The Python side of golden files: what other engines write, judged by plumb. usage: test_golden_python.sh SOURCE_DIR PLUMB
# Skipped (77) where python3 has no h5py.
set -eu
source=$1 plumb=$2
python3 -c 'import h5py, numpy' 2>/dev/null || { echo "skipped: python3 has no h5py"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 "$source/tools/golden_from_transformers.py" --selftest self.h5
"$plumb" golden verify self.h5 --checksums # our reading of its checksums and seal
"$plumb" golden diff self.h5 self.h5 --quiet
python3 "$source/tools/golden_from_llama.py" --selftest 2>/dev/null

# the reader and the writer of the page, as they stand there
awk '/^```python file=(writer|reader)[.]py/ { on = 1; next } /^```/ { on = 0 } on' "$source/docs/golden-format.md" >page.py
tiny=$source/golden/tiny
cat >try.py <<'END'
import sys
sys.path.insert(0, sys.argv[2])
from page import read, write
from golden_from_transformers import digest_of
ids, tensors, attributes = read(sys.argv[1] + "/tiny.h5")
assert "transformers" in attributes["producer"] and len(tensors) == 93
layers = [tensors[f"layer{i:02d}/output"] for i in range(4)]
write("minimal.h5", ids, layers, tensors["logits"])
layers[2] = layers[2] * 1.001
write("wrong.h5", ids, layers, tensors["logits"])
assert read("mine.h5")[2]["checkpoint"] == digest_of(sys.argv[1] + "/checkpoint"), "digests of a checkpoint"
END
"$plumb" golden make mine.h5 --checkpoint "$tiny/checkpoint" --tokens 1,2,3 --policy f32 --quiet
PYTHONPATH=$work python3 try.py "$tiny" "$source/tools"
"$plumb" check minimal.h5 --checkpoint "$tiny/checkpoint" --ties torch >said
grep -q 'come from inputs that are not recorded' said
"$plumb" golden verify minimal.h5 --checkpoint "$tiny/checkpoint" --ties torch --quiet
status=0
"$plumb" check wrong.h5 --checkpoint "$tiny/checkpoint" --ties torch --view local >said || status=$?
[ "$status" -eq 1 ] && grep -q 'layer02/output: FAIL' said
echo "golden files from Python: ok"
