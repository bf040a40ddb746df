# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/t5_written.json: what the T5s of make_t5.py (tests/golden/t5, t5_v11) write by the transformers library, in
float64: to prompts of several lengths the likeliest tokens one by one, with their log-probabilities, by its own generate() (without its
cache, whose layers are as many as the encoder's), and again by the decoder over every beginning of the text. The same of both with the
other answer to whether what goes into the output matrix is divided; and the config.json that transformers 5 writes of each of the four,
which says that the matrix is shared of all of them.

    python3 make_t5_written.py [--out DIR]

Development only: tests/decode/test_t5_writes.c reads the stored file. Some seconds.
"""
import argparse
import json
import os
import struct

import torch
import transformers

LENGTHS, NEW, START, MARGIN = (1, 5, 17, 40), 24, 0, 1e-3


def read_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head, data = json.loads(f.read(n)), f.read()
    out = {}
    for name, x in head.items():
        if name != "__metadata__":
            lo, hi = x["data_offsets"]
            out[name] = torch.frombuffer(bytearray(data[lo:hi]), dtype=torch.float32).reshape(x["shape"]).double()
    return out


def open_model(path, scaled=None):
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    if scaled is not None:
        config["scale_decoder_outputs"] = scaled
    weights = read_safetensors(os.path.join(path, "model.safetensors"))
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**config)).double().eval()
    if "lm_head.weight" in weights:  # newer releases share it whatever the file says, and go by the scale
        model.lm_head.weight = torch.nn.Parameter(weights["lm_head.weight"])
    for name, p in model.named_parameters():
        assert p.shape == weights[name].shape, name
        p.data = weights[name]
    return model


def write(model, ids):
    """The likeliest tokens, and what each one's logarithm is, by the decoder over all that was written."""
    said, logprobs = [START], []
    for _ in range(NEW):
        logits = model(input_ids=ids, decoder_input_ids=torch.tensor([said])).logits[0, -1]
        best = torch.topk(logits, 2).values
        assert best[0] - best[1] > MARGIN, "too near to call"
        said.append(int(logits.argmax()))
        logprobs.append(float(torch.log_softmax(logits, 0).max()))
    return said[1:], logprobs


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    out = args.parse_args().out
    torch.set_num_threads(1)
    results = {"configs": {}}
    for name, folder, scaled in (("t5", "t5", None), ("t5_v11", "t5_v11", None), ("t5_unscaled", "t5", False),
                                 ("t5_v11_scaled", "t5_v11", True)):
        model, texts = open_model(os.path.join(out, folder), scaled), []
        torch.manual_seed(11)
        with torch.no_grad():
            for n in LENGTHS:
                for attempt in range(50):
                    ids = torch.randint(2, model.config.vocab_size, (1, n))
                    try:
                        said, logprobs = write(model, ids)
                        break
                    except AssertionError:
                        continue
                else:
                    raise SystemExit("no prompt is clear enough")
                own = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False,
                                     num_beams=1, use_cache=False, eos_token_id=-1, pad_token_id=START, decoder_start_token_id=START)[0, 1:].tolist()
                assert own == said, (own, said)
                texts.append({"prompt": ids[0].tolist(), "said": said, "logprobs": logprobs})
        results[name] = texts
        written = json.loads(model.config.to_json_string(use_diff=False))
        results["configs"][name] = json.dumps({k: v for k, v in written.items() if k != "transformers_version"})
        print(name, [len(set(t["said"])) for t in texts])
    with open(os.path.join(out, "t5_written.json"), "w") as f:
        json.dump(results, f)
        f.write("\n")


if __name__ == "__main__":
    main()
