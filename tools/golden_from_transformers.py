#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Golden files by Hugging Face transformers: what its Qwen4Exp implementation computes, in golden format 1.

  golden_from_transformers.py random OUT                    a tiny random model: OUT/checkpoint and OUT/tiny.h5
  golden_from_transformers.py checkpoint DIR OUT.h5 --tokens 1,2,3
  golden_from_transformers.py --selftest [FILE.h5]          the writer alone, on made-up arrays

Needs torch, transformers 5.17 or later and h5py (--selftest: numpy and h5py). Eager attention on the CPU, runs in float32 and
bfloat16; nothing is computed here that transformers does not compute. Format: docs/golden-format.md.
"""
import argparse
import hashlib
import json
import os
import sys
import tempfile

# ---- the format: datasets with checksums, provenance, the seal (golden/seal.h) ----

SEALED = [("", n) for n in ("format", "producer", "date", "model_type", "checkpoint", "config", "set", "device", "mode",
                            "ops", "profile", "kv_format", "state_format", "ties")] + [(r, n) for r in ("fp32", "bf16") for n in ("policy", "prefill")]


def put(group, name, array):
    """A dataset with its checksum: floats as little-endian float32, integers as int64."""
    import numpy as np
    array = np.asarray(array)
    array = np.ascontiguousarray(array, dtype="<f4" if array.dtype.kind == "f" else "<i8")
    if array.size == 0:
        return
    dataset = group.create_dataset(name, data=array, compression="gzip", shuffle=True, track_times=False)
    dataset.attrs["sha256"] = hashlib.sha256(array.tobytes()).hexdigest()


def seal(file):
    """The checksum of everything that is no value. Must come last."""
    import h5py
    names = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    text = ""
    for where, name in SEALED:
        attributes = file.attrs if where == "" else file[where].attrs if where in file else {}
        if name in attributes:
            text += f"a /{where} {name} {attributes[name]}\n"
    for name in sorted(names, key=lambda n: n.encode()):
        d = file[name]
        kind = "f" if d.dtype.kind == "f" else "i"
        text += f"d {name} {kind} {'x'.join(str(n) for n in d.shape)} {d.attrs.get('sha256', '-')}\n"
    file.attrs["sha256"] = hashlib.sha256(text.encode()).hexdigest()


def digest_of(folder):
    """Of a checkpoint: config.json and all *.safetensors by name, as `plumb golden` tells it."""
    names = sorted(n for n in os.listdir(folder) if n == "config.json" or (n.endswith(".safetensors") and len(n) > 12))
    paths = [os.path.join(folder, n) for n in names]
    whole = sum(os.path.getsize(p) for p in paths) <= 1 << 30
    sha = hashlib.sha256()
    for name, path in zip(names, paths):
        size = os.path.getsize(path)
        sha.update(f"{name} {size}\n".encode())
        with open(path, "rb") as f:
            left = size if whole else min(size, 64 << 10)
            while left > 0:
                piece = f.read(min(left, 1 << 20))
                sha.update(piece)
                left -= len(piece)
            for at in range(1 << 20, 0 if whole else size, 1 << 20):
                f.seek(at)
                sha.update(f.read(4 << 10))
    return ("sha256:" if whole else "sha256-sampled:") + sha.hexdigest()


class Writer:
    """A golden file beside its place, moved there when it is complete."""

    def __init__(self, path):
        import h5py
        self.path, self.unfinished = path, f"{path}.unfinished-{os.getpid()}"
        self.file = h5py.File(self.unfinished, "w", libver="v110")

    def __enter__(self):
        return self.file

    def __exit__(self, kind, value, trace):
        if kind is None:
            seal(self.file)
        self.file.close()
        if kind is None:
            os.replace(self.unfinished, self.path)
        else:
            os.unlink(self.unfinished)


# ---- models ----

RANDOM = {
    # name: (text config, prompt length, seed, places of EOS)
    "tiny": (dict(vocab_size=320, hidden_size=64, num_hidden_layers=4, num_attention_heads=12, num_key_value_heads=2, head_dim=32,
                  linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6,
                  moe_intermediate_size=32, shared_expert_intermediate_size=32, num_experts=16, num_experts_per_tok=4,
                  hc_count=4, hc_lowrank=16, ple_layer_ids=[2], ple_embed_dim=64, heads_per_ngram=8, ngram_vocab_size_base=97,
                  make_ngram_vocab_size_divisible_by=8, split_ngram_parts=4, indexer_n_heads=4, indexer_kv_heads=1,
                  indexer_head_dim=16, indexer_budget=16, indexer_compress_ratio=4, output_gate_type="sigmoid"),
             [2, 1, 1], 56, 20260906, (9, 10, 31)),
}


def random_model(text, sections, length, seed, eos_at, theta=1e7, factor=0.25):
    """A model of random weights that are exactly bf16 values, and a prompt with a repeated span and EOS in it."""
    import torch
    from transformers import Qwen4ExpForCausalLM, Qwen4ExpTextConfig
    cfg = Qwen4ExpTextConfig(**text, eos_token_id=3, max_position_embeddings=4096, tie_word_embeddings=False,
                             rope_parameters=dict(rope_type="default", rope_theta=theta, partial_rotary_factor=factor,
                                                  mrope_section=sections, mrope_interleaved=True))
    torch.manual_seed(seed)
    model = Qwen4ExpForCausalLM(cfg).eval()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if name.endswith("A_log"):
                v = torch.log(torch.rand(p.shape, generator=g) * 4 + 0.05)
            elif name.endswith("dt_bias"):
                v = r * 1.5
            elif "norm" in name and p.ndim == 1:
                v = (1.0 + 0.2 * r) if ".linear_attn.norm." in name else 0.2 * r
            elif "conv1d" in name:
                v = 0.5 * r
            elif "embed" in name:
                v = r
            elif "mlp.gate.weight" in name:
                v = 2.0 * r / p.shape[-1] ** 0.5
            else:
                v = 1.2 * r / p.shape[-1] ** 0.5
            p.copy_(v.to(torch.bfloat16).float())
    ids = torch.randint(4, cfg.vocab_size, (1, length), generator=g)
    if length >= 26:
        ids[0, 20:26] = ids[0, 4:10]
    for e in eos_at:
        ids[0, e] = cfg.eos_token_id
    return model, ids


def load(folder, dtype):
    """As from_pretrained leaves it: rope's inv_freq stays float32 in a bfloat16 model, which a cast of it would round."""
    from transformers import AutoModelForCausalLM
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def cache_name(model):
    """What a cache is called: past_key_values until transformers 5.23, then cache."""
    import inspect
    return "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"


