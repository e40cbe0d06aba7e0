#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--shard and plumb merge: the shards of every command that has them give what one run gives, unit by unit and in the digest; and
nothing that is missing, there twice, of another run or edited is taken for a whole. usage: test_shards.py PROGRAM SOURCE_DIR"""
import copy
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

plumb, source = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
TINY = [f"{source}/golden/tiny/tiny.h5", "--checkpoint", f"{source}/golden/tiny/checkpoint"]
runs = 0


def run(*words, status=0):
    global runs
    runs += 1
    done = subprocess.run([plumb, *words], capture_output=True, text=True)
    assert done.returncode == status, f"{words}: exit status {done.returncode}, expected {status}\n{done.stdout[-1500:]}{done.stderr}"
    return done


def read(path):
    with open(path) as f:
        return json.load(f)


def write(path, tree):
    with open(path, "w") as f:
        json.dump(tree, f)
    return path


def whole_and_shards(name, n, *words, options=(), status=0):
    """Run whole and in n shards: the merged result has the units, inputs and digest of the whole. Returns the shards' files."""
    run(*words, *options, "--quiet", "--json", f"{name}.json", status=status)
    files = []
    for i in range(1, n + 1):
        files.append(f"{name}-{i}.json")
        done = subprocess.run([plumb, *words, *options, "--quiet", "--shard", f"{i}/{n}", "--json", files[-1]], capture_output=True, text=True)
        assert done.returncode in (0, status), f"{words} shard {i}/{n}: {done.returncode}: {done.stdout}{done.stderr}"
    run("merge", *files, "--json", f"{name}-merged.json", "--quiet", status=status)
    one, merged = read(f"{name}.json")["shard"], read(f"{name}-merged.json")["shard"]
    for field in ("command", "total", "inputs", "units", "digest", "status"):
        assert one.get(field) == merged.get(field), f"{name}: {field}: {str(one.get(field))[:300]} and {str(merged.get(field))[:300]}"
    assert one["total"] == len(one["units"]) > 0, f"{name}: {one['total']} units"
    shares = [len(read(f)["shard"]["units"]) for f in files]
    assert sum(shares) == one["total"], f"{name}: shares {shares}"
    return files


def share_of(files):
    return [len(read(f)["shard"]["units"]) for f in files]


def refused(*words, names=()):
    """Exit status 2 and one line that has all of the names."""
    done = run(*words, status=2)
    assert done.stderr.count("\n") == 1 and not done.stdout, done.stderr + done.stdout
    for name in names:
        assert name in done.stderr, f"'{name}' is not in: {done.stderr}"


def test_check():
    files = whole_and_shards("check", 3, "check", *TINY)
    shares = share_of(files)
    assert shares[0] == 93 and min(shares[1:]) > 30, shares  # the propagated view; layers of the local one
    first = run("check", *TINY, "--quiet", "--digest").stdout
    assert read("check-merged.json")["shard"]["digest"] in first
    # layers that are not a shard's do not run where the golden has what the next begins with, and run where it has not
    run("golden", "make", "gaps.h5", *TINY[1:], "--prompt-from", TINY[0], "--policy", "f32", "--tensors",
        "layer00/gdn/output,layer01/output,layer02/moe/**,layer03/**,logits", "--quiet")
    files = whole_and_shards("gaps", 3, "check", "gaps.h5", *TINY[1:], options=("--view", "local", "--mode", "twin"))
    assert min(share_of(files)) > 0, share_of(files)
    # a mismatch in one shard is a mismatch of the whole, and the same one
    rules = {"version": 1, "rules": [{"view": v, "policy": p, "max_relative_l2": 1e-6 if p == "f32" else 0.1, "reason": "loose"}
                                     for v in ("local", "propagated") for p in ("f32", "bf16")]}
    rules["rules"].append({"view": "local", "policy": "f32", "suffix": "attention/gated", "max_relative_l2": 1e-12, "reason": "too strict"})
    write("rules.json", rules)
    files = whole_and_shards("strict", 2, "check", *TINY, status=1, options=("--view", "local", "--tolerances", "rules.json"))
    failed = [u["name"] for f in files for u in read(f)["shard"]["units"] if u["verdict"] == "fail"]
    assert failed == ["local/layer03/attention/gated"], failed
    said = run("merge", *files, status=1).stdout
    assert "local/layer03/attention/gated: FAIL" in said and "1 failed" in said.splitlines()[-1], said
    # more shards than units: some have nothing, and only all of them together are a whole
    assert "nothing of this golden" in run("check", *TINY, "--shard", "9/9").stdout


