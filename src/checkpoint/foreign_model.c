/* SPDX-License-Identifier: Apache-2.0 */
/* foreign_model.c: looks at names only, and at the first bytes of files. The cache of the hub's own client is looked
 * into too: whoever has used a model in Python has it there already, under a name that nobody would find.
 */
#include "checkpoint/foreign_model.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/magic.h"
#include "base/mem.h"
#include "base/str.h"

/* ---- names of the hub ---- */

/* "org/name" or "name", also behind the hub's address; NULL: cannot be one. */
static const char *hub_name(const char *path)
{
    static const char *const addresses[] = {"https://huggingface.co/", "http://huggingface.co/", "huggingface.co/",
                                            "hf.co/", "hf://"};
    int slashes = 0;
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++)
        if (!strncmp(path, addresses[i], strlen(addresses[i]))) path += strlen(addresses[i]);
    for (const char *p = path; *p; p++) {
        slashes += *p == '/';
        if (!isalnum((unsigned char)*p) && !strchr("-_./", *p)) return NULL;
    }
    size_t n = strlen(path);
    bool words = n > 0 && n <= 200 && path[0] != '.' && path[0] != '/' && path[n - 1] != '/' && !strstr(path, "//") &&
                 !strstr(path, "/.");
    return words && slashes <= 1 ? path : NULL;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The last snapshot in the folder of one model in the cache, by name; NULL: none. xfree it. */
static char *snapshot_in(const char *folder)
{
    char *snapshots = fs_join(folder, "snapshots"), **names, *found = NULL;
    int n;
    if (fs_is_dir(snapshots) && fs_list(snapshots, &names, &n, NULL) == OK) {
        for (int i = 0; i < n; i++) {
            char *at = fs_join(snapshots, names[i]), *config = fs_join(at, "config.json");
            if (fs_exists(config)) {
                xfree(found);
                found = xstrdup(at);
            }
            xfree(config);
            xfree(at);
        }
        fs_list_free(names, n);
    }
    xfree(snapshots);
    return found;
}

static char *cached(const char *name)
{
    const char *hub = getenv("HF_HUB_CACHE"), *root = getenv("HF_HOME"), *home = getenv("HOME");
    struct str folder = {0};
    if (hub && *hub) str_printf(&folder, "%s/models--", hub);
    else if (root && *root) str_printf(&folder, "%s/hub/models--", root);
    else str_printf(&folder, "%s/.cache/huggingface/hub/models--", home ? home : "");
    for (const char *p = name; *p; p++) str_puts(&folder, *p == '/' ? "--" : (char[]){*p, 0});
    char *found = snapshot_in(folder.p);
    str_free(&folder);
    return found;
}

static bool missing(const char *path, struct err *e)
{
    const char *name = hub_name(path);
    if (!name) {
        err_set(e, ERR_REQUEST,
                "%s: no such checkpoint; a run or checkpoint of tutti was wanted, or the folder of a model "
                "(config.json, *.safetensors, tokenizer.json)",
                path);
        return true;
    }
    char *here = cached(name);
    if (here)
        err_set(e, ERR_REQUEST,
                "%s: no such checkpoint or folder; tutti downloads nothing, but the cache of huggingface_hub has this "
                "model: name %s",
                path, here);
    else
        err_set(e, ERR_REQUEST,
                "%s: no such checkpoint or folder. If it is a model of huggingface.co, download it and name the folder "
                "(tutti downloads nothing): hf download %s --local-dir %s (hf comes with pip install huggingface_hub; "
                "some models want hf auth login first), or git lfs install && git clone https://huggingface.co/%s; "
                "then name %s",
                path, name, last_part(name), name, last_part(name));
    xfree(here);
    return true;
}

/* ---- files ---- */
static bool file(const char *path, struct err *e)
{
    char *dir = strrchr(path, '/') ? xstrndup(path, (size_t)(last_part(path) - path)) : xstrdup(".");
    char *config = fs_join(dir, "config.json");
    const struct magic *m = magic_of_file(path);
    if (fs_exists(config) &&
        (!strcmp(last_part(path), "config.json") || str_ends(path, ".safetensors") || str_ends(path, ".index.json")))
        err_set(e, ERR_REQUEST, "%s: is one file of a model; name its folder: %s", path, dir);
    else
        err_set(e, ERR_REQUEST,
                "%s: is %s; a folder was wanted, that of a run of tutti, or one with config.json, *.safetensors and "
                "tokenizer.json%s",
                path, m ? m->name : "a file",
                str_ends(path, ".gguf") ? " (GGUF is made from such a folder: look for the model's own on the hub)"
                                        : "");
    xfree(config);
    xfree(dir);
    return true;
}

