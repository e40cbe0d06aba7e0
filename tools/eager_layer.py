#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A whole layer of the release's widths, one token of decode: the reference against transformers eager, on the same CPU.

  eager_layer.py [--plumb build/release/tools/plumb] [--context 512] [--threads 2] [--rounds 3] [--dtype bf16,f32]

Both sides take turns, a round each: the machine may have other work. transformers: a GDN layer and an attention layer of random
weights (their experts are the same), caches filled by a prefill of --context tokens, the time between a layer's entry and its
return; 1 GiB is read between tokens, so weights come from memory there as they do in bench. The reference: `plumb bench --synthetic
layer4 --set ref`, the sum of the calls that make up such a layer, weights resident. Same shapes, same threads, bf16 weights; eager
f32 holds them as f32, as transformers does. All 512 experts are resident where half of the free memory holds them, else fewer with the
same ten chosen (told; the router is smaller then, in eager's favour). Needs torch and transformers 5.17 or later.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

WIDTHS = dict(vocab_size=1024, hidden_size=2560, num_attention_heads=24, num_key_value_heads=2, head_dim=256, linear_num_key_heads=16,
              linear_num_value_heads=48, linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4,
              output_gate_type="sigmoid", eos_token_id=3, num_experts_per_tok=10, moe_intermediate_size=640,
              shared_expert_intermediate_size=640, hc_count=4, hc_lowrank=320, ple_layer_ids=[], indexer_n_heads=4, indexer_kv_heads=1,
              indexer_head_dim=128, indexer_budget=2048, indexer_compress_ratio=4, tie_word_embeddings=False)
COLD = (1 << 30) // 8  # words read between eager's tokens: 1 GiB, twice the largest last cache so far
# calls of one layer
SITE = {"hc_norm_down": 2, "hc_up_mix": 2, "hc_inject": 2, "moe_router": 1, "moe_gate_up": 1, "moe_down": 1}
CALLS = {
    "gdn": {**SITE, **dict.fromkeys(["gdn_in_proj", "gdn_conv", "gdn_recurrence", "gdn_norm_gate", "gdn_out_proj"], 1)},
    "attention": {**SITE, **dict.fromkeys(["attn_in_proj", "attn_qk_rope", "qsa_project", "qsa_score", "qsa_select", "attn_decode",
                                           "attn_gate", "attn_out_proj"], 1)},
}


def experts_that_fit(value_bytes):
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with open("/proc/meminfo") as f:
        available = max([available] + [int(line.split()[1]) * 1024 for line in f if line.startswith("MemAvailable")])
    count = 512
    while count > 16 and count * 3 * 2560 * 640 * value_bytes > available // 2:
        count //= 2
    return count


def eager(dtype, experts, context):
    """A function that gives the seconds of each layer for one more token."""
    import torch
    from transformers import Qwen4ExpForCausalLM, Qwen4ExpTextConfig
    cfg = Qwen4ExpTextConfig(**WIDTHS, num_experts=experts, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"],
                             rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25,
                                                  mrope_section=[11, 11, 10], mrope_interleaved=True))
    cfg._attn_implementation = "eager"
    torch.set_default_dtype(dtype)
    with torch.device("meta"):
        model = Qwen4ExpForCausalLM(cfg)
    layers = model.model.layers
    layers[1].mlp = layers[0].mlp  # one set of experts in memory
    model = model.to_empty(device="cpu").eval()
    block = torch.randn(1 << 20, generator=torch.Generator().manual_seed(1), dtype=torch.float32).mul_(0.02).to(dtype)
    with torch.no_grad():
        for p in model.parameters():
            flat = p.view(-1)
            for at in range(0, flat.numel(), block.numel()):
                piece = flat[at:at + block.numel()]
                piece.copy_(block[:piece.numel()])
        for module in model.modules():
            if hasattr(module, "inv_freq"):
                module.inv_freq = 1.0 / (1e7 ** (torch.arange(0, 64, 2, dtype=torch.float32) / 64))
    cold = torch.zeros(COLD, dtype=torch.int64)
    start, seconds = {}, {}
    for kind, layer in zip(CALLS, layers):
        layer.register_forward_pre_hook(lambda *_, k=kind: start.update({k: time.perf_counter()}))
        layer.register_forward_hook(lambda *_, k=kind: seconds.update({k: time.perf_counter() - start[k]}))
    draw = torch.Generator().manual_seed(2)
    state = {}

    def step(tokens):
        with torch.no_grad():
            cold.sum()
            out = model(input_ids=torch.randint(4, 1000, (1, tokens), generator=draw), past_key_values=state.get("cache"),
                        use_cache=True)
        state["cache"] = out.past_key_values
        return dict(seconds)
    step(context)
    for _ in range(2):
        step(1)
    return lambda: step(1)


def reference(plumb, mode, policy, context, threads, repeat):
    """Seconds of a layer of each kind: (median, least) of the calls' sums."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bench.json")
        subprocess.run([plumb, "bench", "--synthetic", "layer4", "--set", "ref", "--mode", mode, "--policy", policy, "--context",
                        str(context), "--threads", str(threads), "--repeat", str(repeat), "--json", path],
                       check=True, stdout=subprocess.DEVNULL)
        with open(path) as f:
            tree = json.load(f)
    op = {o["name"]: o for o in tree["contexts"][0]["ops"]}
    return {kind: tuple(1e-6 * sum(op[name][field] * n for name, n in calls.items()) for field in ("us_per_call", "least_us_per_call"))
            for kind, calls in CALLS.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--plumb", default="build/release/tools/plumb")
    p.add_argument("--context", type=int, default=512)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--repeat", type=int, default=5, help="tokens a round")
    p.add_argument("--dtype", default="bf16,f32")
    a = p.parse_args()
    import torch
    import transformers
    torch.set_num_threads(a.threads)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}; {a.threads} threads; context {a.context}; "
          f"{a.rounds} rounds of {a.repeat} tokens, taking turns; ms a token and layer")
    print(f"{'layer':<10} {'who':<22} {'median':>9} {'least':>9}")
    for name in a.dtype.split(","):
        dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[name]
        experts = experts_that_fit(dtype.itemsize)
        if experts < 512:
            print(f"{name}: {experts} of 512 experts resident, 10 chosen")
        token = eager(dtype, experts, a.context)
        runs = []  # (who, seconds by kind: (median, least)) of each round
        for _ in range(a.rounds):
            tokens = [token() for _ in range(a.repeat)]
            runs.append((f"eager {name}", {k: (statistics.median(t[k] for t in tokens), min(t[k] for t in tokens)) for k in CALLS}))
            for mode in ("oracle", "twin"):
                runs.append((f"{mode}, policy {name}", reference(a.plumb, mode, name, a.context, a.threads, a.repeat)))
        for kind in CALLS:
            for who in dict.fromkeys(who for who, _ in runs):
                both = [times[kind] for by, times in runs if by == who]
                print(f"{kind:<10} {who:<22} {1e3 * statistics.median(m for m, _ in both):9.1f} {1e3 * min(l for _, l in both):9.1f}",
                      flush=True)
        del token
    return 0


if __name__ == "__main__":
    sys.exit(main())
