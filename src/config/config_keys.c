/* SPDX-License-Identifier: Apache-2.0 */
/* config_keys.c: the one table of configuration keys. Adding a key is adding a row here and a field in config.h;
 * its second word is what must be so for it to matter (config/needs.c). */
#include "config/config.h"
#include "config/needs.h"
#include "data/chat.h"
#include "data/pack.h"
#include "engine/engine.h"
#include "media/view.h"

#define AT(field) offsetof(struct config, field)

/* clang-format off */
/* What an item wants of itself: needs.h. */
static const struct conf_row source_rows[] = {
    {.path = "path", .type = CONF_STRING, .offset = offsetof(struct config_source, path),
     .doc = "text file, folder, .jsonl, .csv, .tsv, .parquet or .tar (also .gz or .zst), or the prefix of a token file or of Megatron's; for a model of pictures tar shards, or a folder or metadataset (.yaml) of Megatron-Energon"},
    {.path = "column", .type = CONF_STRING, .offset = offsetof(struct config_source, column), .otherwise = "null",
     .doc = "of a .jsonl or a table: the member or column that is the text; of a .tar also an extension; default text. Of pictures: where their class is; default cls,json[label],txt"},
    {.path = "weight", .type = CONF_POINTS, .offset = offsetof(struct config_source, weight), .otherwise = "1.0",
     .hi = 1e9, .doc = "share of this source among the samples, relative to the others; or by step, such as [{step: 0, weight: 1}, {step: 900, weight: 0.1}]"},
    {.path = "chat", .type = CONF_STRING, .offset = offsetof(struct config_source, chat), .otherwise = "null",
     .doc = "its records are conversations or instructions, written by this template: a name such as chatml (docs/chat.md), tokenizer: its own, or a file"},
    {.path = "train_on", .need = WANTS_CHAT, .type = CONF_CHOICE, .offset = offsetof(struct config_source, train_on), .otherwise = "answers",
     .choices = CHAT_TRAIN_ON, .doc = "chat: what a loss is taken of: the assistant's answers with the end of their turns, everything, or the last answer"},
    {.path = "date", .need = WANTS_CHAT, .type = CONF_STRING, .offset = offsetof(struct config_source, date), .otherwise = "null",
     .doc = "chat: the day, as YYYY-MM-DD, for a template that asks for it (strftime_now)"},
    {.path = "label", .type = CONF_STRING, .offset = offsetof(struct config_source, label), .otherwise = "null",
     .doc = "of a .jsonl, for a model that tells classes of texts (bert with model.classes): the member that is the class, a number from 0"},
    {.path = "target", .type = CONF_STRING, .offset = offsetof(struct config_source, target), .otherwise = "null",
     .doc = "of a .jsonl or a table, for a model of encoder and decoder (t5): the member or column that the decoder writes, where column (default input) is what the encoder reads"},
    {0},
};
/* clang-format on */

static const struct conf_row layers_rows[] = {
    {.path = "layers", .type = CONF_INT, .offset = 0, .hi = 10000, .doc = "layers of a stage"},
    {0},
};

static const struct conf_row ignore_rows[] = {
    {.path = "key", .type = CONF_STRING, .offset = offsetof(struct config_key, name), .doc = "key of config.json"},
    {0},
};

static const struct conf_row offload_rows[] = {
    {.path = "what", .type = CONF_STRING, .offset = 0, .doc = "activations, optimizer, master, params, or auto alone"},
    {0},
};

static const struct conf_row step_rows[] = {
    {.path = "step", .type = CONF_INT, .offset = 0, .lo = 1, .hi = 1e12, .doc = "a step, from 1"},
    {0},
};

static const struct conf_row key_rows[] = {
    {.path = "key", .type = CONF_STRING, .offset = 0, .doc = "a key, or a section"},
    {0},
};

static const struct conf_row stop_rows[] = {
    {.path = "text", .type = CONF_STRING, .offset = 0, .doc = "a text that ends an answer"},
    {0},
};

static const struct conf_row parameter_rows[] = {
    {.path = "name", .type = CONF_STRING, .offset = 0, .doc = "names of parameters; * stands for any text"},
    {0},
};

static const struct conf_row prompt_rows[] = {
    {.path = "prompt", .type = CONF_STRING, .offset = 0, .doc = "what a text begins with"},
    {0},
};

static const struct conf_row recompute_rows[] = {
    {.path = "what", .type = CONF_STRING, .offset = 0, .doc = "a group of operations, or a word for several"},
    {0},
};

static const struct conf_row choice_rows[] = {
    {.path = "layers",
     .type = CONF_STRING,
     .offset = offsetof(struct recipe_choice, layers),
     .doc = "names of matrices, such as layers.0.*; * stands for any text"},
    {.path = "recipe",
     .type = CONF_CHOICE,
     .offset = offsetof(struct recipe_choice, recipe),
     .choices = RECIPE_WORDS,
     .doc = "their recipe"},
    {0},
};

#define LIST(p, wants, f, def, d)                                                                                      \
    {                                                                                                                  \
        .path = p, .need = WANTS_##wants, .type = CONF_LIST, .offset = AT(f), .otherwise = def, .item = source_rows,   \
        .item_bytes = sizeof(struct config_source), .item_short = "path", .doc = d                                     \
    }
#define INT(p, wants, f, def, low, high, d)                                                                            \
    {                                                                                                                  \
        .path = p, .need = WANTS_##wants, .type = CONF_INT, .offset = AT(f), .otherwise = def, .lo = low, .hi = high,  \
        .doc = d                                                                                                       \
    }
#define REAL(p, wants, f, def, low, high, d)                                                                           \
    {                                                                                                                  \
        .path = p, .need = WANTS_##wants, .type = CONF_REAL, .offset = AT(f), .otherwise = def, .lo = low, .hi = high, \
        .doc = d                                                                                                       \
    }
#define REALS(p, wants, f, def, count, low, high, d)                                                                   \
    {                                                                                                                  \
        .path = p, .need = WANTS_##wants, .type = CONF_REALS, .offset = AT(f), .otherwise = def, .n = count,           \
        .lo = low, .hi = high, .doc = d                                                                                \
    }
#define TEXT(p, wants, f, def, d)                                                                                      \
    {                                                                                                                  \
        .path = p, .need = WANTS_##wants, .type = CONF_STRING, .offset = AT(f), .otherwise = def, .doc = d             \
    }
