#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A golden file from a dump of llama.cpp's evaluation callback (docs/golden-format.md has the callback).

  golden_from_llama.py DUMP OUT.h5 --tokens 1,2,3 --config CHECKPOINT/config.json
  golden_from_llama.py --selftest

DUMP is a folder with a file `manifest` of lines NAME,TYPE,NE0,NE1,NE2,NE3,FILE,OFFSET: one each time a tensor was computed, in
that order, TYPE f32 or i32, the values raw and little-endian at OFFSET of FILE, NE0 varying fastest. Calls of one name are
joined along their last axis, which is the token's. Which tensor is which: NAMES below; --map FILE (JSON, {"name": "dataset"})
adds to it. Tensors that nothing is known of are listed and left out. Needs h5py and numpy.
"""
import argparse
import json
import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from golden_from_transformers import Writer, put  # noqa: E402

# Names that llama.cpp's graph of this model gives, without their layer ("l_last-3"), and the dataset; {} is "layerNN".
# A name in a list is given twice in a layer, the attention's first. LIMIT: as of September 2026; another release may name
# them differently, and then the manifest shows the names that are there.
NAMES = {
    "l_last": "{}/output",
    "l_out": "{}/output",
    "hc_mixed": ["{}/attn_hc/mixed", "{}/mlp_hc/mixed"],
    "linear_attn_qkv_mixed": "{}/gdn/in_proj_qkv/output",
    "z": "{}/gdn/in_proj_z/output",
    "linear_attn_out": "{}/gdn/output",
    "Qcur_normed": "{}/attention/q_norm/output",
    "Kcur_normed": "{}/attention/k_norm/output",
    "indexer_k_raw": "{}/state/indexer_keys",
    "attn_gated": "{}/attention/gated",
    "attn_output": "{}/attention/output",
    "ffn_moe_logits": "{}/moe/router/logits",
    "ffn_moe_topk": "{}/moe/router/experts",
    "ffn_out": "{}/moe/output",
    "result_norm": "mixer/output",
    "result_output": "logits",
}


def text_config(path):
    with open(path, encoding="utf-8") as f:
        config = json.load(f)
    return config.get("text_config") or config


def fail(text):
    sys.exit(f"golden_from_llama.py: {text}")


def read_manifest(folder):
    """[(name, flat values, sizes)] in the order of the dump."""
    import numpy as np
    calls = []
    with open(os.path.join(folder, "manifest"), encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            fields = line.rstrip("\n").split(",")
            if len(fields) != 8 or fields[1] not in ("f32", "i32"):
                fail(f"manifest line {number}: expected NAME,f32|i32,NE0,NE1,NE2,NE3,FILE,OFFSET")
            try:
                ne, offset = [int(x) for x in fields[2:6]], int(fields[7])
            except ValueError:
                fail(f"manifest line {number}: sizes and offset are numbers")
            if min(ne) < 1 or offset < 0 or os.path.basename(fields[6]) != fields[6]:
                fail(f"manifest line {number}: sizes from 1 on, a file of this folder")
            count = ne[0] * ne[1] * ne[2] * ne[3]
            with open(os.path.join(folder, fields[6]), "rb") as data:
                data.seek(offset)
                raw = data.read(4 * count)
            if len(raw) != 4 * count:
                fail(f"{fields[6]}: ends within {fields[0]} (line {number})")
            calls.append((fields[0], np.frombuffer(raw, "<f4" if fields[1] == "f32" else "<i4"), ne))
    return calls


def rows(values, ne, width):
    """As [tokens, width]; width None: nothing is known of it, its first axis."""
    width = width or ne[0]
    if values.size % width:
        fail(f"{values.size} values are no rows of {width}")
    return values.reshape(-1, width)


def width_of(dataset, c):
    """Elements of a token's row, from the config."""
    heads, kv, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    k, v = c["linear_num_key_heads"] * c["linear_key_head_dim"], c["linear_num_value_heads"] * c["linear_value_head_dim"]
    known = {
        "output": c["hc_count"] * c["hidden_size"], "mixed": c["hidden_size"], "gdn/in_proj_qkv/output": 2 * k + v,
        "gdn/in_proj_z/output": v, "q_norm/output": heads * dim, "k_norm/output": kv * dim, "indexer_keys": c["indexer_head_dim"],
        "attention/gated": heads * dim, "router/logits": c["num_experts"], "router/experts": c["num_experts_per_tok"],
        "gdn/output": c["hidden_size"], "attention/output": c["hidden_size"], "moe/output": c["hidden_size"],
        "mixer/output": c["hidden_size"], "logits": c["vocab_size"],
    }
    fits = [end for end in known if dataset == end or dataset.endswith("/" + end)]
    return known[max(fits, key=len)] if fits else None


