# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/t5_pairs.json and t5_pairs.safetensors: pairs of texts of different lengths, behind whose ends the encoder has
padding (an attention mask), and what the T5s of make_t5.py make of them in float64: loss, ten AdamW steps.

    python3 make_t5_pairs.py [--out DIR]

Development only: tests/engine/test_t5.c reads the stored files. Some seconds.
"""
import argparse
import json
import os

import torch

from make_golden import write_safetensors
from make_t5 import BATCH, DECODER, ENCODER, NEAREST, OPTIMIZER, START, loss_of, nearest_of, train
from make_t5_written import open_model

READ, WRITTEN = (13, 1, 5, 12, 8), (3, 11, 7, 1, 10)  # tokens of each pair
RATE = 1e-4  # of AdamW, whose first steps make much of what fp32 rounds


def batch(vocab, seed):
    torch.manual_seed(seed)
    ids = torch.randint(0, vocab, (BATCH, ENCODER))  # behind an end, too: nothing may hang on them
    written = torch.randint(0, vocab, (BATCH, DECODER))
    there = (torch.arange(ENCODER) < torch.tensor(READ)[:, None]).long()
    labels = torch.where(torch.arange(DECODER) < torch.tensor(WRITTEN)[:, None], written, -1)
    start = torch.cat([torch.full((BATCH, 1), START), written[:, :-1]], 1)
    return ids, there, start, labels


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    out = args.parse_args().out
    torch.set_num_threads(1)
    results, seed = {"optimizer": OPTIMIZER}, 20
    while True:  # one in whose ten steps no unit of ReLU comes near its bend (make_t5.py)
        model = open_model(os.path.join(out, "t5")).train()
        ids, there, start, labels = batch(model.config.vocab_size, seed)
        seen = nearest_of(model)
        train(model, RATE, ids, start, labels, there)
        if seen[0] > NEAREST:
            break
        seed += 1
        assert seed < 200
    for name in ("t5", "t5_v11"):
        model = open_model(os.path.join(out, name)).train()
        losses, norms = train(model, RATE, ids, start, labels, there)
        with torch.no_grad():
            final = loss_of(model, ids, start, labels, there).item()
            whole = loss_of(open_model(os.path.join(out, name)), ids, start, labels).item()
        assert abs(whole - losses[0]) > 1e-3 * losses[0]  # the mask matters
        results[name] = {"lr": RATE, "trained": int((labels >= 0).sum()), "losses": losses, "grad_norms": norms,
                         "final_loss": final}
        print(f"{name}: seed {seed}, loss {losses[0]:.6f} -> {final:.6f}, without a mask {whole:.6f}")
    places = torch.where(there > 0, torch.arange(ENCODER), -1)
    write_safetensors(os.path.join(out, "t5_pairs.safetensors"),
                      {"tokens": torch.cat([ids, start], 1), "targets": torch.cat([torch.full_like(ids, -1), labels], 1),
                       "positions": torch.cat([places, torch.arange(DECODER).expand(BATCH, -1)], 1)})
    with open(os.path.join(out, "t5_pairs.json"), "w") as f:
        json.dump(results, f)
        f.write("\n")


main()