#define BOOL(p, wants, f, def, d)                                                                                      \
    {                                                                                                                  \
        .path = p, .need = WANTS_##wants, .type = CONF_BOOL, .offset = AT(f), .otherwise = def, .doc = d               \
    }
#define CHOICE(p, wants, f, def, all, d)                                                                               \
    {                                                                                                                  \
        .path = p, .need = WANTS_##wants, .type = CONF_CHOICE, .offset = AT(f), .otherwise = def, .choices = all,      \
        .doc = d                                                                                                       \
    }

/* clang-format off */
const struct conf_row config_rows[] = {
    CHOICE("model.family", NOTHING, model.family, "llama", MODEL_FAMILIES, "architecture"),
    TEXT("model.from", NOTHING, from.dir, "null", "Hugging Face directory: take architecture and starting weights from it"),
    {.path = "model.ignore", .need = WANTS_FROM, .type = CONF_LIST, .offset = AT(from.ignore), .otherwise = "[]", .item = ignore_rows,
     .item_bytes = sizeof(struct config_key), .item_short = "key",
     .doc = "keys of model.from's config.json that tutti does not know and that do not matter: not refused"},
#define NUMBER(kind, group, name, usual, limits, part, wants, text, ...) \
    {.path = "model." #group #name, .need = WANTS_NUMBER, .type = CONF_##kind, .offset = AT(model.group name), .otherwise = usual, limits, .doc = text},
#define GROUP(name)
#define END(name)
#define RANGE(from, to) .lo = from, .hi = to
#define WORDS(words) .choices = words
#define EITHER .choices = NULL
#define LAYERS .n = LAYER_PATTERN_BYTES, .fits = layer_pattern_wanted
#define KINDS .n = LAYER_PATTERN_BYTES, .fits = layer_kinds_wanted
#include "model/numbers.def"

    TEXT("data.tokenizer", TEXT, data.tokenizer, "byte",
         "byte, or the path of a Hugging Face tokenizer.json or of its folder; default with model.from: its own"),
    LIST("data.train", NOTHING, data.train, "[]", "required to train: a path, a list of paths, or {path, weight} items"),
    LIST("data.valid", NOTHING, data.valid, "[]", "held-out text for run.eval_every; or a share of data.train, such as 5%: so much of its documents, chosen by data.seed and their text, is kept from training"),
    CHOICE("data.order", NOTHING, data.order, "shuffled", "shuffled|sequential",
           "sequential: sample i is tokens [i*seq_len, i*seq_len + seq_len] of the stream"),
    INT("data.seed", NOTHING, data.seed, "1", 0, 9007199254740992.0, "seed of the sample order"),
    BOOL("data.reset_positions", TEXT, data.reset_positions, "false", "positions begin at 0 in every document, not in every sample"),
    BOOL("data.mask_boundaries", TEXT, data.mask_boundaries, "false", "the first token of a document is not trained: what is before it says nothing of it"),
    BOOL("data.skip_bad", TEXT, data.skip_bad, "false", "bad records of texts (no JSON, no UTF-8, damaged) are skipped and listed beside the cached tokens, not an error"),
    CHOICE("data.pack", SAMPLES, data.pack, "joined", PACK_NAMES,
           "documents in a sample: joined end to end; best_fit: whole ones side by side, none sees another, only those longer than model.seq_len are cut; padded: one in each, and with data.group as many of like length as fit"),
    INT("data.window", PACKED, data.window, "4096", 1, 16777216, "documents that are packed together (best_fit), or sorted together (data.group)"),
    INT("data.parts", SAMPLES, data.parts, "1", 1, 1048576,
        "a sample of training is joined of so many parts, each of a source by weight, with model.seq_len / parts tokens"),
    INT("data.group", SAMPLES, data.group, "0", 0, 1048576,
        "so many samples in a row are of like length, and of one source: a divisor of batch.global; 0: as they come"),
    CHOICE("data.weights", BY_STEP, data.weights, "stepwise", "stepwise|linear",
           "between two steps for which a source has a weight: the first one's, or on the line from it to the second"),
    REAL("data.prefix_rate", NOTHING, data.prefix_rate, "0", 0, 1,
         "share of the documents in samples whose beginning, up to a place drawn by seed and sample, is not trained (with "
         "model.attn.prefix: prefix LM); those with a loss mask stay"),
    REAL("data.fim.rate", NOTHING, data.fim.rate, "0", 0, 1,
         "fill-in-the-middle: share of the documents in training samples that are cut in three at two characters, the middle put last; 0: none"),
    REAL("data.fim.spm_rate", FIM, data.fim.spm_rate, "0.5", 0, 1, "of those, the share with the suffix before the prefix (SPM), not behind it (PSM)"),
    TEXT("data.fim.prefix", FIM, data.fim.prefix, "null", "the tokenizer's special token before a prefix; null: those of a known family that it has"),
    TEXT("data.fim.suffix", FIM, data.fim.suffix, "null", "before a suffix"),
    TEXT("data.fim.middle", FIM, data.fim.middle, "null", "before a middle"),
    REAL("data.mlm.rate", HIDDEN, data.mlm.rate, "0.15", 1e-6, 1, "of a model that tells hidden tokens (bert): the share of a sample's tokens that are"),
    REAL("data.mlm.mask", HIDDEN, data.mlm.mask, "0.8", 0, 1, "of those, the share that becomes the mask token"),
    REAL("data.mlm.random", HIDDEN, data.mlm.random, "0.1", 0, 1, "the share that becomes another token by chance; the rest stays what it is"),
    TEXT("data.mlm.token", HIDDEN, data.mlm.token, "null", "the tokenizer's mask token; null: [MASK] or <mask>"),
    INT("data.mlm.id", HIDDEN, data.mlm.id, "-1", -1, INT32_MAX, "the mask token by its number, for a tokenizer that has none (model.vocab has to be larger); -1: by name"),
    REAL("data.spans.rate", PAIRS, data.spans.rate, "0.15", 1e-6, 0.999999, "of a model of encoder and decoder (t5): the share of a text's tokens that is taken out and written by the decoder"),
    REAL("data.spans.mean", PAIRS, data.spans.mean, "3.0", 1, 1e6, "in spans of so many tokens on average"),
    INT("data.spans.id", PAIRS, data.spans.id, "-1", -1, INT32_MAX, "the number of the first mark of a span, from which the others count down, for a tokenizer that has none (model.vocab has to be larger); -1: its tokens <extra_id_0> and following"),
    INT("data.spans.start", PAIRS, data.spans.start, "0", 0, INT32_MAX, "the token that the decoder reads first (model.from: as it says)"),
    BOOL("data.cut_pairs", SIDES, data.cut_pairs, "false", "of pairs of texts (data.train[].target): what does not fit its places is cut before its end of text; false: it is refused"),
    TEXT("data.begin", CLASSES, data.begin, "null", "the token before a text whose class is told; null: [CLS], where the tokenizer has it"),
    CHOICE("data.image.crop", PICTURES, data.image.crop, "random", VIEW_CROPS,
           "what of a picture is trained on: a box by chance, mirrored by chance, or the middle, of which validation always is"),
    REALS("data.image.scale", BOXES, data.image.scale, "[0.08, 1.0]", 2, 1e-6, 1, "random: the box's share of the picture, from and to"),
    REALS("data.image.ratio", BOXES, data.image.ratio, "[0.75, 1.3333333333333333]", 2, 1e-3, 1e3, "random: its width over its height, from and to"),
    REAL("data.image.flip", BOXES, data.image.flip, "0.5", 0, 1, "random: how often left and right are exchanged"),
    INT("data.image.resize", PICTURES, data.image.resize, "null", 1, 1 << 16,
        "the middle: the shorter side first becomes this many pixels; default: 8/7 of model.image_size"),
    CHOICE("data.image.filter", PICTURES, data.image.filter, "bicubic", RESIZE_FILTERS, "how pictures are resized, antialiased, to the bit as PIL does"),
    REALS("data.image.mean", PICTURES, data.image.mean, "[0.5, 0.5, 0.5]", 3, -1e3, 1e3,
          "subtracted from red, green and blue, which are 0 to 1 before (gray: the first of the three)"),
    REALS("data.image.std", PICTURES, data.image.std, "[0.5, 0.5, 0.5]", 3, 1e-6, 1e6,
          "what red, green and blue are divided by then (gray: the first of the three)"),
    INT("data.image.max_pixels", PICTURES, data.image.max_pixels, "134217728", 1, 4294836225.0,
        "a file whose head says more pixels is a bad one: a few bytes may say so"),
    TEXT("data.cache_dir", NOTHING, data.cache_dir, "null", "where tokenised text and the places of pictures are kept; default: run.dir/data"),
    INT("data.workers", NOTHING, data.workers, "1", 1, 64, "threads of each rank that prepare batches; any number gives the same ones (tutti bench data finds the best)"),
    INT("data.prefetch", NOTHING, data.prefetch, "2", 1, 1024, "batches that are prepared ahead of the one that is trained on"),
    INT("data.remote.connections", NOTHING, data.remote.connections, "8", 1, 256, "parts of http://, https:// and s3:// objects that a rank fetches at once"),
    INT("data.remote.tries", NOTHING, data.remote.tries, "6", 1, 1000, "requests for a part before its failure is an error"),
    REAL("data.remote.stall_s", NOTHING, data.remote.stall_s, "30", 1, 86400, "a request to which nothing comes for so long is made again"),
    REAL("data.remote.give_up_s", NOTHING, data.remote.give_up_s, "300", 1, 864000, "tries and pauses for a part take no longer"),
    TEXT("data.remote.cache_dir", NOTHING, data.remote.cache_dir, "null", "where what was fetched is kept, for all runs of a host; default: $XDG_CACHE_HOME/tutti/objects, else ~/.cache/tutti/objects"),
    TEXT("data.remote.cache_limit", NOTHING, data.remote.cache_limit, "10GiB", "bytes that are kept there, what was used longest ago goes first; 0: none"),

    INT("batch.global", NOTHING, batch.global, "32", 1, 1 << 24, "sequences per optimizer step, over all ranks"),
    INT("batch.micro", NOTHING, batch.micro, "8", 1, 1 << 24, "sequences per forward and backward pass"),

    {.path = "train.only", .need = WANTS_NOTHING, .type = CONF_LIST, .offset = AT(train.only), .otherwise = "[]", .item = parameter_rows,
     .item_bytes = sizeof(const char *), .item_short = "name",
     .doc = "names of parameters that are trained, such as layers.3.*, head.weight; * stands for any text; the others keep their values "
            "and have no gradient, no master and no state of an optimizer; []: all"},
    {.path = "train.freeze", .need = WANTS_NOTHING, .type = CONF_LIST, .offset = AT(train.freeze), .otherwise = "[]", .item = parameter_rows,
     .item_bytes = sizeof(const char *), .item_short = "name", .doc = "and of those, names that are not trained after all"},

    CHOICE("train.objective", NOTHING, train.objective, "next", "next|dpo|grpo|reward",
           "next: the likelihood of what comes next; dpo: preferences (Rafailov et al. 2023), of records with a prompt, a chosen and a "
           "rejected answer; grpo: rewards of answers that the model writes (Shao et al. 2024); reward: a reward model (Ouyang et al. 2022), a "
           "number for an answer, of the same records as dpo (docs/fine-tuning.md)"),
    REAL("train.dpo.beta", DPO, train.dpo.beta, "0.1", 1e-6, 1e6, "dpo: how closely the model is held to what it began as"),

    REAL("train.reward.centre", SCORE, train.reward.centre, "0", 0, 1e6,
         "reward: the mean over pairs of the square of both rewards' sum is added to the loss, times this: rewards stay around 0 (Eisenstein "
         "et al. 2023)"),

    INT("train.grpo.group", REWARDS, train.grpo.group, "8", 2, 1 << 20,
        "answers to each prompt, whose rewards are compared; batch.global is prompts times this"),
    INT("train.grpo.tokens", REWARDS, train.grpo.tokens, "128", 1, 1 << 24, "tokens of an answer at most; prompts have the rest of model.seq_len"),
    {.path = "train.grpo.stop", .need = WANTS_REWARDS, .type = CONF_LIST, .offset = AT(train.grpo.stop), .otherwise = "[]", .item = stop_rows,
     .item_bytes = sizeof(const char *), .item_short = "text", .doc = "texts that end an answer, beside an end of text"},
    TEXT("train.grpo.reward", REWARDS, train.grpo.reward, "null",
         "what answers are worth: a command that reads a line of JSON for each and puts out a number for each, or an address "
         "(http://, https://) that is asked the same"),
    REAL("train.grpo.reward_limit_s", REWARDS, train.grpo.reward_limit_s, "60", 0.001, 864000, "a step's rewards take no longer"),
    INT("train.grpo.reward_tries", REWARDS, train.grpo.reward_tries, "3", 1, 1000, "a step's rewards are asked for so often before that is an error"),
    REAL("train.grpo.reward_pause_s", REWARDS, train.grpo.reward_pause_s, "1", 0, 86400, "between tries"),
    INT("train.grpo.updates", REWARDS, train.grpo.updates, "1", 1, 1 << 16,
        "steps that learn from a batch of answers before the next is written; checkpoints are of whole batches, so checkpoint.every, "
        "checkpoint.memory_every and run.steps are multiples of it"),
    REAL("train.grpo.beta", REWARDS, train.grpo.beta, "0", 0, 1e6,
         "how closely the model is held to what it began as: a distance (KL) that is added to the loss, times this; above 0 a second set of "
         "the weights that are trained is kept"),
    REAL("train.grpo.clip", REWARDS, train.grpo.clip, "0.2", 1e-6, 1, "how far below 1 the ratio of probabilities moves the model"),
    REAL("train.grpo.clip_high", REWARDS, train.grpo.clip_high, "0", 0, 1e6, "and how far above 1 (DAPO); 0: as train.grpo.clip"),
    CHOICE("train.grpo.advantage", REWARDS, train.grpo.advantage, "std", "std|mean",
           "std: a reward less the group's mean, over its standard deviation; mean: the difference alone (Dr. GRPO)"),
    CHOICE("train.grpo.mean", REWARDS, train.grpo.mean, "answers", "answers|tokens|constant",
           "the loss is a mean over answers of means over their tokens; or over all tokens of a step (DAPO); or, with constant, their sum over "
           "answers times train.grpo.tokens, whatever their length (Dr. GRPO)"),
    INT("train.grpo.tell_every", REWARDS, train.grpo.tell_every, "0", 0, 1e12,
        "every so many steps its answers, rewards and log-probabilities are written to run.dir/answers; 0: never"),
    INT("train.grpo.at_once", REWARDS, train.grpo.at_once, "64", 1, 1 << 16, "answers that a rank writes at the same time"),

    CHOICE("adapter.kind", NOTHING, adapter.kind, "none", "none|lora|dora",
           "lora: beside chosen matrices, which keep their values, two of adapter.rank are trained (LoRA); of the model only what "
           "train.only names is trained too; dora: and the length of each row by itself (DoRA)"),
    INT("adapter.rank", ADAPTER, adapter.rank, "8", 1, 1 << 20, "columns of an adapter's matrices"),
    REAL("adapter.alpha", ADAPTER, adapter.alpha, "16", 1e-6, 1e9, "what adapters add is multiplied by alpha / rank"),
    BOOL("adapter.stabilised", ADAPTER, adapter.stabilised, "false", "or by alpha / sqrt(rank) (rsLoRA)"),
    CHOICE("adapter.base", ADAPTER, adapter.base, "none", PACKING_NAMES,
           "the matrices of layers that keep their values are kept in 4 bits (QLoRA): nf4, with scales in 8 bits for 64 numbers, or mxfp4; "
           "none: in the type of precision.recipe (docs/fine-tuning.md)"),
    TEXT("adapter.from", ADAPTER, adapter.from, "null", "a folder that peft saved: the adapters begin with its values"),
    {.path = "adapter.targets", .need = WANTS_ADAPTER, .type = CONF_LIST, .offset = AT(adapter.targets), .otherwise = "[q, v]", .item = parameter_rows,
     .item_bytes = sizeof(const char *), .item_short = "name",
     .doc = "which matrices: last words of their names (q, o, gate, down, kv_b, router, head), or names without .weight in which * "
            "stands for any text (layers.3.attn.*)"},

    CHOICE("optimizer.name", NOTHING, optimizer.name, "adamw", OPTIM_NAMES, "optimizer"),
    REAL("optimizer.lr", NOTHING, optimizer.lr, "3.0e-4", 0, 1e6, "peak learning rate; left out, it is by what is trained: 3e-4 from nothing, 2e-5 from model.from, 2e-4 for adapters, 1e-6 for dpo and grpo (adapters: 1e-5)"),
    {.path = "optimizer.betas", .need = WANTS_OPTIMIZER, .type = CONF_REALS, .offset = AT(optimizer.betas), .otherwise = "[0.9, 0.95]", .n = 2,
     .lo = 0, .hi = 0.9999999, .doc = "decay of the two moments (adamw); of what is stepped along and of the moment (lion)"},
    REAL("optimizer.eps", OPTIMIZER, optimizer.eps, "1.0e-8", 0, 1, "added to the root of the second moment (adamw)"),
    REAL("optimizer.weight_decay", OPTIMIZER, optimizer.weight_decay, "0.1", 0, 1e6, "on matrices; norms and biases have none"),
    REAL("optimizer.clip", OPTIMIZER, optimizer.clip, "1.0", 0, 1e12, "largest global gradient norm; 0 is off"),
    REAL("optimizer.momentum", OPTIMIZER, optimizer.momentum, "0.9", 0, 0.9999999, "of sgd"),
    BOOL("optimizer.nesterov", OPTIMIZER, optimizer.nesterov, "false", "of sgd"),
    CHOICE("optimizer.moments", OPTIMIZER, optimizer.moments, "fp32", OPTIM_MOMENTS,
           "what moments are kept in (adamw); bf16: 4 bytes per parameter, not 8, rounded once a step; fp8 (E4M3, fp16): 3, 8bit: 2, by blocks"),
    INT("optimizer.block", BLOCKS, optimizer.block, "256", 16, 2048, "moments in fp8 and 8bit: elements of a row of a matrix that share a scale"),
    REAL("optimizer.ema", NOTHING, optimizer.ema, "0", 0, 0.9999999,
         "what a step keeps of the average of weights, which generate --ema and checkpoint export --ema use; 0: none is kept"),
    REAL("optimizer.muon.momentum", OPTIMIZER, optimizer.muon.momentum, "0.95", 0, 0.9999999, "of muon"),
    BOOL("optimizer.muon.nesterov", OPTIMIZER, optimizer.muon.nesterov, "true", "of muon"),
    REAL("optimizer.adafactor.decay_rate", OPTIMIZER, optimizer.adafactor.decay_rate, "0.8", 0.01, 1, "of adafactor: step t keeps 1 - t^-rate of its factors"),
    REAL("optimizer.adafactor.clip", OPTIMIZER, optimizer.adafactor.clip, "1.0", 1e-6, 1e12, "of adafactor: the largest root mean square of what a tensor is stepped along"),
    BOOL("optimizer.adafactor.relative", OPTIMIZER, optimizer.adafactor.relative, "false",
         "of adafactor: the learning rate is times the root mean square of the weights, 0.001 at least"),
    CHOICE("optimizer.schedule.name", NOTHING, optimizer.schedule, "cosine", "constant|linear|cosine|wsd",
           "learning rate after warm-up"),
    INT("optimizer.schedule.warmup_steps", NOTHING, optimizer.warmup_steps, "100", 0, 1e12, "steps of linear warm-up"),
    REAL("optimizer.schedule.min_lr", DECAY, optimizer.min_lr, "3.0e-5", 0, 1e6, "at the end; left out, a tenth of optimizer.lr where that is less"),
    INT("optimizer.schedule.decay_steps", WSD, optimizer.decay_steps, "0", 0, 1e12, "length of wsd's final decay"),

    CHOICE("optimizer.embeddings.name", NOTHING, optimizer.embeddings.name, "same", "same|" OPTIM_NAMES,
           "optimizer of the embeddings and the head; same: optimizer.name, which is that of all other matrices (muon: adamw)"),
    REAL("optimizer.embeddings.lr_factor", NOTHING, optimizer.embeddings.lr_factor, "1", 0, 1e6, "their learning rate, times all others'"),
    CHOICE("optimizer.vectors.name", NOTHING, optimizer.vectors.name, "same", "same|" OPTIM_NAMES,
           "optimizer of norms and biases; same: optimizer.name (muon: adamw)"),
    REAL("optimizer.vectors.lr_factor", NOTHING, optimizer.vectors.lr_factor, "1", 0, 1e6, "their learning rate, times all others'"),

    CHOICE("precision.recipe", NOTHING, precision.recipe, "bf16", RECIPE_WORDS, recipe_texts),
    {.path = "precision.layers", .need = WANTS_NOTHING, .type = CONF_LIST, .offset = AT(precision.layers), .otherwise = "[]", .item = choice_rows,
     .item_bytes = sizeof(struct recipe_choice), .item_pairs = true,
     .doc = "other recipes for some layers: {pattern: recipe, ...} of their matrices' names; the last that fits decides"},
    CHOICE("precision.block_scale", FP8_BLOCK, precision.block_scale, "pow2", "pow2|fp32", "fp8-block: scales that are powers of two, or fp32"),
    INT("precision.history", HISTORY, precision.history, "16", 1, 65536, "fp8-delayed: steps that a scale follows from"),
    INT("precision.margin", HISTORY, precision.margin, "0", 0, 64, "fp8-delayed: scales are 2^-margin of what those steps allow"),
    BOOL("precision.keep_weights", FEWER_BITS, precision.keep_weights, "false",
         "recipes of fewer bits: what weights become is made once a step and kept for all microbatches, the same bits; 2 bytes of memory "
         "more per weight and orientation (mxfp8 has two)"),
    INT("precision.telemetry", FEWER_BITS, precision.telemetry, "100", 0, 1e9,
        "steps between looks at what rounding to fewer bits does: what saturates, becomes 0, the error; 0: never"),
    INT("precision.fallback.after", LOOKS, precision.fallback.after, "3", 0, 1e9,
        "so many looks in a row at a layer that loses too much by rounding, and it is computed in bf16 from then on; 0: never"),
    REAL("precision.fallback.saturated", FALLBACK, precision.fallback.saturated, "0.01", 0, 1, "too much: a larger share of an operand saturates"),
    REAL("precision.fallback.error", FALLBACK, precision.fallback.error, "0.3", 0, 1e6, "too much: an operand's relative error is larger"),
    CHOICE("precision.grad", NOTHING, precision.grad, "fp32", "fp32|bf16",
           "bf16: gradients are kept and sent in bf16 (16 bytes per parameter, not 18), rounded once per microbatch"),
    CHOICE("precision.master", NOTHING, precision.master, "fp32", "fp32|none",
           "bf16: master weights beside them; none: there are no others, and an update is rounded to them (precision.round)"),
    CHOICE("precision.round", NO_MASTER, precision.round, "stochastic", "stochastic|nearest",
           "weights without a master: up or down by chance, so that small updates add up; nearest loses them"),

    REAL("precision.loss_scale.initial", FP16, precision.loss_scale.initial, "65536", 0x1p-24, 0x1p32,
         "fp16: what the loss is multiplied by, a power of two; halved when a gradient is not finite, and the step left out"),
    INT("precision.loss_scale.grow_every", FP16, precision.loss_scale.grow_every, "2000", 1, 1e12,
        "fp16: doubled after so many steps in a row that were not left out"),
    REAL("precision.loss_scale.least", FP16, precision.loss_scale.least, "1", 0x1p-24, 0x1p32, "fp16: a run whose scale falls below it ends"),

    INT("parallel.dp_replicate", NOTHING, parallel.dp_replicate, "1", -1, 1 << 20, "data-parallel replicas; -1: what is left"),
    INT("parallel.dp_shard", NOTHING, parallel.dp_shard, "-1", -1, 1 << 20, "data-parallel ranks that share state; -1: what is left"),
    INT("parallel.zero", SHARED, parallel.zero, "0", 0, 3, "what dp_shard shares; left out beside memory.recompute: auto: chosen with it"),
    CHOICE("parallel.reduce", SHARED, parallel.reduce, "microbatch", "microbatch|step",
           "when dp_shard adds up gradients; step: whole gradients on every rank meanwhile, fewer bytes sent"),
    INT("parallel.tp", NOTHING, parallel.tp, "1", -1, 1 << 20, "tensor parallel"),
    BOOL("parallel.sequence_parallel", TP, parallel.sequence_parallel, "false",
         "tensor parallel: shard the tokens of the residual stream over tp as well"),
    TEXT("parallel.tp_overlap", TP, parallel.tp_overlap, "auto",
         "tensor parallel: matrix products and the messages beside them in so many pieces of rows (2 to 8), so that one travels "
         "while the next is computed; off; auto: up to 4 where tp spans hosts and a thread moves messages"),
    INT("parallel.cp", NOTHING, parallel.cp, "1", -1, 1 << 20, "context parallel"),
    CHOICE("parallel.cp_algorithm", CP, parallel.cp_algorithm, "ring", "ring|all_gather|all_to_all|two_level",
           "how attention goes over cp: keys visit around a ring, all at once, heads are exchanged for rows, or heads inside "
           "groups and a ring between them"),
    INT("parallel.cp_inner", TWO_LEVEL, parallel.cp_inner, "0", 0, 1024,
        "two_level: ranks that exchange heads, next to each other; 0: the divisor of cp nearest to its root"),
    CHOICE("parallel.cp_balance", CP, parallel.cp_balance, "auto", "auto|position|area",
           "what each rank of cp has of a sequence: a head and a tail of it, or, where documents do not see each other, as much of their attention; "
           "auto: area with data.pack: best_fit, where nothing goes by a token's place"),
    INT("parallel.ep", NOTHING, parallel.ep, "1", -1, 1 << 20, "ranks that share out the experts; -1: as many of dp_shard x cp x tp as there are experts for"),
    INT("parallel.etp", EXPERTS, parallel.etp, "null", 1, 1 << 20, "ranks that share each expert's columns: a divisor of tp; default: tp"),
    INT("parallel.servers", NOTHING, parallel.servers, "0", 0, 100,
        "ranks that are a parameter server; the others are its workers; 0: none"),
    CHOICE("parallel.server_mode", SERVERS, parallel.server_mode, "sync", "sync|async",
           "sync: one update per step of all workers; async: one per push, as they come"),
    INT("parallel.staleness", ASYNC_SERVERS, parallel.staleness, "1", 0, 1 << 20,
        "async: steps that a worker may be ahead of the slowest; 0: none begins a step before all ended the one before"),
    INT("parallel.pp", NOTHING, parallel.pp, "1", -1, 1 << 20, "pipeline ranks"),
    TEXT("parallel.schedule", NOTHING, parallel.schedule, "auto",
         "order of work in the pipeline (tutti schedule --help lists them); auto: 1f1b"),
    INT("parallel.chunks", STAGES, parallel.chunks, "0", 0, 64, "stages per pipeline rank; 0: as few as the schedule takes"),
    INT("parallel.round", NOTHING, parallel.round, "0", 0, 16384,
        "interleaved: microbatches that go through one stage before a rank's next stage; 0: as many as parallel.pp"),
    {.path = "parallel.pp_layers", .need = WANTS_NOTHING, .type = CONF_LIST, .offset = AT(parallel.pp_layers), .otherwise = "[]",
     .item = layers_rows, .item_bytes = sizeof(int64_t), .item_short = "layers",
     .doc = "layers of each stage, such as [8, 8, 8, 6]; default: by cost, embedding and head counted"},
    TEXT("parallel.schedule_file", NOTHING, parallel.schedule_file, "null",
         "a schedule of your own, as tutti schedule --text writes it, or CSV"),

    REAL("comm.timeout_s", RANKS, comm.timeout_s, "600", 0.1, 1e9, "a rank later than this is named and the run ends"),
    REAL("comm.timeout_p2p_s", RANKS, comm.timeout_p2p_s, "0", 0, 1e9,
         "comm.timeout_s for messages between two ranks (stages of a pipeline, parameter servers); 0: as comm.timeout_s"),
    REAL("comm.timeout_start_s", RANKS, comm.timeout_start_s, "0", 0, 1e9,
         "comm.timeout_s until the first step: reading data, making groups, loading; 0: as comm.timeout_s"),
    CHOICE("comm.progress", RANKS, comm.progress, "auto", "auto|inline|thread",
           "who moves the bytes: the rank when it waits, or a thread of its own; auto: a thread where cores are left"),
    TEXT("comm.algorithm", RANKS, comm.algorithm, "auto",
         "auto: by the table; or wherever it has the operation: direct|ring|halving|tree|chain|pairwise|gather|two_level|native"),
    TEXT("comm.table", RANKS, comm.table, "null",
         "file of rules measured on your network, as tutti bench comm --op all --table writes them"),
    INT("comm.ranks_per_host", RANKS, comm.ranks_per_host, "0", 0, 1 << 20,
        "pretend that so many ranks share a host (plan, explain, ranks as threads); 0: all. Launched ranks see for themselves, but for where checkpoints in memory go"),
    REAL("comm.link_GBps", RANKS, comm.link_GBps, "0", 0, 1e6,
         "pretend that each rank sends over a link this fast, to see on one machine what is hidden behind it; 0: no"),
    REAL("comm.link_latency_us", RANKS, comm.link_latency_us, "0", 0, 1e9, "and that each operation takes so long in it"),
    CHOICE("comm.grad", SUMS, comm.grad, "kept", TRAVEL_NAMES,
           "how gradients travel; kept: as precision.grad has them. bf16: rounded. fp8, fp8-e5m2, int8: a byte in blocks of 32 that share a scale"),
    CHOICE("comm.param", SHARING, comm.param, "kept", TRAVEL_NAMES,
           "how parameters travel that zero shares out; kept: as precision.recipe has them. Masters are never rounded"),
    BOOL("comm.check", RANKS, comm.check, "false", "compare every operation between ranks also where that is not free"),
    BOOL("comm.checksum", RANKS, comm.checksum, "false",
         "messages between hosts carry checksums, and a pair of ranks between which bytes changed is named"),

    {.path = "memory.recompute", .need = WANTS_NOTHING, .type = CONF_LIST, .offset = AT(memory.recompute), .otherwise = "none", .item = recompute_rows,
     .item_bytes = sizeof(const char *), .item_short = "what", .plain_one = true,
     .doc = "what of a layer is computed again in backward and not kept: none; full (its input is kept); selective (attention, norms, "
            "activations); a list of attention, norms, activations, products, gathers, experts, latent; auto: what takes least time "
            "within memory.limit, with memory.offload and parallel.zero where these are left open"},
    INT("memory.recompute_layers", RECOMPUTE, memory.recompute_layers, "0", 0, 1 << 20, "of each stage, only the first so many layers; 0: all"),
    TEXT("memory.limit", NOTHING, memory.limit, "null",
         "bytes that a rank may allocate, such as 24GiB: more is refused before anything is allocated, and auto stays below it; "
         "null: the rank's share of this machine (memory.check)"),
    {.path = "memory.offload", .need = WANTS_NOTHING, .type = CONF_LIST, .offset = AT(memory.offload), .otherwise = "[]", .item = offload_rows,
     .item_bytes = sizeof(const char *), .item_short = "what",
     .doc = "what waits elsewhere (memory.offload_to) while nobody works on it, copied there and back beside the work: activations, "
            "between forward and backward; optimizer, its moments; master, the fp32 masters, each between updates; params, the "
            "weights, between a layer's forward, its backward, and the update; auto: of these, beside memory.recompute: auto, what takes least "
            "time within memory.limit"},
    TEXT("memory.offload_to", OFFLOAD, memory.offload_to, "host",
         "where it waits: a folder on a fast local disk, in a file of each rank that has no name and leaves nothing behind; or host: in "
         "the host's memory, which saves nothing on the cpu device, whose memory that is (for tests, and plans of other devices)"),
    INT("memory.offload_least", OFFLOAD, memory.offload_least, "4096", 0, 1e15, "bytes: what is smaller is not offloaded"),
    INT("memory.loss_chunk", NOTHING, memory.loss_chunk, "null", 1, 1 << 24,
        "tokens whose logits exist at one time; default: as many as fit 128 MiB"),
    BOOL("memory.check", NOTHING, memory.check, "true", "refuse what needs more memory than this machine has; false: try, with swap"),

    REAL("moe.buffer", DISPATCH, moe.buffer, "2", 0, 1e6,
         "expert parallel: rows that a rank has room for at a time, times its even share; what a router sends it beyond that comes in "
         "further rounds, with the same bits. 0: room for the worst choice"),
    INT("moe.buffer_least", WAVES, moe.buffer_least, "8192", 1, 1 << 30,
        "and room for so many rows at least, or for the worst choice where that is less; below 1536 a sum that is cut may round "
        "otherwise"),

    BOOL("numerics.deterministic", NOTHING, numerics.deterministic, "true", "the same bits on every run; false: between hosts, algorithms may add in another order where that is faster"),
    CHOICE("numerics.accumulate", NOTHING, numerics.accumulate, "fp32", "fp32|hopper-bf16|hopper-fp8|hopper-fp8-promoted|ampere-bf16",
           "how products of 16 and 8 bits are added up: fp32, or as tensor cores do it, to the bit (plain loops: slow)"),
    BOOL("numerics.exact_order", NOTHING, numerics.exact_order, "false", "any power of two of data-parallel ranks gives the bits of one; costs memory and traffic (tutti plan)"),

    INT("checkpoint.every", NOTHING, checkpoint.every, "500", 0, 1e12, "steps between checkpoints; 0: only at the end"),
    REAL("checkpoint.every_s", NOTHING, checkpoint.every_s, "0", 0, 1e9,
         "a checkpoint, too, when the last one was begun so many seconds ago; 0: steps alone decide"),
    INT("checkpoint.keep", NOTHING, checkpoint.keep, "3", 0, 1e9, "newest checkpoints to keep; 0: all"),
    INT("checkpoint.keep_every", KEPT_FEW, checkpoint.keep_every, "0", 0, 1e12,
        "checkpoints whose step is a multiple of this stay for good; 0: none beside the newest"),
    CHOICE("checkpoint.best", NOTHING, checkpoint.best, "none", "none|eval_loss",
           "eval_loss: an evaluation (run.eval_every) with the lowest validation loss so far is saved, checkpoints/best names it, and it stays "
           "until there is a better one"),
    INT("checkpoint.average", NOTHING, checkpoint.average, "0", 0, 10000,
        "when the run is finished, the mean of the weights of its so many newest checkpoints goes to run.dir/average; 0: none"),
    BOOL("checkpoint.async", NOTHING, checkpoint.async, "false",
         "steps go on while a checkpoint is written: a step waits for a copy of the state in the host's memory (tutti plan counts it), "
         "a thread writes that"),
    BOOL("checkpoint.incremental", NOTHING, checkpoint.incremental, "true",
         "what is byte for byte what the checkpoint before has of it (frozen weights, state that is not stepped) is a hard link to that "
         "one's file"),
    CHOICE("checkpoint.busy", SAVES_BESIDE, checkpoint.busy, "wait", "wait|skip",
           "a checkpoint that is due while the one before is still being written: wait for that one, or do without this one"),
    INT("checkpoint.retries", NOTHING, checkpoint.retries, "5", 0, 1e9,
        "how often in a row a save may fail (a full disk) and is tried again, while training goes on, before the run ends"),
    REAL("checkpoint.retry_s", RETRIES, checkpoint.retry_s, "30", 0, 1e6, "seconds before it is tried again"),
    REAL("checkpoint.timeout_s", RANKS, checkpoint.timeout_s, "0", 0, 1e9,
         "how long ranks wait for one that saves before they name it and the run ends; 0: comm.timeout_s"),
    TEXT("checkpoint.resume", NOTHING, checkpoint.resume, "auto",
         "auto: from the newest of run.dir, and an error where that cannot be used; step-00000500: that one of run.dir; a path; never: "
         "afresh, what is there is moved aside; copy: from the newest in checkpoint.copy_to, whatever run it is of"),

    TEXT("checkpoint.copy_to", NOTHING, checkpoint.copy_to, "null",
         "finished checkpoints are copied there beside the steps, and come back from there when run.dir has none as new: a folder (another "
         "disk, a shared file system) or s3://BUCKET/PREFIX (docs/checkpoints.md)"),
    INT("checkpoint.copy_keep", COPIES, checkpoint.copy_keep, "3", 0, 1e9, "newest copies that stay there; 0: all"),

    INT("checkpoint.memory_every", NOTHING, checkpoint.memory_every, "0", 0, 1e12,
        "steps between checkpoints in memory, which outlive a killed job and the loss of any one host (docs/resilience.md); 0: none"),
    TEXT("checkpoint.memory_dir", IN_MEMORY, checkpoint.memory_dir, "/dev/shm",
         "where checkpoints in memory lie on each host: a folder of a file system in memory"),

    {.path = "checkpoint.allow_changes", .need = WANTS_NOTHING, .type = CONF_LIST, .offset = AT(checkpoint.allow_changes), .otherwise = "[]", .item = key_rows,
     .item_bytes = sizeof(const char *), .item_short = "key",
     .doc = "keys or sections that may differ from the checkpoint's config although they break the order of samples or the state "
            "(data, batch.global, model.seq_len, run.seed, optimizer.name, ...); all"},

    TEXT("run.dir", NOTHING, run.dir, "runs/default", "where everything of this run is written"),
    INT("run.steps", NOTHING, run.steps, "1000", 1, 1e12, "optimizer steps in all"),
    INT("run.seed", NOTHING, run.seed, "1", 0, 9007199254740992.0, "seed of weights and dropout"),
    INT("run.log_every", NOTHING, run.log_every, "10", 1, 1e9, "steps between progress lines"),
    INT("run.eval_every", NOTHING, run.eval_every, "0", 0, 1e12, "steps between validations; 0: never"),
    INT("run.eval_batches", VALIDATION, run.eval_batches, "8", 0, 1e9, "global batches of validation text, spread evenly over all of it; 0: all of it"),
    INT("run.exponents_every", NOTHING, run.exponents_every, "0", 0, 1e12,
        "steps between counts of activations, weights and gradients by exponent, for `tutti report --exponents`; 0: never"),
    INT("run.sample_every", NOTHING, run.sample_every, "0", 0, 1e12,
        "steps between texts that the model writes, a multiple of checkpoint.every: its newest checkpoint writes; 0: none"),
    TEXT("run.sample_prompt", SAMPLE, run.sample_prompt, "The", "what those texts begin with"),
    INT("run.sample_tokens", WRITES, run.sample_tokens, "120", 1, 1 << 20, "tokens of such a text"),
    REAL("run.sample_temperature", WRITES, run.sample_temperature, "0.8", 0, 1e6, "of those texts; 0: the likeliest token always"),
    {.path = "run.samples", .need = WANTS_NOTHING, .type = CONF_LIST, .offset = AT(run.samples), .otherwise = "[]", .item = prompt_rows,
     .item_bytes = sizeof(const char *), .item_short = "prompt",
     .doc = "prompts that the model goes on with at every evaluation (run.eval_every), which is saved for that; run.sample_tokens and "
            "run.sample_temperature are theirs, too"},
    INT("run.stop_early", NOTHING, run.stop_early, "0", 0, 1e9,
        "so many evaluations in a row without a better validation loss end the run; 0: none do"),
    REAL("run.stop_early_delta", STOP_EARLY, run.stop_early_delta, "0", 0, 1e9, "better: lower than the lowest before by more than that"),
    INT("run.compare_every", RANKS, run.compare_every, "100", 0, 1e12,
        "steps between comparisons of what several ranks hold; before every checkpoint too; 0: only then"),
    INT("run.replay_every", NOTHING, run.replay_every, "0", 0, 1e12,
        "steps between those in which another rank computes every part of the batch as well and all results are compared, "
        "bit for bit; 0: never"),
    CHOICE("run.on_nan", NOTHING, run.on_nan, "stop", "stop|rewind",
           "a loss or gradient that is not finite: stop, or go back to the newest checkpoint and leave the batch out"),
    CHOICE("run.on_spike", NOTHING, run.on_spike, "ignore", "ignore|stop|rewind",
           "a loss that jumps (run.spike_deviations): go on, stop, or go back as with run.on_nan"),
    REAL("run.spike_deviations", SPIKES, run.spike_deviations, "6", 0.1, 1e6, "a loss jumps when it is so many deviations above the mean of the last steps (a deviation counts as 0.1 % of the mean at least)"),
    INT("run.spike_window", SPIKES, run.spike_window, "64", 2, 1e9, "steps of that mean; before there are so many no loss jumps"),
    INT("run.rewinds", REWINDS, run.rewinds, "10", 1, 100000,
        "how often a run goes back (run.on_nan, run.on_spike), in all; once more ends it"),
    {.path = "run.skip", .need = WANTS_NOTHING, .type = CONF_LIST, .offset = AT(run.skip), .otherwise = "[]", .item = step_rows,
     .item_bytes = sizeof(int64_t), .item_short = "step", .doc = "steps whose batch is left out: drawn, and not trained on"},
    INT("run.threads", NOTHING, run.threads, "0", 0, 4096, "threads of a rank; 0: all cores"),
    CHOICE("run.bind", NOTHING, run.bind, "none", "none|rank|core",
           "bind threads to cores: rank: those of a rank to its part of the host's; core: each to one of them"),
    TEXT("run.device", NOTHING, run.device, "auto",
         "where to compute: auto|cpu|cuda|cuda:N|cuda-sim; cuda-sim: a GPU's kernels, simulated on the processor, slow; null only counts"),
    TEXT("run.kernels", NOTHING, run.kernels, "auto", "auto, or ref for the plain loops"),
    TEXT("run.trace", NOTHING, run.trace, "null", "a trace of a few steps goes here, for Perfetto and tutti trace: what each rank did when"),
    INT("run.trace_from", TRACE, run.trace_from, "0", 0, 1e12, "first optimizer step in the trace; 0: the second after the start, for the first touches every page"),
    INT("run.trace_steps", TRACE, run.trace_steps, "2", 1, 1e6, "optimizer steps in the trace"),
    INT("run.trace_mib", TRACE, run.trace_mib, "16", 1, 1 << 16, "MiB that a rank keeps events in until they are collected, planned like all its memory"),
    INT("run.trace_collect", TRACE, run.trace_collect, "0", 0, 1e6,
        "steps between collections, which leave a file that can be read if the run is killed; 0: when a rank's events fill half their memory"),
    BOOL("run.elastic", NOTHING, run.elastic, "false",
         "a rank that dies does not end the run: the others go on from the newest checkpoint, with a spare in its place or with fewer "
         "data-parallel ranks (threads, and MPI libraries with fault tolerance); false: the run ends"),
    INT("run.spares", ELASTIC, run.spares, "0", 0, 1 << 20, "run.elastic: so many of the ranks that are started wait until one at work dies"),
    INT("run.least_ranks", ELASTIC, run.least_ranks, "1", 1, 1 << 20, "run.elastic: with fewer ranks at work than that the run ends"),
    BOOL("run.log_experts", EXPERTS, run.log_experts, "false", "the busiest expert's load on the progress line"),
    INT("run.status_port", NOTHING, run.status_port, "0", 0, 65535,
        "rank 0 tells how the run is over HTTP there: a page, /json, /metrics for Prometheus; 0: no"),
    TEXT("run.status_address", STATUS, run.status_address, "127.0.0.1",
         "address of this machine that run.status_port is opened at: 127.0.0.1 or ::1 for its own programs alone; any other wants run.status_token"),
    TEXT("run.status_token", STATUS, run.status_token, "null",
         "file whose first line every request must bring (Authorization: Bearer, or ?token=); 16 characters or more, chmod 600"),
    BOOL("run.rank_times", NOTHING, run.rank_times, "false",
         "rank-times.jsonl: of each step how long every rank took for forward, backward, update and waiting"),
    BOOL("run.tensorboard", NOTHING, run.tensorboard, "true", "write event files for TensorBoard"),
    {0},
};
/* clang-format on */
