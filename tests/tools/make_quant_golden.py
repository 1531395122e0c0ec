"""Writes tests/data/quant_golden.json: random blocks of every quantised type and what the `gguf` package expands them to.

    pip install gguf numpy        (made with gguf 0.19.0, numpy 2.4.6)
    python3 tests/tools/make_quant_golden.py > tests/data/quant_golden.json

Blocks are seeded random bytes, so that every bit of every field takes part; only the scales (half floats) are drawn
from a range without NaN and infinity. `blocks` is the hex of the bytes as a file holds them, `values` the hex of the
little-endian float32 results.
"""

import json

import gguf
import numpy as np

# Byte offsets of the half floats in a block.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}  # fmt: skip
N_BLOCKS = 2


def main():
    rng = np.random.default_rng(20240501)
    cases = {}
    for name, offsets in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        _, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (N_BLOCKS, n_bytes), dtype=np.uint8)
        for at in offsets:
            blocks[:, at : at + 2] = rng.normal(0, 0.05, N_BLOCKS).astype("<f2").view(np.uint8).reshape(N_BLOCKS, 2)
        values = gguf.quants.dequantize(blocks, kind)
        cases[name] = {"blocks": blocks.tobytes().hex(), "values": values.astype("<f4").tobytes().hex()}
    about = "Made by tests/tools/make_quant_golden.py with the Python package gguf; see there for the meaning of the fields."
    print(json.dumps({"about": about, "cases": cases}, indent=1))


if __name__ == "__main__":
    main()
