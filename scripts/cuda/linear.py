# SPDX-License-Identifier: Apache-2.0
"""FP8 products as cuBLAS makes them on a Hopper GPU, written down as text: what numerics.accumulate is compared with.

    python3 scripts/cuda/linear.py > linear.txt        (PyTorch, an H100 or H200; a development-time script)

The three products of a layer with a scale per tensor (E4M3 by E4M3, E5M2 by E4M3; with and without cuBLAS's fast
accumulation), and one with a scale per 1 x 128 and 128 x 128 block. A line is NAME ROWS COLS and the bits of the
elements, row by row: 2 digits of a code, 4 of a bf16, 8 of an fp32."""
import torch

E4, E5, GPU = torch.float8_e4m3fn, torch.float8_e5m2, "cuda"


def put(name, x):
    size = x.element_size()
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[size]
    codes = x.contiguous().view(kind).flatten().cpu().tolist()
    rows, cols = x.shape if x.dim() == 2 else (1, 1)
    print(name, rows, cols, "".join(f"{c & (256**size - 1):0{2 * size}x}" for c in codes))


def spread(rows, cols, scale, by):
    return (torch.randn(rows, cols, device=GPU) * scale * torch.exp2(by)).bfloat16()


def whole(name, x, form):
    """One scale: the largest value becomes the format's largest."""
    amax, most = x.abs().max().float(), torch.finfo(form).max
    scale = most / amax
    codes, descale = (x.float() * scale).clamp(-most, most).to(form), scale.reciprocal()
    for what, v in (("", x), ("_amax", amax), ("_codes", codes), ("_descale", descale)):
        put(name + what, v)
    return codes, descale


def blocks(name, x, rows, cols):
    """A scale per block of rows x cols, E4M3."""
    cut = x.float().view(x.shape[0] // rows, rows, x.shape[1] // cols, cols)
    scale = 448 / cut.abs().amax((1, 3))
    codes, descale = (cut * scale[:, None, :, None]).view(x.shape).to(E4), scale.reciprocal()
    for what, v in (("", x), ("_codes", codes), ("_descale", descale)):
        put(name + what, v)
    return codes, descale


def product(a, b, sa, sb, fast):
    return torch._scaled_mm(a.contiguous(), b.contiguous().t(), scale_a=sa, scale_b=sb, out_dtype=torch.float32,
                            use_fast_accum=fast)


torch.manual_seed(3)
T, K, N = 32, 160, 48
x, sx = whole("x", spread(T, K, 1, torch.randn(T, 1, device=GPU)), E4)
w, sw = whole("w", spread(N, K, 0.02, torch.zeros(1, device=GPU)), E4)
dy, sg = whole("dy", spread(T, N, 1e-4, 2 * torch.randn(T, N, device=GPU)), E5)
for fast in (True, False):
    name = "fast" if fast else "slow"
    put("y_" + name, product(x, w, sx, sw, fast))
    put("dx_" + name, product(dy, w.t(), sg, sw, fast))
    put("dw_" + name, product(dy.t(), x.t(), sg, sx, fast))
T, K, N = 32, 384, 128
x, sx = blocks("block_x", spread(T, K, 1, torch.randn(T, 1, device=GPU)), 1, 128)
w, sw = blocks("block_w", spread(N, K, 0.02, torch.zeros(1, device=GPU)), 128, 128)
put("block_y", torch._scaled_mm(x, w.t(), scale_a=sx.t().contiguous().t(), scale_b=sw.t(), out_dtype=torch.float32))