def value_heads(array, c, start):
    """GGUF has value head g beside key head g mod Hk, safetensors value head h beside key head h div (Hv / Hk): put the value
    heads from column `start` on into the order of safetensors."""
    hk, hv, dim = c["linear_num_key_heads"], c["linear_num_value_heads"], c["linear_value_head_dim"]
    out = array.copy()
    part = array[:, start:].reshape(len(array), hv // hk, hk, dim)
    out[:, start:] = part.transpose(0, 2, 1, 3).reshape(len(array), hv * dim)
    return out


def arrange(dataset, array, c):
    """What differs between a row there and a row of the format."""
    if dataset.endswith("gdn/in_proj_z/output"):
        return value_heads(array, c, 0)
    if dataset.endswith("gdn/in_proj_qkv/output"):
        return value_heads(array, c, 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"])
    for end, heads in (("q_norm/output", "num_attention_heads"), ("k_norm/output", "num_key_value_heads")):
        if dataset.endswith(end):
            return array.reshape(len(array), c[heads], c["head_dim"])
    return array


def convert(folder, out, tokens, config, run, more):
    import numpy as np
    c, names, seen, found, unknown = text_config(config), {**NAMES, **more}, {}, {}, set()
    for name, values, ne in read_manifest(folder):
        base, layer = re.fullmatch(r"(.*?)(?:-(\d+))?", name).groups()
        target = names.get(base)
        if isinstance(target, list):
            turn = seen[name] = seen.get(name, -1) + 1
            target = target[turn % len(target)]
        if target is None or ("{}" in target and layer is None):
            unknown.add(name)
            continue
        dataset = target.format(f"layer{int(layer):02d}") if layer else target
        width = width_of(dataset, c)
        found.setdefault(dataset, []).append(rows(values, ne, width))
    if unknown:
        print(f"left out, not in the map: {', '.join(sorted(unknown))}", file=sys.stderr)
    written = 0
    with Writer(out) as file:
        file.attrs["format"] = 1
        file.attrs["producer"] = "llama.cpp, evaluation callback"
        file.attrs["model_type"] = "qwen4_exp_text"
        put(file, "input_ids", np.array(tokens))
        group = file.create_group(run)
        group.attrs["policy"] = "f32" if run == "fp32" else "bf16"
        for dataset, parts in sorted(found.items()):
            array = np.concatenate(parts)
            if len(array) != len(tokens):
                print(f"left out: {dataset} has rows of {len(array)} of {len(tokens)} tokens", file=sys.stderr)
                continue
            put(group, dataset, arrange(dataset, array, c))
            written += 1
        if not written:
            fail("no tensor of the dump has a row for each token; ask for the logits of all tokens")
    print(f"{out}: {written} tensors, {len(tokens)} tokens")


def selftest():
    try:
        import h5py
        import numpy as np
    except ImportError as missing:
        print(f"selftest: skipped, {missing}")
        return 77
    c = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=3, linear_num_key_heads=2, linear_num_value_heads=6,
             linear_key_head_dim=2, linear_value_head_dim=2, hc_count=2, hidden_size=5, indexer_head_dim=2, num_experts=4,
             num_experts_per_tok=2, vocab_size=7)
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump({"text_config": c}, f)
        with open(os.path.join(folder, "manifest"), "w", encoding="utf-8") as f, open(os.path.join(folder, "data"), "wb") as d:
            def dump(name, array, ne):
                kind = "f32" if array.dtype.kind == "f" else "i32"
                f.write(f"{name},{kind},{','.join(str(n) for n in ne)},data,{d.tell()}\n")
                d.write(array.tobytes())
            out = rng.standard_normal((3, 10)).astype("<f4")
            mixed = rng.standard_normal((2, 3, 5)).astype("<f4")
            z = np.arange(36, dtype="<f4").reshape(3, 12)
            for start, end in ((0, 2), (2, 3)):  # two batches
                n = end - start
                dump("hc_mixed-1", mixed[0, start:end], (5, n, 1, 1))
                dump("z-1", z[start:end], (12, n, 1, 1))
                dump("hc_mixed-1", mixed[1, start:end], (5, n, 1, 1))
                dump("l_last-1", out[start:end], (5, 2, n, 1))
                dump("ffn_moe_topk-1", np.full((n, 2), 3, "<i4"), (2, n, 1, 1))
                dump("noise-1", out[:1], (5, 2, 1, 1))
            dump("result_output", rng.standard_normal((1, 7)).astype("<f4"), (7, 1, 1, 1))  # of the last token only
        path = os.path.join(folder, "out.h5")
        convert(folder, path, [1, 2, 3], os.path.join(folder, "config.json"), "fp32", {})
        with h5py.File(path) as g:
            assert np.array_equal(g["fp32/layer01/output"][:], out)
            assert np.array_equal(g["fp32/layer01/attn_hc/mixed"][:], mixed[0])
            assert np.array_equal(g["fp32/layer01/mlp_hc/mixed"][:], mixed[1])
            assert g["fp32/layer01/moe/router/experts"].shape == (3, 2) and "logits" not in g["fp32"]
            heads = g["fp32/layer01/gdn/in_proj_z/output"][0].reshape(6, 2)[:, 0] // 2  # which of theirs stands where
            assert list(heads) == [0, 2, 4, 1, 3, 5], list(heads)  # key head 0: their 0, 2, 4
    print("selftest: ok")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", nargs="?", metavar="DUMP", help="folder of the dump")
    parser.add_argument("out", nargs="?", metavar="OUT.h5")
    parser.add_argument("--tokens", metavar="1,2,3", help="the prompt, as token ids")
    parser.add_argument("--config", metavar="FILE", help="config.json of the checkpoint that the GGUF was made from")
    parser.add_argument("--run", default="fp32", choices=("fp32", "bf16"), help="which rounding it is held to (default fp32)")
    parser.add_argument("--map", metavar="FILE", help="JSON, more names: {\"l_out\": \"{}/output\"}")
    parser.add_argument("--selftest", action="store_true", help="convert a made-up dump")
    args = parser.parse_args()
    if args.selftest:
        return selftest()
    if not (args.dump and args.out and args.tokens and args.config):
        parser.error("expected DUMP OUT.h5 --tokens --config")
    more = {}
    if args.map:
        with open(args.map, encoding="utf-8") as f:
            more = json.load(f)
    convert(args.dump, args.out, [int(t) for t in args.tokens.split(",")], args.config, args.run, more)
    return 0


if __name__ == "__main__":
    sys.exit(main())
