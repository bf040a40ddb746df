#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ten steps of each optimizer by other people's code: writes torch_steps.txt, which test_steps.c compares with.

    pip install torch lion-pytorch transformers bitsandbytes    (into a folder of its own; the tests need none of it)
    python3 tests/optim/make_torch.py > tests/optim/torch_steps.txt

Weights and gradients are the integers' own: weight i is value(7919, i, 0) / 2, its gradient in step t value(104729, i, t),
with a row in eight that has none. A wide matrix, a tall one and a vector lie one after the other. One line per optimizer:
its name, then all weights after the last step, as float32 in hexadecimal bits."""
import struct
import sys

import torch

SHAPES = [(12, 20), (20, 12), (20,)]
STEPS, LR, DECAY = 10, 0.02, 0.1


def value(factor, i, t):
    return ((i * i * 31 + i * factor + t * 15485863 + 13) % 2003 - 1001) / 1001


def weights():
    at, out = 0, []
    for shape in SHAPES:
        n = torch.Size(shape).numel()
        out.append(torch.tensor([value(7919, at + i, 0) / 2 for i in range(n)], dtype=torch.float32).reshape(shape))
        at += n
    return [torch.nn.Parameter(w) for w in out]


def gradients(t):
    at, out = 0, []
    for shape in SHAPES:
        n = torch.Size(shape).numel()
        g = [value(104729, at + i, t) if (i // shape[-1]) % 8 != 3 else 0.0 for i in range(n)]
        out.append(torch.tensor(g, dtype=torch.float32).reshape(shape))
        at += n
    return out


def run(name, make, groups=True):
    p = weights()
    sets = [{"params": p[:2], "weight_decay": DECAY}, {"params": p[2:], "weight_decay": 0.0}]
    steppers = make(sets if groups else p)
    for t in range(1, STEPS + 1):
        for w, g in zip(p, gradients(t)):
            w.grad = g.clone()
        for o in steppers:
            o.step()
    flat = torch.cat([w.detach().flatten() for w in p])
    print(name, " ".join(struct.pack(">f", float(x)).hex() for x in flat))


class BlockAdamW:
    """AdamW with moments in blocks of a row: bitsandbytes' maps and quantisation, or PyTorch's fp8 and fp16. A second moment
    above 0 keeps the smallest code at least."""

    def __init__(self, sets, fp8):
        from bitsandbytes import functional
        self.f, self.fp8, self.t = functional, fp8, 0
        self.map = [functional.create_dynamic_map(True), functional.create_dynamic_map(False)]
        self.p = [(w, s["weight_decay"], [torch.zeros_like(w), torch.zeros_like(w)]) for s in sets for w in s["params"]]

    def keep(self, row, second):
        most = row.abs().max()
        if self.fp8:
            scale = most / (65504 if second else 448)
            y = row / scale
            y = torch.where((y > 0) & (y < 2**-24), torch.full_like(y, 2**-24), y) if second else y
            return y.to(torch.float16 if second else torch.float8_e4m3fn).float() * scale
        code, state = self.f.quantize_blockwise(row.contiguous(), code=self.map[second], blocksize=256)
        out = self.f.dequantize_blockwise(code, state)
        least = self.map[1][self.map[1] > 0].min() * most
        return torch.where((row > 0) & (out == 0), least, out) if second else out

    def step(self):
        self.t += 1
        with torch.no_grad():
            for w, decay, state in self.p:
                m = 0.9 * state[0] + 0.1 * w.grad
                v = 0.95 * state[1] + 0.05 * w.grad * w.grad
                w -= LR * decay * w
                w -= LR / (1 - 0.9**self.t) * m / (v.sqrt() / (1 - 0.95**self.t) ** 0.5 + 1e-8)
                for k, x in enumerate((m, v)):
                    rows = [self.keep(r, k) if float(r.abs().max()) > 0 else r for r in x] if w.dim() == 2 else x
                    state[k] = torch.stack(rows) if w.dim() == 2 else rows


def main():
    print("# torch", torch.__version__, file=sys.stderr)
    run("adamw", lambda s: [torch.optim.AdamW(s, lr=LR, betas=(0.9, 0.95), eps=1e-8)])
    run("sgd", lambda s: [torch.optim.SGD(s, lr=LR, momentum=0.9, nesterov=True)])
    run("muon", lambda s: [torch.optim.Muon(s[0]["params"], lr=LR, weight_decay=DECAY, momentum=0.95, nesterov=True,
                                            adjust_lr_fn="match_rms_adamw"),
                           torch.optim.AdamW(s[1]["params"], lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)])
    from transformers.optimization import Adafactor
    run("adafactor", lambda s: [Adafactor(s, lr=LR, scale_parameter=False, relative_step=False, warmup_init=False)])
    run("adafactor-relative", lambda s: [Adafactor(s, lr=LR, scale_parameter=True, relative_step=False, warmup_init=False)])
    run("adamw-8bit", lambda s: [BlockAdamW(s, False)])
    run("adamw-fp8", lambda s: [BlockAdamW(s, True)])
    from lion_pytorch import Lion
    run("lion", lambda s: [Lion(s, lr=LR / 10, betas=(0.9, 0.99), decoupled_weight_decay=False)])


main()