def test_others():
    cases = [f"{source}/golden/cases/{c}.h5" for c in ("argmax", "embed", "moe_router")]
    whole_and_shards("replay", 2, "replay", *cases)
    model = ["--checkpoint", f"{source}/golden/tiny/checkpoint"]
    for name, policy in (("a", "f32"), ("b", "bf16"), ("c", "f32")):
        run("run", *model, "--tokens", "5,17,42" if name != "c" else "5,17", "--steps", "3", "--policy", policy, "--digests", f"{name}.json")
    expect = [word for name in "abc" for word in ("--expect", f"{name}.json")]
    whole_and_shards("run", 2, "run", *model, *expect)
    wrong = read("b.json")
    wrong["tokens"][-1] += 1
    write("b.json", wrong)
    files = whole_and_shards("run", 3, "run", *model, *expect, status=1)
    assert [u["verdict"] for f in files for u in read(f)["shard"]["units"]] == ["pass", "fail", "pass"]
    run("golden", "make", "small.h5", *model, "--tokens", "1,2,3,4", "--tensors", "logits,layer01/output", "--quiet")
    files = whole_and_shards("verify", 3, "golden", "verify", "small.h5", *model)
    assert min(share_of(files)) > 0
    run("bench", "--synthetic", "tiny", "--set", "ref", "--repeat", "1", "--context", "10,20", "--shard", "2/2", "--json", "bench-2.json", "--quiet")
    run("bench", "--synthetic", "tiny", "--set", "ref", "--repeat", "1", "--context", "10,20", "--shard", "1/2", "--json", "bench-1.json", "--quiet")
    run("merge", "bench-1.json", "bench-2.json")
    refused("run", *model, "--tokens", "1", "--shard", "1/2", names=("--shard", "chain of tokens"))
    for text in ("0/2", "3/2", "1", "1/", "/2", "1/2x", "-1/2", "1/0", "1/99999", "a/b", " 1/2", "1/2/3", "99999999999999999999/2"):
        refused("check", *TINY, f"--shard={text}", names=(f"--shard is '{text}'", "I/N"))