# ---- recording ----

def record(model, ids):
    """One pass over the prompt: {name: tensor} of what the modules took and gave."""
    import torch
    out, hooks = {}, []

    def keep(name, t, flat=2):
        """Without the axis of the batch, which is one text; tensors of so many axes do not have it."""
        if torch.is_tensor(t):
            out[name] = t.detach()[0].clone() if t.ndim > flat and t.shape[0] == 1 else t.detach().clone()

    def hook(module, key, names):
        def fn(_, __, result):
            result = result if isinstance(result, tuple) else (result,)
            for n, t in zip(names, result):
                if n:
                    keep(f"{key}/{n}", t)
        hooks.append(module.register_forward_hook(fn))

    def pre(module, key):
        hooks.append(module.register_forward_pre_hook(lambda _, args: keep(key, args[0])))

    m = model.model
    m = getattr(m, "language_model", m)
    hook(m.embed_tokens, "embed", ["output"])
    for i, layer in enumerate(m.layers):
        k = f"layer{i:02d}"
        pre(layer, f"{k}/input")
        hook(layer, k, ["output"])
        if layer.ple is not None:
            hook(layer.ple, f"{k}/ple", ["output"])
            hook(layer.ple.ple_embedding, f"{k}/ple/embedding", ["output"])
        hook(layer.attn_hyper_connection, f"{k}/attn_hc", ["mixed", None, "injection"])
        hook(layer.mlp_hyper_connection, f"{k}/mlp_hc", ["mixed", None, "injection"])
        if hasattr(layer, "linear_attn"):
            a = layer.linear_attn
            hook(a, f"{k}/gdn", ["output"])
            hook(a.norm, f"{k}/gdn/norm", ["output"])
            for part in ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b"):
                hook(getattr(a, part), f"{k}/gdn/{part}", ["output"])
            pre(a.norm, f"{k}/gdn/recurrence")
        else:
            a = layer.self_attn
            hook(a, f"{k}/attention", ["output"])
            hook(a.indexer, f"{k}/qsa", ["selected_mask"])
            for part in ("q_norm", "k_norm", "v_proj"):
                hook(getattr(a, part), f"{k}/attention/{part}", ["output"])
            pre(a.o_proj, f"{k}/attention/gated")
        hook(layer.mlp.gate, f"{k}/moe/router", ["logits", "weights", "experts"])
        hook(layer.mlp.experts, f"{k}/moe/routed", ["output"])
        hook(layer.mlp.shared_expert, f"{k}/moe/shared", ["output"])
        hook(layer.mlp, f"{k}/moe", ["output"])
    hook(m.hyper_connection_mixer, "mixer", ["output"])
    with torch.no_grad():
        r = model(input_ids=ids, use_cache=True)
    for h in hooks:
        h.remove()
    out["logits"] = r.logits[0]
    for i, layer in enumerate(getattr(r, cache_name(model)).layers):
        k = f"layer{i:02d}/state"
        for name in ("conv_states", "recurrent_states"):
            states = getattr(layer, name, None)
            for j, t in (states.items() if isinstance(states, dict) else enumerate(states if states is not None else ())):
                keep(f"{k}/{name}{j}", t, 1)
        for name in ("keys", "values", "indexer_keys", "indexer"):
            t = getattr(layer, name, None)
            if torch.is_tensor(t) and t.numel():
                keep(f"{k}/{name}", t)
    return out


