#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bytes of a synthetic tensor: a second implementation of core/synthetic_value.h, from docs/synthetic.md.

usage: synthetic.py NAME FORMAT ROWS COLS [--seed N] [--part data|scale|global] [--scale-format f32|bf16]
                    [--first I] [--count N] [--raw]

NAME is a tensor's without prefix and ".weight", e.g. layers.3.mlp.experts.17.gate_proj or embed_tokens.
FORMAT is f32, f16, bf16, fp8_row, fp8_block, fp8_table or nvfp4. I and N count stored values from the start of the
tensor (of nvfp4 data: bytes, two values each). Prints one hexadecimal number a value, or with --raw writes the bytes.
"""
import argparse
import math
import struct
import sys

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
SCALES, GLOBAL = 1 << 62, 1 << 63
UNIT = {"f32": 147.8, "f16": 147.8, "bf16": 147.8, "fp8_row": 111.42, "fp8_block": 111.42, "fp8_table": 108.15,
        "nvfp4": 4.9846}
# end of the name: rms, centre, whether the rms is divided by sqrt(COLS)
ROLES = [
    ("embed_tokens", 1.0, 0.0, False), ("lm_head", 6.0, 0.0, True), ("ngram_embedding", 1.0, 0.0, False),
    ("hc_norm", 0.1, 0.0, False), ("input_mix_weight_down", 4.0, 0.0, True), ("input_mix_weight_up", 1.7, 0.0, True),
    ("block_inject_weight", 4.0, 0.0, True), ("linear_attn.in_proj_qkv", 2.0, 0.0, True),
    ("linear_attn.in_proj_z", 2.0, 0.0, True), ("linear_attn.in_proj_b", 2.0, 0.0, True),
    ("linear_attn.in_proj_a", 2.0, 0.0, True), ("linear_attn.conv1d", 0.5, 0.0, False),
    ("linear_attn.A_log", 1.6, -1.5, False), ("linear_attn.dt_bias", 1.0, 0.0, False),
    ("linear_attn.norm", 0.1, 1.0, False), ("linear_attn.out_proj", 0.37, 0.0, True),
    ("self_attn.q_proj", 2.0, 0.0, True), ("self_attn.k_proj", 2.0, 0.0, True), ("self_attn.v_proj", 2.0, 0.0, True),
    ("self_attn.q_norm", 0.1, 0.5, False), ("self_attn.k_norm", 0.1, 0.5, False), ("self_attn.o_proj", 0.5, 0.0, True),
    ("indexer.index_qk_proj", 2.0, 0.0, True), ("indexer.q_layernorm", 0.1, 0.0, False),
    ("indexer.k_layernorm", 0.1, 0.0, False), ("mlp.gate", 3.0, 0.0, True), ("mlp.shared_expert_gate", 2.0, 0.0, True),
    ("shared_expert.down_proj", 0.5, 0.0, True), (".gate_proj", 2.0, 0.0, True), (".up_proj", 2.0, 0.0, True),
    (".down_proj", 0.75, 0.0, True), ("ple.key_proj", 1.0, 0.0, True), ("ple.value_proj", 0.5, 0.0, True),
    ("ple.norm_key", 0.1, 0.0, False), ("ple.norm_query", 0.1, 0.0, False), ("ple.norm_conv", 0.1, 0.0, False),
    ("ple.conv1d", 0.25, 0.0, False),
]


def f32(x):
    """x rounded to binary32; of a sum or product of two binary32 numbers that is the one rounding."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def bf16_code(x):
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return (u + 0x7FFF + (u >> 16 & 1)) >> 16


def scramble(z):
    z = (z + 0x9E3779B97F4A7C15) & M64
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & M64
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & M64
    return z ^ z >> 31


def key_of(name, seed):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & M64
    return scramble(h ^ scramble(seed))


def word(key, j):
    s = scramble((key + (j >> 32)) & M64)
    x = ((j & M32) + (s & M32)) & M32
    x ^= x >> 16
    x = (x * 0x7FEB352D) & M32
    x ^= x >> 15
    x = (x + (s >> 32)) & M32
    x = (x * 0x846CA68B) & M32
    return x ^ x >> 16


def byte_of(key, first, i):
    return word(key, first + i // 4) >> (8 * (i % 4)) & 0xFF


def plain(form, key, i, step, centre):
    w = word(key, i)
    bell = sum(w >> s & 0xFF for s in (0, 8, 16, 24)) - 510
    value = f32(f32(bell * step) + centre)
    if form == "f32":
        return struct.pack("<f", value)
    return struct.pack("<e", value) if form == "f16" else struct.pack("<H", bf16_code(value))


def data(form, key, i, step, centre):
    if form in ("f32", "f16", "bf16"):
        return plain(form, key, i, step, centre)
    code = byte_of(key, 0, i)
    if form != "nvfp4" and code & 0x7F == 0x7F:
        code -= 1
    return bytes([code])


def scale(form, scale_form, key, i, step):
    if form == "nvfp4":
        return bytes([0x28 + byte_of(key, SCALES, i) % 32])
    value = f32(step * ((128 + (word(key, SCALES + i) >> 24)) / 256))
    return struct.pack("<f", value) if scale_form == "f32" else struct.pack("<H", bf16_code(value))


def global_scale(form, key, step):
    value = f32(step * ((192 + (word(key, GLOBAL) >> 25)) / 256))
    if form == "fp8_table":
        value = struct.unpack("<f", struct.pack("<I", bf16_code(value) << 16))[0]
    return struct.pack("<f", value)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("name")
    p.add_argument("format", choices=sorted(UNIT))
    p.add_argument("rows", type=int)
    p.add_argument("cols", type=int)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--part", choices=["data", "scale", "global"], default="data")
    p.add_argument("--scale-format", choices=["f32", "bf16"])
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--count", type=int)
    p.add_argument("--raw", action="store_true")
    a = p.parse_args()
    rms, centre, per_column = next(((r, c, k) for end, r, c, k in ROLES if a.name.endswith(end)), (1.0, 0.0, False))
    step = f32((rms / math.sqrt(a.cols) if per_column else rms) / UNIT[a.format])
    key = key_of(a.name, a.seed)
    scale_form = a.scale_format or ("bf16" if a.format == "fp8_block" else "f32")
    if a.part == "global" and a.format not in ("nvfp4", "fp8_table"):
        p.error("%s has no global scale" % a.format)
    if a.part == "scale" and a.format not in ("fp8_row", "fp8_block", "nvfp4"):
        p.error("%s has no scales" % a.format)
    total = {
        "data": a.rows * ((a.cols + 1) // 2 if a.format == "nvfp4" else a.cols),
        "scale": {"fp8_row": a.rows, "nvfp4": a.rows * -(-a.cols // 16)}.get(
            a.format, -(-a.rows // 128) * -(-a.cols // 128)),
        "global": 1,
    }[a.part]
    count = total - a.first if a.count is None else a.count
    if a.first < 0 or count < 0 or a.first + count > total:
        p.error("%d values from %d on, expected them in 0..%d" % (count, a.first, total))
    for i in range(a.first, a.first + count):
        if a.part == "data":
            value = data(a.format, key, i, step, f32(centre))
        elif a.part == "scale":
            value = scale(a.format, scale_form, key, i, step)
        else:
            value = global_scale(a.format, key, step)
        if a.raw:
            sys.stdout.buffer.write(value)
        else:
            print(value[::-1].hex())


if __name__ == "__main__":
    main()