def test_merge():
    files = [f"check-{i}.json" for i in (1, 2, 3)]
    shards = [read(f) for f in files]
    done = run("merge", *reversed(files), "--junit", "whole.xml", "--tap", "whole.tap")
    assert done.stdout.splitlines()[-1] == "pass  check: 184 units: 184 passed, 0 failed, 0 skipped, 0 missing", done.stdout
    suite = ET.parse("whole.xml").getroot()[0]
    assert suite.get("tests") == "184" == str(len(suite)) and suite.get("failures") == "0"
    assert len({(c.get("classname"), c.get("name")) for c in suite}) == 184
    with open("whole.tap") as f:
        tap = f.read().splitlines()
    assert tap[:2] == ["TAP version 13", "1..184"] and tap[2].startswith("ok 1 - ") and tap[-1].startswith("ok 184 - ")
    run("merge", "strict-1.json", "strict-2.json", "--junit", "strict.xml", "--tap", "strict.tap", status=1)
    suite = ET.parse("strict.xml").getroot()[0]
    assert suite.get("failures") == "1" and len(suite.findall("testcase/failure")) == 1
    with open("strict.tap") as f:
        assert sum(line.startswith("not ok ") for line in f) == 1
    run("check", *TINY, "--view", "local", "--layers", "3", "--quiet", "--tap", "check.tap")
    with open("check.tap") as f:
        assert len([line for line in f if line.startswith("ok ")]) == 21
    run("merge", "check-merged.json")  # a whole is a shard 1 of 1

    refused("merge", files[0], files[2], names=("1 of 3 shards is missing: 2",))
    refused("merge", files[1], names=("2 of 3 shards are missing: 1, 3",))
    refused("merge", *files, files[1], names=(files[1], "both shard 2 of 3"))
    refused("merge", *files, "replay-1.json", names=("replay-1.json", "shard.command", "'replay'"))
    refused("merge", "gaps-1.json", "check-2.json", "gaps-3.json", names=("shard.inputs.",))
    refused("merge", names=("no result",))
    refused("merge", *files, "--json", files[0], names=("--json", "would overwrite"))
    refused("merge", *files, "--json", "x", "--junit", "x", names=("--json and --junit",))
    assert not os.path.exists("x")

    def edited(change, *names, index=1):
        tree = copy.deepcopy(shards[index])
        change(tree["shard"])
        with_edit = files[:index] + [write("edited.json", tree)] + files[index + 1:]
        refused("merge", *with_edit, "--junit", "never.xml", names=names)
        assert not os.path.exists("never.xml")

    def setter(field, value):
        return lambda s: s.__setitem__(field, value)

    def unit(field, value, k=0):
        return lambda s: s["units"][k].__setitem__(field, value)

    edited(lambda s: s["units"].pop(), "is in no shard")
    edited(lambda s: s["inputs"].update(commit="another"), "edited.json", "shard.inputs.commit is 'another'")
    edited(lambda s: s["units"].append(copy.deepcopy(s["units"][0])), "edited.json", "is in ")
    edited(unit("unit", read(files[0])["shard"]["units"][0]["unit"]), "is in check-1.json")
    edited(unit("unit", 184), "edited.json", "shard.units")
    edited(unit("unit", -1), "edited.json", "shard.units")
    edited(unit("unit", 1.5), "edited.json", "shard.units")
    edited(unit("verdict", "fail"), "edited.json", "shard.status is 0, but 1 of its verdicts failed")
    edited(unit("verdict", "passed"), "edited.json", "pass, fail or skip")
    edited(unit("name", 3), "edited.json", "name")
    edited(setter("status", 1), "shard.status is 1, but 0")
    edited(setter("status", 2), "edited.json", "status")
    edited(setter("index", 4), "edited.json", "index")
    edited(setter("index", 1), "both shard 1 of 3")
    edited(setter("of", 4), "shard.of")
    edited(setter("of", 0), "edited.json", "of")
    edited(setter("total", 185), "shard.total")
    edited(setter("format", "plumb shard 2"), "edited.json", "plumb shard 1")
    edited(setter("command", "replay"), "shard.command")
    edited(setter("units", {}), "edited.json", "shard.units")
    edited(setter("inputs", []), "edited.json", "shard.inputs")
    edited(setter("digest", "xyz"), "edited.json", "shard.digest")
    edited(lambda s: s["inputs"].pop("policy"), "shard.inputs.policy", "(nothing)")
    edited(lambda s: s["inputs"].__setitem__("policy", "bf16"), "shard.inputs.policy", "'bf16'", "'f32'")
    edited(lambda s: s["inputs"].__setitem__("golden", "sha256:0"), "shard.inputs.golden")
    edited(lambda s: s["inputs"].__setitem__("golden", 7), "edited.json", "shard.inputs")
    edited(lambda s: s.clear(), "edited.json")
    for text in ("", "{", "[]", "{}", '{"shard": 3}', '{"shard": {}}', "\0"):
        with open("edited.json", "w") as f:
            f.write(text)
        refused("merge", files[0], "edited.json", files[2], names=("edited.json",))
    refused("merge", files[0], "nowhere.json", files[2], names=("nowhere.json",))

    # nothing passed: skipped throughout, or no units at all, is no pass
    for units in ([], [{"unit": 0, "name": "a/b", "verdict": "skip", "text": "no GPU"}]):
        tree = {"shard": {**shards[0]["shard"], "index": 1, "of": 1, "total": len(units), "units": units}}
        assert "FAIL" in run("merge", write("edited.json", tree), "--quiet", status=1).stdout
    # a shard that died before its verdicts: the whole has failed, and says why
    tree = {"shard": {**shards[1]["shard"], "units": [], "inputs": {}, "total": 0, "status": 1, "failure": "a kernel crashed <&\">"}}
    said = run("merge", files[0], write("edited.json", tree), files[2], "--junit", "died.xml", status=1).stdout
    assert "a kernel crashed" in said and "46 missing" in said, said
    assert "a kernel crashed <&\">" in "".join(f.get("message") for f in ET.parse("died.xml").getroot().iter("failure"))
    # an escape sequence in a name reaches no terminal
    tree = copy.deepcopy(shards[1])
    tree["shard"]["units"][0].update(verdict="fail", text="\x1b[2J", name="a/\x1b[2J")
    tree["shard"]["status"] = 1
    assert "\x1b" not in run("merge", files[0], write("edited.json", tree), files[2], status=1).stdout


