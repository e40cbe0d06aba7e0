#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every test has a label to choose it by, and one that needs a GPU says so to ctest, which then gives it one of its own.
usage: test_labels.py CTEST BUILD_DIR"""
import json
import subprocess
import sys

KNOWN = {"unit", "simt", "gpu", "golden", "faults", "long", "cuda", "fuzz"}


def wrong(tests):
    """What is odd in the tests of ctest's JSON, a line each."""
    for test in tests:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        labels = set(properties.get("LABELS", []))
        name = test["name"]
        if not labels & KNOWN:
            yield f"{name}: no label, expected one of {' '.join(sorted(KNOWN))}"
        if labels - KNOWN:
            yield f"{name}: label {' '.join(sorted(labels - KNOWN))}, expected one of {' '.join(sorted(KNOWN))}"
        asks = [r.get(".type", r.get("type")) for g in properties.get("RESOURCE_GROUPS", []) for r in g["requirements"]]
        if ("gpu" in labels) != (asks == ["gpus"]):
            yield f"{name}: labels {' '.join(sorted(labels))}, but it asks for {asks or 'no GPU'} of a resource specification"
        if "gpu" in labels and test.get("command") and "CTEST_RESOURCE_GROUP_0_GPUS" not in " ".join(test["command"]):
            yield f"{name}: needs a GPU and does not look at which one ctest gives it"


one = {"name": "a", "command": ["a"], "properties": [{"name": "LABELS", "value": ["unit"]}]}
assert not list(wrong([one]))
for odd in ({"properties": []}, {"properties": [{"name": "LABELS", "value": ["unti"]}]}, {"properties": [{"name": "LABELS", "value": ["gpu"]}]}):
    assert list(wrong([{**one, **odd}])), f"{odd} passes"

said = subprocess.run([sys.argv[1], "--test-dir", sys.argv[2], "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout
tests = json.loads(said)["tests"]
lines = list(wrong(tests))
print("\n".join(lines) or f"test_labels: {len(tests)} tests")
sys.exit(bool(lines) or len(tests) < 40)
