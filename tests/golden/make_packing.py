# SPDX-License-Identifier: Apache-2.0
"""What bitsandbytes makes of a matrix: python3 tests/golden/make_packing.py > tests/layout/packing.txt

NF4 in blocks of 64 with double quantisation, on its CPU path. The matrix is a function of the index that tests/layout/test_packed_base.c has,
too. Each line is a name and numbers in hexadecimal: codes as they lie in bytes, codes of scales, scales of scales (fp32 bits), their mean,
then some of the values that it reads back. Wants torch and bitsandbytes.
"""
import numpy
import torch
import bitsandbytes
from bitsandbytes import functional

ROWS, COLS = 80, 256


def matrix():
    """Integers of 24 bits by a congruential generator, times a size that differs from row to row: exact in fp32."""
    out, word = numpy.zeros((ROWS, COLS), numpy.float32), 12345
    for r in range(ROWS):
        for c in range(COLS):
            word = (word * 1664525 + 1013904223) % 2**32
            out[r, c] = numpy.float32((word >> 8) - 2**23) * numpy.float32(2.0 ** (-26 - r % 3))
    out[7, :64] = 0
    return out


def bits(x):
    return x.detach().numpy().astype(numpy.float32).view(numpy.uint32).reshape(-1)


def main():
    x = torch.from_numpy(matrix())
    codes, state = functional.quantize_4bit(x, blocksize=64, compress_statistics=True, quant_type="nf4")
    back = functional.dequantize_4bit(codes, state)
    print(f"# bitsandbytes {bitsandbytes.__version__}, torch {torch.__version__.split('+')[0]}")
    lines = {
        "map": bits(state.state2.code),
        "codes": codes.numpy().reshape(-1)[::7],
        "scales": state.absmax.numpy().reshape(-1),
        "groups": bits(state.state2.absmax),
        "mean": bits(state.offset.reshape(1)),
        "values": bits(back)[::97],
    }
    for name, numbers in lines.items():
        print(name, " ".join(f"{int(v):x}" for v in numbers))


if __name__ == "__main__":
    main()