def faults_shard(index, of, faults, least=100, **more):
    """The result of a shard of plumb faults, as it writes it (tests/test_faults.c has real ones): faults: (unit, id, kind, outcome)."""
    units, items = [], []
    for unit, name, kind, outcome in faults:
        verdict = {"killed": "pass", "equivalent": "pass", "stillborn": "skip", "survived": "skip" if kind == "mutant" and least < 100 else "fail"}.get(outcome, "fail")
        units.append({"unit": unit, "name": f"F01/{name}", "verdict": verdict})
        items.append({"unit": unit, "id": name, "class": "F01", "kind": kind, "stage": "moe", "lane": "simt", "file": "kernels/moe.cu", "line": 3, "why": "w",
                      "outcome": outcome, "seconds": 1, "checks": 1, **({"killed_by": "replay" if unit % 2 else "test"} if outcome == "killed" else {})})
    failed = any(u["verdict"] == "fail" for u in units)
    inputs = {"producer": "plumb", "faults": "sha256:0", "lane": "simt", "seed": "1", "cases": "400", "least": str(least)}
    tree = {"format": "plumb faults score 1", "lane": "simt", "seed": 1, "seconds": 2, "faults": items,
            "shard": {"format": "plumb shard 1", "command": "faults", "index": index, "of": of, "total": 4, "inputs": inputs, "units": units, "status": int(failed), **more}}
    return write(f"faults-{index}.json", tree)


