/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.c: a table of the files by which other programs' checkpoints are known; the first row that fits decides. What
 * another program calls a checkpoint has its weights, which may be had by way of a Hugging Face folder, and an
 * optimizer's state and an order of data that mean nothing here.
 */
#include "checkpoint/foreign.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/magic.h"
#include "base/str.h"

#define WEIGHTS "start from its weights with model.from=%s, or make a checkpoint of them: tutti checkpoint import"
#define THEIRS                                                                                                         \
    "state of another program's optimizer is not read: have that program write its weights as a Hugging Face folder, " \
    "and start from those with model.from"

static const struct row {
    const char *name; /* of a file in the folder; "*x": one that ends so */
    const char *what, *remedy;
} rows[] = {
    {"adapter_config.json", "an adapter in peft's form", "start from it with adapter.from=%s"},
    {"config.json", "a model in Hugging Face's form", WEIGHTS},
    {"latest_checkpointed_iteration.txt", "a folder of Megatron-LM", THEIRS},
    {"*model_states.pt", "a folder of DeepSpeed", THEIRS},
    {"zero_to_fp32.py", "a folder of DeepSpeed", THEIRS},
    {"*.distcp", "a folder of PyTorch's distributed checkpoints", THEIRS},
    {"_CHECKPOINT_METADATA", "a folder of Orbax", THEIRS},
    {"params.json", "a model in Meta's own form", "take the one in Hugging Face's form, and name it in model.from"},
    {"*.gguf", "a folder of GGUF", "the model that it was made from, in Hugging Face's form, goes into model.from"},
    {"*.safetensors", "a folder of weights without the config.json that says what model they are",
     "the folder where they come from, which has one, goes into model.from"},
    {"*.pt", "a folder of pickles", THEIRS},
    {"*.pth", "a folder of pickles", THEIRS},
    {"*.ckpt", "a folder of pickles", THEIRS},
    {"*.bin", "a folder of pickles", THEIRS},
};

static bool fits(const char *pattern, const char *name)
{
    if (*pattern == '*') return str_ends(name, pattern + 1);
    return !strcmp(pattern, name);
}

static const struct row *known(char **names, int n)
{
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int i = 0; i < n; i++)
            if (fits(rows[r].name, names[i])) return &rows[r];
    return NULL;
}

static int refuse_file(const char *path, struct err *e)
{
    const struct magic *m = magic_of_file(path);
    const char *what = m                                ? m->name
                       : str_ends(path, ".safetensors") ? "a file of weights (safetensors)"
                       : str_ends(path, ".gguf")        ? "a file of weights (GGUF)"
                                                        : "a file";
    return err_set(e, ERR_REQUEST,
                   "%s: is %s; a checkpoint is a directory (step-*). A model to start from is a folder that "
                   "model.from names",
                   path, what);
}

int foreign_refuse(const char *path, struct err *e)
{
    char **names, remedy[700];
    int n;
    if (!fs_is_dir(path)) return refuse_file(path, e);
    const struct row *r = NULL;
    if (fs_list(path, &names, &n, NULL) == OK) {
        r = known(names, n);
        fs_list_free(names, n);
    }
    if (!r) return err_set(e, ERR_REQUEST, "%s: holds no complete checkpoint (no step-*/manifest.json)", path);
    const char *gap = strstr(r->remedy, "%s");
    if (gap) snprintf(remedy, sizeof remedy, "%.*s%.400s%s", (int)(gap - r->remedy), r->remedy, path, gap + 2);
    else snprintf(remedy, sizeof remedy, "%s", r->remedy);
    return err_set(e, ERR_REQUEST, "%s: holds no complete checkpoint: it is %s; %s", path, r->what, remedy);
}
