# SPDX-License-Identifier: Apache-2.0
"""Compares training on preferences with the trl package: python3 tests/golden/check_trl.py build/tutti

A Llama of odd sizes and random weights learns from the same pairs, in the same order, for ten AdamW steps, by tutti and by trl's own
trainer (float64, its reference model precomputed); losses, rewards and the trained weights are compared. Wants torch, transformers, trl
and datasets; what it printed last is in tests/golden/trl.txt.
"""
import json
import pathlib
import sys
import tempfile

import datasets
import tokenizers
import torch
import transformers
import trl

import check_huggingface
from check_peft import CONFIG, call

PAIRS, BATCH, STEPS, LR, DECAY, BETA, SEQ = 20, 4, 10, 3e-3, 0.1, 0.3, 40


def byte_tokenizer():
    """A token is a byte, and 256 the end of a text: tutti's `byte`."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    letter = {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(others)}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE({letter[b]: b for b in range(256)} | {"<end>": 256}, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", pad_token="<end>")


def pairs():
    """Texts of letters, of odd lengths."""
    torch.manual_seed(11)

    def text(least, most):
        return "".join(chr(97 + int(x)) for x in torch.randint(0, 26, (int(torch.randint(least, most, ())),)))

    return [{"prompt": text(3, 12) + " ", "chosen": text(1, 14), "rejected": text(1, 14)} for _ in range(PAIRS)]


def optimizer_of(model):
    """Vectors do not decay in tutti."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW([{"params": [p for p in trained if p.dim() > 1], "weight_decay": DECAY},
                              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0}], lr=LR, betas=(0.9, 0.95), eps=1e-8)


def arguments(kind, work, **more):
    return kind(output_dir=str(work / "trl"), per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=LR, max_grad_norm=0,
                lr_scheduler_type="constant", logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, bf16=False,
                gradient_checkpointing=False, max_length=SEQ, disable_tqdm=True, **more)


def in_order(trainer):
    class Ordered(trainer):
        def _get_train_sampler(self, dataset=None):
            return torch.utils.data.SequentialSampler(dataset if dataset is not None else self.train_dataset)
    return Ordered


def ours(tutti, work, name, names, *keys):
    run = work / name
    call(tutti, "train", str(work / "run.yaml"), "model.from=" + str(work / "base"), f"model.seq_len={SEQ}", "data.tokenizer=byte",
         "data.order=sequential", "data.train=[{path: " + str(work / "pairs.jsonl") + ", chat: plain}]", f"data.cache_dir={work / 'cache'}",
         f"batch.global={2 * BATCH}", "precision.recipe=fp32", f"optimizer.lr={LR}", f"optimizer.weight_decay={DECAY}", "optimizer.clip=0",
         "optimizer.schedule.name=constant", "optimizer.schedule.warmup_steps=0", "run.dir=" + str(run), f"run.steps={STEPS}", *keys)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line][:STEPS]
    call(tutti, "checkpoint", "export", str(run), str(work / f"{name}-hf"), "--dtype", "f32")
    return [[line[n] for n in names] for line in lines]


def compare(name, said, told, model, exported):
    """Rewards in absolute size: they are differences of log-probabilities of some 50 nats, which trl adds in float32."""
    losses = max(abs(x[0] / y[0] - 1) for x, y in zip(said, told))
    rewards = max(abs(a - b) for x, y in zip(said, told) for a, b in zip(x[1:], y[1:]))
    named = dict(exported.named_parameters())
    apart = max(((n, float((named[n].double() - p).norm() / p.norm())) for n, p in model.state_dict().items()), key=lambda x: x[1])
    print(f"{name}: {len(said)} steps, losses {said[0][0]:.6f} to {said[-1][0]:.6f} differ by at most {losses:.1e}, trained weights by at "
          f"most {apart[1]:.1e} ({apart[0]}), relative; rewards by at most {rewards:.1e}; trl {trl.__version__}, transformers "
          f"{transformers.__version__}")
    if len(said) != STEPS or len(told) != STEPS or losses > 1e-6 or rewards > 5e-6 or apart[1] > 1e-4:
        sys.exit(f"they differ: {said}\n{told}")


def dpo(tutti, work, records, tokenizer):
    names = ["loss", "rewards_chosen", "rewards_rejected", "rewards_margin", "rewards_accuracy"]
    theirs = ["loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"]
    said = ours(tutti, work, "dpo", names, "train.objective=dpo", f"train.dpo.beta={BETA}")
    model = transformers.LlamaForCausalLM.from_pretrained(work / "base", dtype=torch.float64)
    trainer = in_order(trl.DPOTrainer)(
        model=model, args=arguments(trl.DPOConfig, work, beta=BETA, precompute_ref_log_probs=True), processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(records), optimizers=(optimizer_of(model), None))
    trainer.train()
    told = [[x[n] for n in theirs] for x in trainer.state.log_history if "rewards/chosen" in x]
    compare("dpo", said, told, model, transformers.LlamaForCausalLM.from_pretrained(work / "dpo-hf", dtype=torch.float64))


def main(tutti):
    torch.set_num_threads(1)
    work = pathlib.Path(tempfile.mkdtemp())
    records = pairs()
    (work / "pairs.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (work / "run.yaml").write_text("run: {threads: 1, tensorboard: false, log_every: 1}\n")
    torch.manual_seed(5)
    model = check_huggingface.llama_model(CONFIG).float().eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, 0, 0.2)
    model.save_pretrained(work / "base")
    dpo(tutti, work, records, byte_tokenizer())


if __name__ == "__main__":
    main(sys.argv[1])
