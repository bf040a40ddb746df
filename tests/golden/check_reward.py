# SPDX-License-Identifier: Apache-2.0
"""Compares tutti's reward models with the transformers library: python3 tests/golden/check_reward.py build/tutti

Of every family that has one, a ...ForSequenceClassification with one label, of odd sizes and random weights, is trained by both for ten
AdamW steps on the same pairs of answers, in float64 there: the losses of pairs and the weights afterwards (written by tutti, read by
transformers) are compared, and the scores of answers that `tutti score` tells. Wants torch and transformers 5; what it printed last is in
tests/golden/reward.txt.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

import make_families

STEPS, PAIRS, LR, DECAY, EPS, SEQ, END, PAD = 10, 2, 1e-3, 0.1, 1e-5, 24, 256, 0
GPT2 = ("gpt2", dict(vocab_size=257, n_embd=20, n_layer=2, n_head=4, n_inner=44, n_positions=48, resid_pdrop=0.0,
                     embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=END))
# The family, what is added to the loss, whether their padding is the end of text, so that it is not read.
CASES = [("llama_bias", 0.0, False), ("llama_yarn", 0.05, True), ("mistral", 0.0, False), ("qwen2", 0.0, False),
         ("qwen3", 0.0, False), ("smollm3", 0.0, False), ("olmo2", 0.0, False), ("phi3", 0.0, False),
         ("gemma2", 0.0, False), ("gemma3", 0.1, False), ("gpt2", 0.0, False)]


def call(*command, feed=None):
    done = subprocess.run(command, capture_output=True, input=feed)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.decode()}")
    return done.stdout


def model_of(name, before_end):
    kind, numbers = GPT2 if name == "gpt2" else make_families.MODELS[name]
    numbers = dict(numbers, vocab_size=257, bos_token_id=None, eos_token_id=END, pad_token_id=END if before_end else PAD,
                   num_labels=1)
    config = transformers.AutoConfig.for_model(kind, **numbers)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForSequenceClassification.from_config(config).double().eval()
    make_families.randomize(model, torch.Generator().manual_seed(11))
    with torch.no_grad():  # losses near log 2, so that the rounding of float32 is no large part of small ones
        model.score.weight.copy_((0.2 * model.score.weight).float())
    return model


def texts():
    g = torch.Generator().manual_seed(3)
    word = lambda most: "".join(chr(97 + int(x)) for x in torch.randint(0, 26, (int(torch.randint(1, most, (1,), generator=g)),), generator=g))
    return [{"prompt": word(9), "chosen": word(12), "rejected": word(12)} for _ in range(STEPS * PAIRS)]


def scores(model, rows, pad):
    """By their own rule: the last token that is no padding."""
    ids = [list(r.encode()) + [END] for r in rows]
    most = max(len(i) for i in ids)
    x = torch.tensor([i + [pad] * (most - len(i)) for i in ids])
    return model(x).logits[:, 0]  # nothing looks at padding behind it


def compare(tutti, work, name, centre, before_end):
    model = model_of(name, before_end)
    came, run, out = (work / f"{what}-{name}" for what in ("in", "run", "out"))
    model.float().save_pretrained(came)
    model.double()
    pairs, pad = texts(), END if before_end else PAD
    (work / "pairs.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs))
    keys = ["model.from=" + str(came), f"model.seq_len={SEQ}", "data.tokenizer=byte", "data.order=sequential",
            "data.train=[{path: " + str(work / "pairs.jsonl") + ", chat: plain}]", "train.objective=reward", f"train.reward.centre={centre}",
            f"batch.global={2 * PAIRS}", "precision.recipe=fp32", f"optimizer.lr={LR}", f"optimizer.eps={EPS}",
            f"optimizer.weight_decay={DECAY}", "optimizer.clip=0", "optimizer.schedule.name=constant",
            "optimizer.schedule.warmup_steps=0", "run.dir=" + str(run), f"run.steps={STEPS}", "run.threads=1"]
    call(tutti, "train", str(work / "run.yaml"), *keys)
    ours = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line][:STEPS]
    every = list(model.parameters())
    optimizer = torch.optim.AdamW([{"params": [p for p in every if p.dim() > 1], "weight_decay": DECAY},
                                   {"params": [p for p in every if p.dim() < 2], "weight_decay": 0}],
                                  lr=LR, betas=(0.9, 0.95), eps=EPS)
    theirs = []
    for step in range(STEPS):
        batch = pairs[step * PAIRS:(step + 1) * PAIRS]
        r = scores(model, [p["prompt"] + p["chosen"] for p in batch] + [p["prompt"] + p["rejected"] for p in batch], pad)
        loss = (-torch.nn.functional.logsigmoid(r[:PAIRS] - r[PAIRS:]) + centre * (r[:PAIRS] + r[PAIRS:]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    worst = max(abs(a / b - 1) for a, b in zip(ours, theirs))
    call(tutti, "checkpoint", "export", str(run), str(out))
    again = transformers.AutoModelForSequenceClassification.from_pretrained(out, dtype=torch.float32).double()
    named = dict(again.named_parameters())
    if named.keys() != dict(model.named_parameters()).keys():
        sys.exit(f"{name}: other parameters")
    # A bias of all keys changes no softmax where they are not turned by positions: its gradient is rounding.
    apart = max(((n, float((named[n] - p).detach().norm() / p.detach().norm())) for n, p in model.named_parameters()
                 if not (name == "smollm3" and n.endswith("k_proj.bias"))), key=lambda x: x[1])
    lines = "".join(json.dumps({"answer": p["chosen"], "ended": True, "record": {"prompt": p["prompt"]}}) + "\n" for p in pairs)
    said = torch.tensor([float(x) for x in call(tutti, "score", str(run), "--threads", "1", feed=lines.encode()).split()]).double()
    with torch.no_grad():
        expected = torch.stack([scores(again, [p["prompt"] + p["chosen"]], pad)[0] for p in pairs])
    off = float((said - expected).abs().max() / expected.abs().max())
    print(f"{name}: losses {ours[0]:.6f} to {ours[-1]:.6f} differ by at most {worst:.1e}, weights by at most {apart[1]:.1e} "
          f"({apart[0]}), scores by {off:.1e}, relative; transformers {transformers.__version__}")
    return len(ours) == STEPS and worst < 1e-6 and apart[1] < 1e-6 and off < 1e-6


def main(tutti, *names):
    torch.set_num_threads(1)
    work = pathlib.Path(tempfile.mkdtemp())
    (work / "run.yaml").write_text("run: {threads: 1, tensorboard: false, log_every: 1}\n")
    wrong = [c[0] for c in CASES if (not names or c[0] in names) and not compare(tutti, work, *c)]
    if wrong:
        sys.exit(f"they differ: {', '.join(wrong)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
