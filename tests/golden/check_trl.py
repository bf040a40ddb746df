# SPDX-License-Identifier: Apache-2.0
"""Compares training on preferences and rewards with the trl package: python3 tests/golden/check_trl.py build/tutti

A Llama of odd sizes and random weights learns for ten AdamW steps, by tutti and by trl in float64: from the same pairs, in the same order,
by trl's own trainer (DPO); and from the answers that tutti wrote, two steps of each five batches of them, by the loss of trl's trainer
(GRPO). Losses, what is told beside them and the trained weights are compared. Wants torch, transformers, trl and datasets; what it
printed last is in tests/golden/trl.txt.
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
EPS = 1e-4  # of AdamW with rewards: many gradients there are the rounding of sums that cancel, and 1e-8 would make steps of them


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


def optimizer_of(model, eps=1e-8):
    """Vectors do not decay in tutti."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW([{"params": [p for p in trained if p.dim() > 1], "weight_decay": DECAY},
                              {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0}], lr=LR, betas=(0.9, 0.95), eps=eps)


def arguments(kind, work, **more):
    return kind(output_dir=str(work / "trl"), per_device_train_batch_size=BATCH, max_steps=STEPS, learning_rate=LR, max_grad_norm=0,
                lr_scheduler_type="constant", logging_steps=1, report_to=[], save_strategy="no", use_cpu=True, bf16=False,
                gradient_checkpointing=False, disable_tqdm=True, **more)


def in_order(trainer):
    class Ordered(trainer):
        def _get_train_sampler(self, dataset=None):
            return torch.utils.data.SequentialSampler(dataset if dataset is not None else self.train_dataset)
    return Ordered


def ours(tutti, work, name, names, *keys):
    run = work / name
    call(tutti, "train", str(work / "run.yaml"), "model.from=" + str(work / "base"), f"model.seq_len={SEQ}", "data.tokenizer=byte",
         "data.order=sequential", "data.train=[{path: " + str(work / "pairs.jsonl") + ", chat: plain}]", f"data.cache_dir={work / 'cache'}", "precision.recipe=fp32", f"optimizer.lr={LR}", f"optimizer.weight_decay={DECAY}", "optimizer.clip=0",
         "optimizer.schedule.name=constant", "optimizer.schedule.warmup_steps=0", "run.dir=" + str(run), f"run.steps={STEPS}", *keys)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if '"loss"' in line][:STEPS]
    call(tutti, "checkpoint", "export", str(run), str(work / f"{name}-hf"), "--dtype", "f32")
    return [[line[n] for n in names] for line in lines]


def compare(name, said, told, model, exported):
    """What stands beside losses in absolute size: rewards are differences of log-probabilities of some 50 nats, which trl adds in float32."""
    losses = max(abs(x[0] - y[0]) for x, y in zip(said, told))
    rewards = max(abs(a - b) for x, y in zip(said, told) for a, b in zip(x[1:], y[1:]))
    named = dict(exported.named_parameters())
    apart = max(((n, float((named[n].double() - p).norm() / p.norm())) for n, p in model.state_dict().items()), key=lambda x: x[1])
    print(f"{name}: {len(said)} steps, losses {said[0][0]:.6f} to {said[-1][0]:.6f} differ by at most {losses:.1e}, what is told beside them "
          f"by {rewards:.1e}; trained weights by {apart[1]:.1e} ({apart[0]}), relative; trl {trl.__version__}, transformers "
          f"{transformers.__version__}")
    if len(said) != STEPS or len(told) != STEPS or losses > 1e-6 or rewards > 5e-6 or apart[1] > 1e-4:
        sys.exit(f"they differ: {said}\n{told}")


def dpo(tutti, work, records, tokenizer):
    names = ["loss", "rewards_chosen", "rewards_rejected", "rewards_margin", "rewards_accuracy"]
    theirs = ["loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"]
    said = ours(tutti, work, "dpo", names, "train.objective=dpo", f"batch.global={2 * BATCH}", f"train.dpo.beta={BETA}")
    model = transformers.LlamaForCausalLM.from_pretrained(work / "base", dtype=torch.float64)
    trainer = in_order(trl.DPOTrainer)(
        model=model, args=arguments(trl.DPOConfig, work, beta=BETA, max_length=SEQ, precompute_ref_log_probs=True), processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(records), optimizers=(optimizer_of(model), None))
    trainer.train()
    told = [[x[n] for n in theirs] for x in trainer.state.log_history if "rewards/chosen" in x]
    compare("dpo", said, told, model, transformers.LlamaForCausalLM.from_pretrained(work / "dpo-hf", dtype=torch.float64))