def test_faults():
    def merged(one, two, status, least=100, words=()):
        files = [faults_shard(1, 2, [(0, "a", *one[0]), (2, "c", *one[1])], least), faults_shard(2, 2, [(1, "b", *two[0]), (3, "d", *two[1])], least)]
        return run("merge", *files, "--json", "faults.json", *words, status=status).stdout

    planted, mutant = ("fault", "killed"), ("mutant", "killed")
    said = merged([planted, mutant], [planted, ("fault", "equivalent")], 0)
    assert "3 of 3 killed (100.0 %); 1 equivalent" in said and said.splitlines()[-1].startswith("pass  faults: 4 units: 4 passed"), said
    whole = read("faults.json")["whole"]
    assert [f["id"] for f in whole["faults"]] == list("abcd") and whole["pass"]
    assert whole["checks"]["replay"]["killed"] == 1 and whole["checks"]["test"]["killed"] == 2 and whole["stages"]["moe"]["total"] == 3
    assert whole["lanes"]["simt"]["by"] == {"test": 2, "replay": 1} and whole["kinds"]["mutant"]["total"] == 1
    run("merge", "faults.json", "--json", "again.json")  # a whole can be merged again
    assert read("again.json")["whole"]["classes"] == whole["classes"]
    said = merged([planted, mutant], [("fault", "survived"), planted], 1)
    assert "survivors" in said and "  b  kernels/moe.cu:3" in said, said
    # an error is the library's or the machine's: no verdict on the suite, as of one run
    assert "errors (nothing" in merged([planted, mutant], [("fault", "error"), planted], 2)
    # --least is of the mutants of all shards together, whatever their part in one of them
    lives = ("mutant", "survived")
    assert "2 of 3 mutants are killed, at least 66 % have to be" in merged([lives, mutant], [planted, mutant], 0, least=66, words=("--junit", "gate.xml"))
    suite = ET.parse("gate.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("5", "0", "1"), suite.attrib
    said = merged([lives, mutant], [planted, mutant], 1, least=67, words=("--tap", "gate.tap"))
    with open("gate.tap") as f:
        assert "not ok 5 - mutants/enough of all together are killed" in f.read()
    run("merge", "faults.json", status=1)
    assert len(read("faults.json")["shard"]["also"]) == 1
    merged([lives, ("fault", "survived")], [mutant, mutant], 1, least=0)  # planted faults: all of them, always
    # a file that contradicts itself is refused
    merged([planted, mutant], [planted, planted], 0)
    shard = read("faults-2.json")
    for change, names in (
            (lambda t: t["faults"][0].__setitem__("outcome", "survived"), ("edited.json", "b is unit 1", "survived")),
            (lambda t: t["faults"][0].__setitem__("outcome", "dead"), ("edited.json", "outcome is 'dead'")),
            (lambda t: t["faults"][0].__setitem__("unit", 3), ("edited.json", "unit 3")),
            (lambda t: t["faults"][0].pop("killed_by"), ("edited.json", "killed_by")),
            (lambda t: t["faults"][1].pop("stage"), ("edited.json", "stage")),
            (lambda t: t["faults"][1].__setitem__("line", -1), ("edited.json", "line")),
            (lambda t: t["faults"].pop(), ("edited.json", "fewer than shard.units")),
            (lambda t: t["faults"].append(t["faults"][0]), ("edited.json", "more than shard.units")),
            (lambda t: t.__setitem__("format", "x"), ("edited.json", "plumb faults score 1")),
            (lambda t: t.pop("faults"), ("edited.json", "faults")),
            (lambda t: t["shard"]["inputs"].__setitem__("least", "90"), ("shard.inputs.least",)),
            (lambda t: t["shard"]["inputs"].__setitem__("faults", "sha256:1"), ("shard.inputs.faults",))):
        tree = copy.deepcopy(shard)
        change(tree)
        refused("merge", "faults-1.json", write("edited.json", tree), "--html", "never.html", names=names)
        assert not os.path.exists("never.html")
    for least in ("101", "-1", "x", "", "9 "):
        trees = [read("faults-1.json"), read("faults-2.json")]
        for tree in trees:
            tree["shard"]["inputs"]["least"] = least
        refused("merge", write("x1.json", trees[0]), write("x2.json", trees[1]), names=("x1.json", "shard.inputs.least"))
    # a shard whose unmutated files failed: the whole has failed
    dead = faults_shard(2, 2, [], failure="the unmutated control fails <x>", status=1)
    said = run("merge", "faults-1.json", dead, "--html", "dead.html", status=1).stdout
    assert "the unmutated control fails" in said and "2 missing" in said, said
    with open("dead.html") as f:
        assert "control fails &lt;x&gt;" in f.read()


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    os.environ.pop("COLUMNS", None)
    test_check()
    test_others()
    test_merge()
    test_faults()
    os.chdir("/")
print(f"test_shards: {runs} runs of plumb; shards are merged to what one run gives")
