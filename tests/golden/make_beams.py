# SPDX-License-Identifier: Apache-2.0
"""What the transformers library finds by beam search with the models of families/: beams.txt, which tests/decode/test_beam_text
compares. Development time only.

    python3 tests/golden/make_beams.py        # transformers 5.24.0, PyTorch 2.15.0, CPU

A line: model, beams, length penalty, new tokens at most, score of the best, tokens of the prompt, |, tokens that it found (with the
one that ends a text). Searched in float64 with early_stopping="never". A case is kept where logits that are a little off, by up to
1e-3 and differently each of twelve times, lead to the same tokens: so no rounding of another order of sums decides it.
"""
import os
import random

import torch
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = ["qwen2", "mistral", "gemma3", "phi3", "smollm3", "mamba2"]
OFF, AGAIN, KEPT = 1e-3, 12, 5


class Shaken(transformers.LogitsProcessor):
    def __init__(self, seed):
        self.random = torch.Generator().manual_seed(seed)

    def __call__(self, ids, scores):
        return scores + OFF * (2 * torch.rand(scores.shape, generator=self.random, dtype=scores.dtype) - 1)


def search(model, prompt, beams, penalty, new, shaken=None):
    out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), num_beams=beams,
                         do_sample=False, length_penalty=penalty, max_new_tokens=new, early_stopping="never", pad_token_id=0,
                         return_dict_in_generate=True, output_scores=True,
                         logits_processor=transformers.LogitsProcessorList([Shaken(shaken)] if shaken is not None else []))
    found = out.sequences[0].tolist()[len(prompt):]
    if 1 in found:
        found = found[:found.index(1) + 1]
    return found, out.sequences_scores[0].item()


def main():
    rng = random.Random(1)
    lines = []
    for name in MODELS:
        model = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(HERE, "families", name), dtype=torch.float64)
        model.eval()
        kept = 0
        for beams, penalty in [(4, 1.0), (3, 0.0), (2, 2.0), (6, 0.5), (5, 1.0), (3, -1.0), (8, 1.0), (4, 2.0), (2, 1.0)] * 3:
            prompt = [rng.randrange(2, 31) for _ in range(rng.randrange(1, 20))]
            new = rng.randrange(4, 20)
            found, score = search(model, prompt, beams, penalty, new)
            if any(search(model, prompt, beams, penalty, new, k)[0] != found for k in range(AGAIN)):
                continue
            lines.append("%s %d %g %d %.9g %s | %s" % (name, beams, penalty, new, score, " ".join(map(str, prompt)),
                                                       " ".join(map(str, found))))
            kept += 1
            if kept == KEPT:
                break
    with open(os.path.join(HERE, "beams.txt"), "w") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
