#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random models by Hugging Face transformers against Plumb: the reference is held to what somebody else computes.

  transformers_trials.py PLUMB [--first SEED] [--count N] [--keep DIR] [--draw SEED]

Each seed draws a config (odd widths, 1 to 8 layers in any order, grouped heads, n-grams of 2 to 4, several block lengths, prompts
of 1 to 90 tokens ...), weights and a prompt. transformers makes checkpoint and golden file (tools/golden_from_transformers.py),
and `plumb check` has to pass: oracle in f32 and, op by op, in bf16, the kernels on the CPU, and the twin within its derived bounds. A model
that fails is kept, and the line that checks it again is printed. Exit status 1 if one failed, 2 if none could be made.
Needs torch, transformers 5.17 or later and h5py. About 3 s a model.
"""
import argparse
import contextlib
import io
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile

import golden_from_transformers as golden

# From the tokens on, a random model in bf16 is chaos: a value that was rounded the other way can turn a whole row of what is normed behind it.
WAYS = (["--policy", "f32"], ["--policy", "bf16", "--view", "local"], ["--policy", "f32", "--set", "opt", "--view", "local"],
        ["--policy", "bf16", "--set", "opt", "--view", "local"],
        ["--policy", "f32", "--mode", "twin", "--bounds", "--view", "local"])


def draw(seed):
    """Arguments of golden.random_model. What transformers refuses is not drawn: a model without attention, PLE before it,
    expert widths that are no multiple of 8, fewer than two streams."""
    r = random.Random(seed)
    pick = r.choice
    kv, head_dim, key_heads = pick([1, 1, 2, 3]), pick([16, 24, 32, 48, 64]), pick([1, 2, 3])
    rotary = min(head_dim, pick([2, 4, 8, 8, 12]))
    factor = rotary / head_dim
    if int(head_dim * factor) != rotary:
        factor = (rotary + 0.01) / head_dim
    second = r.randint(0, rotary // 2)
    third = r.randint(0, rotary // 2 - second)
    layers = [pick(["linear_attention", "full_attention"]) for _ in range(pick([1, 2, 3, 4, 5, 8]))]
    if "full_attention" not in layers:
        layers[-1] = "full_attention"
    linear = [i + 1 for i, kind in enumerate(layers) if kind == "linear_attention"]
    ngram, per_ngram = pick([2, 3, 3, 4]), pick([1, 2, 4, 8])
    ratio, experts, length = pick([1, 2, 3, 4, 8]), pick([2, 5, 8, 16, 33]), pick([1, 2, 5, 17, 40, 56, 90])
    text = dict(
        vocab_size=pick([131, 200, 320, 511]), hidden_size=pick([24, 40, 64, 72, 96, 128]), num_hidden_layers=len(layers),
        layer_types=layers, num_attention_heads=kv * pick([1, 2, 4, 6]), num_key_value_heads=kv, head_dim=head_dim,
        linear_key_head_dim=pick([8, 16, 24, 32]), linear_value_head_dim=pick([8, 16, 20, 32]), linear_num_key_heads=key_heads,
        linear_num_value_heads=key_heads * pick([1, 2, 3, 4]), linear_conv_kernel_dim=pick([2, 3, 4, 4, 5]),
        moe_intermediate_size=pick([8, 16, 32, 40]), shared_expert_intermediate_size=pick([8, 16, 32, 48]),
        num_experts=experts, num_experts_per_tok=min(experts, pick([1, 2, 4, 8, 10])), norm_topk_prob=pick([True, True, False]),
        hc_count=pick([2, 3, 4, 4, 4, 5]), hc_lowrank=pick([4, 8, 16, 20]),
        ple_layer_ids=sorted(r.sample(linear, min(len(linear), pick([0, 1, 1, 2])))),
        ple_embed_dim=(ngram - 1) * per_ngram * pick([4, 8, 16]), heads_per_ngram=per_ngram, ngram_size=ngram,
        ple_conv_kernel_size=pick([2, 3, 4, 4]), ngram_vocab_size_base=pick([17, 97, 97, 211]),
        make_ngram_vocab_size_divisible_by=pick([1, 8, 16, 128]), split_ngram_parts=pick([1, 2, 4, 8]),
        indexer_n_heads=pick([1, 2, 4, 5]), indexer_kv_heads=1, indexer_head_dim=max(rotary, pick([8, 16, 24, 32])),
        indexer_budget=ratio * pick([1, 2, 3, 5, 8]), indexer_compress_ratio=ratio, output_gate_type=pick(["sigmoid", "silu"]),
        rms_norm_eps=pick([1e-6, 1e-5]))
    eos_at = r.sample(range(length), min(length, pick([0, 1, 3])))
    return text, [rotary // 2 - second - third, second, third], length, seed, eos_at, pick([1e4, 5e6, 1e7]), factor


def make(folder, seed):
    import torch
    model, ids = golden.random_model(*draw(seed))
    checkpoint = os.path.join(folder, "checkpoint")
    model.to(torch.bfloat16).save_pretrained(checkpoint)
    args = argparse.Namespace(runs="fp32,bf16", steps=8, prefill=None, date=None)
    with contextlib.redirect_stdout(io.StringIO()):
        golden.make(checkpoint, os.path.join(folder, "golden.h5"), ids, args)


def check(plumb, folder):
    """Commands that failed, and what they said."""
    failed = []
    for way in WAYS:
        command = [plumb, "check", os.path.join(folder, "golden.h5"), "--checkpoint", os.path.join(folder, "checkpoint"), *way]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            told = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "FAIL" in line or "plumb" in line]
            failed.append((shlex.join(command), told[:6]))
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plumb", metavar="PLUMB", help="the program")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--count", type=int, default=100, metavar="N")
    parser.add_argument("--keep", metavar="DIR", help="where models that fail are kept (default: a new temporary folder)")
    parser.add_argument("--draw", type=int, metavar="SEED", help="show what a seed draws, and do nothing")
    args = parser.parse_args()
    if args.draw is not None:
        print(draw(args.draw))
        return 0
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    keep = args.keep or tempfile.mkdtemp(prefix="transformers-trials-")
    passed, failed, refused = 0, 0, 0
    for seed in range(args.first, args.first + args.count):
        folder = os.path.join(keep, str(seed))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        try:
            make(folder, seed)
        except Exception as error:  # whatever transformers does not do
            refused += 1
            print(f"{seed}  transformers does not run it: {' '.join(str(error).split())[:150]}", flush=True)
            shutil.rmtree(folder)
            continue
        wrong = check(args.plumb, folder)
        for command, told in wrong:
            print(f"{seed}  FAIL  {command}")
            for line in told:
                print(f"        {line[:200]}")
        failed += bool(wrong)
        passed += not wrong
        if not wrong:
            shutil.rmtree(folder)
        print(f"{seed}  {'FAIL' if wrong else 'pass'}", flush=True)
    print(f"{'FAIL' if failed else 'pass'}  {passed} of {passed + failed} random models of transformers {transformers.__version__}; "
          f"{refused} that it does not run" + (f"; kept in {keep}" if failed else ""))
    return 1 if failed else 0 if passed else 2


if __name__ == "__main__":
    sys.exit(main())