def plain(t):
    return t.float().numpy() if t.is_floating_point() else t.numpy()


def decode(model, ids, prefill):
    """Logits of the tokens after `prefill`, one by one from the cache."""
    import torch
    rows, name = [], cache_name(model)
    with torch.no_grad():
        cache = getattr(model(input_ids=ids[:, :prefill], use_cache=True), name) if prefill > 0 else None
        for t in range(prefill, ids.shape[1]):
            r = model(input_ids=ids[:, t:t + 1], use_cache=True, **{name: cache})
            cache = getattr(r, name)
            rows.append(r.logits[0, -1].float())
    return torch.stack(rows).numpy()


def greedy(model, ids, steps):
    """The continuation by argmax, without a cache; it does not stop at EOS."""
    import torch
    text = ids.clone()
    with torch.no_grad():
        for _ in range(steps):
            text = torch.cat([text, model(input_ids=text).logits[0, -1].argmax().view(1, 1)], 1)
    return text[0, ids.shape[1]:].numpy()


def write_run(file, run, model, ids, args):
    group = file.create_group(run)
    group.attrs["policy"] = "f32" if run == "fp32" else "bf16"
    for name, tensor in record(model, ids).items():
        put(group, name, plain(tensor))
    if run == "fp32" and args.prefill < ids.shape[1]:
        put(group, "decode_logits", decode(model, ids, args.prefill))
        group.attrs["prefill"] = args.prefill
    if run == "fp32" and args.steps > 0:
        put(group, "greedy", greedy(model, ids, args.steps))


