# SPDX-License-Identifier: Apache-2.0
"""Compares tutti's adapters with the peft package: python3 tests/golden/check_peft.py build/tutti

A Llama of odd sizes and random weights gets a random adapter from peft, in a folder that tutti reads (adapter.from). Both train it for
ten AdamW steps on the same tokens; losses, the trained adapter (in peft's form, written by tutti and read by peft) and greedy text are
compared. Wants torch, transformers and peft; what it printed last is in tests/golden/peft.txt.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import peft
import torch
import transformers

import check_huggingface

SEQ, BATCH, STEPS, LR, DECAY = 24, 2, 10, 3e-3, 0.1
CONFIG = dict(vocab=257, hidden=30, ffn=44, head_size=10, layers=2, heads=3, kv_heads=1, norm_eps=1e-5, tie_embeddings=False,
              rope_theta=10000.0)


def main(tutti):
    torch.manual_seed(5)
    torch.set_num_threads(1)
    work = pathlib.Path(tempfile.mkdtemp())
    text = "".join(chr(97 + int(x)) for x in torch.randint(0, 26, (SEQ * BATCH * STEPS + 200,)))
    (work / "t.txt").write_text(text)
    (work / "run.yaml").write_text("run: {threads: 1, tensorboard: false, log_every: 1}\n")
    model = check_huggingface.llama_model(CONFIG).float().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, 0, 0.2)
    model.save_pretrained(work / "base")
    for kind, stabilised in (("lora", False), ("lora", True), ("dora", False)):
        compare(tutti, work, text, kind, stabilised)


def call(*command):
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.decode()}")
    return done.stdout


def lengths(model, name):
    """Of the rows of the matrix beside which this magnitude stands."""
    return dict(model.named_parameters())[name.split(".lora_magnitude")[0] + ".base_layer.weight"].norm(dim=1)


def compare(tutti, work, text, kind, stabilised):
    base = transformers.LlamaForCausalLM.from_pretrained(work / "base", torch_dtype=torch.float32).double()
    model = peft.get_peft_model(base, peft.LoraConfig(
        r=3, lora_alpha=7, use_rslora=stabilised, use_dora=kind == "dora", task_type="CAUSAL_LM",
        target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "down_proj"]))
    torch.manual_seed(7)
    for n, p in model.named_parameters():
        if "lora_" in n:
            torch.nn.init.normal_(p, 0, 0.1)
            if "magnitude" in n:
                p.data = (lengths(model, n) * (1 + 0.1 * torch.randn(p.shape))).to(p.dtype)
            p.data = p.data.float().double()
    came, run, out = (work / f"{what}-{kind}-{stabilised}" for what in ("in", "run", "out"))
    model.save_pretrained(came)
    keys = ["model.from=" + str(work / "base"), f"model.seq_len={SEQ}", "data.tokenizer=byte", "data.order=sequential",
            "data.train=" + str(work / "t.txt"), f"batch.global={BATCH}", f"batch.micro={BATCH}", "precision.recipe=fp32",
            f"adapter.kind={kind}", "adapter.rank=3", "adapter.alpha=7", "adapter.stabilised=" + str(stabilised).lower(),
            "adapter.targets=[q, v, o, gate, down]", "adapter.from=" + str(came), f"optimizer.lr={LR}",
            f"optimizer.weight_decay={DECAY}", "optimizer.clip=0", "optimizer.schedule.name=constant",
            "optimizer.schedule.warmup_steps=0", "run.dir=" + str(run), f"run.steps={STEPS}",
            "run.threads=1"]
    call(tutti, "train", str(work / "run.yaml"), *keys)
    ours = [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line][:STEPS]
    trained = [p for p in model.parameters() if p.requires_grad]
    # Vectors do not decay in tutti, and a length is one.
    optimizer = torch.optim.AdamW([{"params": [p for p in trained if p.dim() > 1], "weight_decay": DECAY},
                                   {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0}],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8)
    ids = torch.tensor(list(text.encode()))
    theirs = []
    for step in range(STEPS):
        at = [(step * BATCH + b) * SEQ for b in range(BATCH)]
        x = torch.stack([ids[a:a + SEQ] for a in at])
        y = torch.stack([ids[a + 1:a + SEQ + 1] for a in at])
        loss = torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    worst = max(abs(a / b - 1) for a, b in zip(ours, theirs))
    call(tutti, "checkpoint", "export", str(run), str(out), "--adapter")
    again = peft.PeftModel.from_pretrained(
        transformers.LlamaForCausalLM.from_pretrained(work / "base", torch_dtype=torch.float32).double(), out)
    named = dict(again.named_parameters())
    apart = max(((n, float((named[n].double() - p).norm() / p.norm())) for n, p in model.named_parameters() if "lora_" in n),
                key=lambda x: x[1])
    prompt = "abc"
    said = call(tutti, "generate", str(run), "--prompt", prompt, "--max-tokens", "20", "--temperature", "0", "--dtype", "f32",
                "--threads", "1")[:-1]
    text_ids = list(prompt.encode())
    for _ in range(20):
        with torch.no_grad():
            text_ids.append(int(model(torch.tensor([text_ids])).logits[0, -1].argmax()))
    expected = bytes(i for i in text_ids if i < 256).decode("utf-8", "replace").encode()
    print(f"{kind}, stabilised {stabilised}: {len(ours)} steps, losses {ours[0]:.6f} to {ours[-1]:.6f} differ by at most {worst:.1e}, "
          f"trained matrices by at most {apart[1]:.1e} ({apart[0]}), relative; greedy text "
          f"{'equal' if said.startswith(expected[:20]) or said == expected else 'OTHER'}; peft {peft.__version__}, "
          f"transformers {transformers.__version__}")
    if len(ours) != STEPS or worst > 1e-6 or apart[1] > 1e-4:
        sys.exit("they differ")


if __name__ == "__main__":
    main(sys.argv[1])