def grpo(tutti, work, records, tokenizer):
    """trl's trainer never writes here: it is given what tutti wrote, and takes its loss of that."""
    names, count = ["loss", "kl", "clip_fraction"], 16  # answers
    said = ours(tutti, work, "grpo", names, "train.objective=grpo", f"batch.global={count}", "batch.micro=4", "train.grpo.group=4",
                "train.grpo.tokens=9", "train.grpo.updates=2", "train.grpo.beta=0.1", "train.grpo.clip=0.02", "train.grpo.clip_high=0.03",
                "train.grpo.tell_every=1", f"checkpoint.every={STEPS}", f"optimizer.eps={EPS}", f"train.grpo.reward=awk '{{ print length($0) % 7 }}'")
    model = transformers.LlamaForCausalLM.from_pretrained(work / "base", dtype=torch.float64)
    reference = transformers.LlamaForCausalLM.from_pretrained(work / "base", dtype=torch.float64)
    more = dict(num_generations=4, max_completion_length=9, num_iterations=2, beta=0.1, epsilon=0.02, epsilon_high=0.03,
                loss_type="grpo", steps_per_generation=1, use_bias_correction_kl=False)
    options = arguments(trl.GRPOConfig, work, **more)
    trainer = trl.GRPOTrainer(model=model, reward_funcs=lambda **_: [], args=options, processing_class=tokenizer,
                              train_dataset=datasets.Dataset.from_list(records))
    trainer.current_gradient_accumulation_steps = 1
    optimizer = optimizer_of(model, EPS)
    model.train()
    told, inputs = [], None
    for step in range(1, STEPS + 1):
        answers = [json.loads(x) for x in (work / "grpo" / "answers" / f"step-{step:08d}.jsonl").read_text().splitlines()]
        if step % 2:  # a batch's first
            inputs = batch_of(answers)
            inputs["old_per_token_logps"] = logprobs(plain_of(model), inputs)
            inputs["ref_per_token_logps"] = logprobs(reference, inputs)
        loss = trainer._compute_loss(model, inputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        beside = trainer._metrics["train"]
        told.append([loss.item(), beside["kl"][-1], beside["clip_ratio/region_mean"][-1]])
    compare("grpo", said, told, model, transformers.LlamaForCausalLM.from_pretrained(work / "grpo-hf", dtype=torch.float64))


def plain_of(model):
    """A copy without what trl put into its forward."""
    copy = transformers.LlamaForCausalLM(model.config).double()
    copy.load_state_dict(model.state_dict())
    return copy


@torch.no_grad()
def logprobs(model, inputs):
    ids, mask = (torch.cat([inputs["prompt_" + what], inputs["completion_" + what]], 1) for what in ("ids", "mask"))
    places = (mask.cumsum(1) - 1).clamp(min=0)
    answer = inputs["completion_ids"]
    logits = model(ids, attention_mask=mask, position_ids=places).logits[:, -answer.size(1) - 1:-1]
    return logits.log_softmax(-1).gather(-1, answer[..., None])[..., 0]


def batch_of(answers):
    """What trl's trainer makes of prompts and answers: prompts end together, answers begin together."""
    prompts = [list(a["record"]["prompt"].encode()) for a in answers]
    wide, long = max(map(len, prompts)), max(len(a["ids"]) for a in answers)
    rewards = torch.tensor([float(a["reward"]) for a in answers], dtype=torch.float64).view(-1, 4)
    spread = rewards - rewards.mean(1, keepdim=True)

    def ahead(rows, value):
        return torch.tensor([[value(None)] * (wide - len(r)) + [value(x) for x in r] for r in rows])

    def behind(rows, value):
        return torch.tensor([[value(x) for x in r] + [value(None)] * (long - len(r)) for r in rows])

    def ids(x):
        return 256 if x is None else x

    def there(x):
        return int(x is not None)

    written = [a["ids"] for a in answers]
    return dict(prompt_ids=ahead(prompts, ids), prompt_mask=ahead(prompts, there), completion_ids=behind(written, ids),
                completion_mask=behind(written, there), advantages=(spread / (rewards.std(1, keepdim=True) + 1e-4)).flatten())


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
    for objective in (dpo, grpo):
        objective(tutti, work, records, byte_tokenizer())


if __name__ == "__main__":
    main(sys.argv[1])