/* ---- folders ---- */
struct look {
    int n, pickles, ggufs, models, safetensors;
    const char *pickle, *gguf, *model; /* the first of each */
    bool original;                     /* Meta's own form */
};

static struct look look(const char *dir, char **names, int n)
{
    struct look l = {.n = n};
    for (int i = 0; i < n; i++) {
        const char *name = names[i];
        char *config = fs_join(dir, name), *inner = fs_join(config, "config.json");
        if (fs_exists(inner) && !l.models++) l.model = name;
        if ((str_ends(name, ".bin") || str_ends(name, ".pt") || str_ends(name, ".pth") || str_ends(name, ".ckpt")) &&
            !l.pickles++)
            l.pickle = name;
        if (str_ends(name, ".gguf") && !l.ggufs++) l.gguf = name;
        l.safetensors += str_ends(name, ".safetensors");
        l.original |= !strcmp(name, "params.json");
        xfree(inner);
        xfree(config);
    }
    return l;
}

static bool is_tutti(char **names, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], "checkpoints") || !strcmp(names[i], "manifest.json") || !strncmp(names[i], "step-", 5) ||
            !strcmp(names[i], "config.yaml"))
            return true;
    return false;
}

#define CONVERT                                                                                                        \
    "save the model as safetensors: in transformers, AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW)"

static bool folder(const char *path, char **names, int n, struct err *e)
{
    struct look l = look(path, names, n);
    char *snapshot = snapshot_in(path);
    bool known = true;
    if (snapshot)
        err_set(e, ERR_REQUEST, "%s: is a model's place in the cache of huggingface_hub; the model itself is %s", path,
                snapshot);
    else if (!n)
        err_set(e, ERR_REQUEST,
                "%s: is empty; a model was wanted (config.json, *.safetensors, tokenizer.json), or a run of tutti",
                path);
    else if (l.models)
        err_set(e, ERR_REQUEST, "%s: holds no config.json; a folder in it does: name %s/%s%s", path, path, l.model,
                l.models > 1 ? ", or another" : "");
    else if (l.ggufs)
        err_set(e, ERR_REQUEST,
                "%s: holds GGUF (%s), which is not read; the model it was made from has config.json and *.safetensors",
                path, l.gguf);
    else if (l.original && l.pickles)
        err_set(e, ERR_REQUEST,
                "%s: is a model in Meta's own form (params.json, %s), which is not read; take the one in Hugging "
                "Face's form, which has config.json and *.safetensors",
                path, l.pickle);
    else if (l.safetensors)
        err_set(e, ERR_REQUEST,
                "%s: holds weights (*.safetensors) and no config.json, which says what model they are; it lies beside "
                "them where they come from",
                path);
    else if (l.pickles)
        err_set(e, ERR_REQUEST,
                "%s: holds pickles (%s), which are not read, since reading them runs what is in them, and no "
                "config.json; " CONVERT,
                path, l.pickle);
    else known = false;
    xfree(snapshot);
    return known;
}

bool foreign_model(const char *path, struct err *e)
{
    char **names;
    int n;
    if (!fs_exists(path)) return missing(path, e);
    if (!fs_is_dir(path)) return file(path, e);
    if (fs_list(path, &names, &n, NULL)) return false;
    bool known = !is_tutti(names, n) && folder(path, names, n, e);
    fs_list_free(names, n);
    return known;
}

bool foreign_model_weights(const char *dir, struct err *e)
{
    char **names;
    int n;
    if (fs_list(dir, &names, &n, NULL)) return false;
    struct look l = look(dir, names, n);
    if (l.pickles)
        err_set(e, ERR_REQUEST,
                "%s: its weights are pickles (%s), which are not read, since reading them runs what is in them; take "
                "the model's safetensors, if it has them (hf download NAME --include '*.safetensors'), or " CONVERT,
                dir, l.pickle);
    else
        err_set(e, ERR_REQUEST,
                "%s: no weights: neither model.safetensors nor model.safetensors.index.json is there, so the download "
                "is not complete",
                dir);
    fs_list_free(names, n);
    return true;
}