def provenance(file, folder, args):
    import torch
    import transformers
    file.attrs["format"] = 1
    file.attrs["producer"] = f"transformers {transformers.__version__}, torch {torch.__version__}, eager attention, CPU"
    file.attrs["model_type"] = "qwen4_exp_text"
    file.attrs["ties"] = "torch"
    file.attrs["checkpoint"] = digest_of(folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = f.read()
    if len(config.encode()) <= 60000:
        file.attrs["config"] = config
    if args.date:
        file.attrs["date"] = args.date


def make(folder, out, ids, args):
    import torch
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if args.prefill is None:
        args.prefill = ids.shape[1] * 2 // 3
    with Writer(out) as file:
        provenance(file, folder, args)
        put(file, "input_ids", ids[0].numpy())
        for run in args.runs.split(","):
            write_run(file, run, load(folder, kinds[run]), ids, args)
    print(out)


# ---- the writer on its own ----

def selftest(path):
    try:
        import h5py
        import numpy as np
    except ImportError as missing:
        print(f"selftest: skipped, {missing}")
        return 77
    rng = np.random.default_rng(1)
    ids = np.arange(5)
    expected = {f"fp32/layer{l:02d}/output": rng.standard_normal((5, 8)).astype("f4") for l in range(2)}
    expected["fp32/logits"] = rng.standard_normal((5, 11)).astype("f4")
    expected["fp32/layer01/moe/router/experts"] = rng.integers(0, 4, (5, 2))
    with Writer(path) as file:
        file.attrs["format"] = 1
        file.attrs["producer"] = "golden_from_transformers.py --selftest"
        file.attrs["ties"] = "lower"
        put(file, "input_ids", ids)
        for name, array in expected.items():
            put(file, name, array)
        file["fp32"].attrs["policy"] = "f32"
    with h5py.File(path) as file:
        for name, array in expected.items():
            assert np.array_equal(file[name][:], array), name
            assert file[name].dtype == ("<f4" if array.dtype.kind == "f" else "<i8"), name
            assert file[name].attrs["sha256"] == hashlib.sha256(file[name][:].tobytes()).hexdigest(), name
        assert len(file.attrs["sha256"]) == 64
    assert not os.path.exists(f"{path}.unfinished-{os.getpid()}")
    try:
        with Writer(path + ".2") as file:
            raise KeyError("stop")
    except KeyError:
        pass
    assert not os.path.exists(path + ".2")
    print("selftest: ok")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--selftest", nargs="?", const="", metavar="FILE.h5", help="write and read made-up arrays")
    commands = parser.add_subparsers(dest="command")
    for name, text in (("random", "a random model, its checkpoint and its golden file"),
                       ("checkpoint", "a checkpoint that is there")):
        c = commands.add_parser(name, help=text, description=text)
        if name == "random":
            c.add_argument("out", metavar="OUT", help="folder to make")
            c.add_argument("--case", default="tiny", choices=sorted(RANDOM))
        else:
            c.add_argument("folder", metavar="DIR", help="checkpoint folder")
            c.add_argument("out", metavar="OUT.h5")
            c.add_argument("--tokens", metavar="1,2,3", required=True, help="the prompt, as token ids, or @FILE with a JSON list")
        c.add_argument("--runs", default="fp32,bf16", help="fp32, bf16 or both (default)")
        c.add_argument("--steps", type=int, default=24, help="greedy tokens after the prompt, in fp32 (0: none)")
        c.add_argument("--prefill", type=int, help="tokens before the cached decode, in fp32 (default two thirds)")
        c.add_argument("--date", help="a date to record")
    args = parser.parse_args()
    if args.selftest is not None:
        if args.selftest:
            return selftest(args.selftest)
        with tempfile.TemporaryDirectory() as folder:
            return selftest(os.path.join(folder, "selftest.h5"))
    if not args.command:
        parser.error("expected random, checkpoint or --selftest")
    if not set(args.runs.split(",")) <= {"fp32", "bf16"}:
        parser.error(f"--runs is '{args.runs}', expected fp32, bf16 or fp32,bf16")
    if args.command == "random":
        import torch
        os.makedirs(args.out, exist_ok=True)
        model, ids = random_model(*RANDOM[args.case])
        folder = os.path.join(args.out, "checkpoint")
        model.to(torch.bfloat16).save_pretrained(folder)
        make(folder, os.path.join(args.out, f"{args.case}.h5"), ids, args)
    else:
        import torch
        tokens = args.tokens
        if tokens.startswith("@"):
            with open(tokens[1:], encoding="utf-8") as f:
                ids = json.load(f)
        else:
            ids = [int(t) for t in tokens.split(",")]
        make(args.folder, args.out, torch.tensor([ids]), args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
