/* SPDX-License-Identifier: Apache-2.0 */
/* energon_mix.c: one walk over the tree of each file, which appends leaves; who puts several together multiplies their
 * weights or repetitions afterwards. */
#include "data/energon_mix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/str.h"
#include "data/energon_yaml.h"
#include "remote/remote.h"

enum { DEPTH_MOST = 16, LEAVES_MOST = 4096, PEEK_BYTES = 16 << 20 };

enum mode { MODE_NONE, MODE_WEIGHTS, MODE_REPETITIONS };
static const char *const mode_names[] = {"", "blend", "blend_epochized"};

struct walk {
    struct energon_mix *m;
    int room, depth;
    const char *top; /* the file that was asked for */
};
/* What a node has from those around it. */
struct around {
    const char *file, *part;
    struct energon_subset subset; /* relative alone */
};

/* ---- keys ---- */

enum { IN_REF = 1, IN_JOINED = 2, IN_JOIN = 4, IN_BLEND = 8, IN_WEIGHTED = 16, IN_REPEATED = 32, IN_FILE = 64 };
static const struct {
    const char *name;
    int where;
} keys[] = {
    {"path", IN_REF | IN_JOINED},
    {"split_part", IN_REF | IN_JOINED | IN_JOIN},
    {"dataset_config", IN_REF | IN_JOINED | IN_JOIN},
    {"split_config", IN_REF | IN_JOINED | IN_JOIN},
    {"subflavor", IN_REF | IN_JOINED | IN_JOIN},
    {"subflavors", IN_REF | IN_JOINED | IN_JOIN},
    {"shuffle_over_epochs_multiplier", IN_REF | IN_JOINED | IN_JOIN},
    {"subset", IN_REF | IN_JOIN | IN_BLEND},
    {"nonmatch", IN_JOINED},
    {"join", IN_JOIN},
    {"joiner", IN_JOIN},
    {"blend", IN_BLEND},
    {"blend_epochized", IN_BLEND},
    {"datasets", IN_BLEND},
    {"weight", IN_WEIGHTED},
    {"repetitions", IN_REPEATED},
    {"__module__", IN_FILE},
    {"__class__", IN_FILE},
    {"splits", IN_FILE},
};

static int check_keys(const struct conf_node *v, const char *file, int where, struct err *e)
{
    if (v->kind != CONF_NODE_MAP)
        return err_set(e, ERR_CORRUPT, "%s:%d: wanted a map, such as {path: FOLDER}", file, v->line);
    for (const struct conf_node *m = v->first; m; m = m->next) {
        size_t i = 0, n = sizeof keys / sizeof *keys;
        while (i < n && (strcmp(keys[i].name, m->key) || !(keys[i].where & where))) i++;
        if (i < n) continue;
        bool code = !strcmp(m->key, "aux") || !strcmp(m->key, "__class__") || !strcmp(m->key, "__module__");
        return err_set(e, ERR_REQUEST, "%s:%d: %.60s: %s", file, m->key_line, m->key,
                       code ? "is for Python code, which nothing here runs" : "no such key is known here");
    }
    return OK;
}

/* ---- numbers and words ---- */

static int positive(const struct conf_node *v, const char *key, const char *file, double *x, struct err *e)
{
    const struct conf_node *m = energon_member(v, key);
    *x = 1;
    if (!m || (energon_number(energon_text(m), x) && *x > 0)) return OK;
    return err_set(e, ERR_REQUEST, "%s:%d: %s: wanted a number above 0", file, m->line, key);
}

/* Their order repeats after so many epochs; here every epoch has its own. */
static int check_shuffle(const struct conf_node *v, const char *file, struct err *e)
{
    static const char key[] = "shuffle_over_epochs_multiplier";
    double x = 1;
    for (const struct conf_node *m = v->first; m; m = m->next)
        if (!strcmp(m->key, key) && (conf_node_is_null(m) || !energon_number(energon_text(m), &x) || x != 1))
            return err_set(e, ERR_REQUEST, "%s:%d: %s: samples are shuffled within an epoch here, each once; wanted 1",
                           file, m->line, key);
    return OK;
}

/* "25%" → 0.25. */
static bool percent(const char *text, double *x)
{
    char word[40];
    size_t n = text ? strlen(text) : 0;
    if (n < 2 || n > sizeof word || text[n - 1] != '%') return false;
    memcpy(word, text, n - 1);
    word[n - 1] = 0;
    if (!energon_number(word, x) || *x < 0 || *x > 100) return false;
    *x /= 100;
    return true;
}

static bool whole(const char *text, int64_t *n)
{
    double x;
    if (!energon_number(text, &x) || x < 0 || x > 1e15 || x != floor(x)) return false;
    *n = (int64_t)x;
    return true;
}

/* subset: {range: [A, B]}, in percent of what is below it or in samples of a folder, put together with what stands
 * around. */
static int read_subset(const struct conf_node *v, const struct around *a, bool leaf, struct energon_subset *out,
                       struct err *e)
{
    const struct conf_node *s = energon_member(v, "subset"), *range = energon_member(s, "range"),
                           *first = range && range->kind == CONF_NODE_LIST && range->n == 2 ? range->first : NULL;
    struct energon_subset own = ENERGON_ALL;
    *out = a->subset;
    if (!s) return OK;
    const char *from = energon_text(first), *to = first ? energon_text(first->next) : NULL;
    bool ends = to && !strcmp(to, "end"), samples = from && whole(from, &own.first);
    bool good = from && to && (samples ? ends || whole(to, &own.last) : percent(from, &own.from));
    if (good && !samples) good = ends || percent(to, &own.to);
    if (good) good = samples ? ends || own.first <= own.last : own.from <= own.to;
    if (!good)
        return err_set(e, ERR_REQUEST,
                       "%s:%d: subset: wanted {range: [A, B]}, as [25%%, 75%%] or [100, 200] or [100, end]", a->file,
                       s->line);
    if (samples && !leaf)
        return err_set(e, ERR_REQUEST,
                       "%s:%d: subset: a range in samples goes with a folder or a join; wanted percents", a->file,
                       s->line);
    double all = own.to - own.from;
    *out = (struct energon_subset){own.first, own.last, own.from + a->subset.from * all, own.from + a->subset.to * all};
    return OK;
}

/* ---- references ---- */

static char *beside(struct walk *w, const char *file, const char *path)
{
    char *folder = xstrdup(file), *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    char *joined = path[0] == '/' || !slash ? xstrdup(path) : fs_join(folder, path);
    char *kept = arena_strdup(w->m->arena, joined);
    xfree(joined);
    xfree(folder);
    return kept;
}

static int file_name(const struct conf_node *v, const char *key, const char *file, const char **name, struct err *e)
{
    const struct conf_node *m = energon_member(v, key);
    const char *text = energon_text(m);
    if (!m) return OK;
    if (!text || !*text || strchr(text, '/'))
        return err_set(e, ERR_REQUEST, "%s:%d: %s: wanted the name of a file in .nv-meta", file, m->line, key);
    *name = text;
    return OK;
}

/* A path and what goes with it; whether it is a folder is asked by the caller. */
static int read_ref(struct walk *w, const struct conf_node *v, const struct around *a, struct energon_ref *r,
                    struct err *e)
{
    const struct conf_node *at = energon_member(v, "path"), *part = energon_member(v, "split_part");
    const char *path = energon_text(at);
    if (!path || !*path) return err_set(e, ERR_REQUEST, "%s:%d: wanted a path", a->file, v->line);
    if (strstr(path, "://"))
        return err_set(e, ERR_REQUEST,
                       "%s:%d: %.200s: a folder of Megatron-Energon behind an address is not read; copy it", a->file,
                       at->line, path);
    if (part && !energon_text(part))
        return err_set(e, ERR_REQUEST, "%s:%d: split_part: wanted a name", a->file, part->line);
    *r = (struct energon_ref){.folder = beside(w, a->file, path), .part = part ? part->text : a->part};
    int code = file_name(v, "dataset_config", a->file, &r->dataset, e);
    if (!code) code = file_name(v, "split_config", a->file, &r->split, e);
    if (!code) code = check_shuffle(v, a->file, e);
    if (code) return code;
    if (fs_is_dir(r->folder)) return OK;
    if (fs_absent(r->folder))
        return err_set(e, ERR_REQUEST, "%s:%d: %s: there is no such folder or file", a->file, at->line, r->folder);
    if (str_ends(r->folder, ".jsonl"))
        return err_set(e, ERR_REQUEST,
                       "%s:%d: %s: of a .jsonl Python code of its user makes samples (crude data), which nothing here "
                       "runs",
                       a->file, at->line, r->folder);
    return OK;
}

static int add_leaf(struct walk *w, const struct energon_ref *ref, int n, const struct energon_subset *s, struct err *e)
{
    struct energon_mix *m = w->m;
    struct str name = {0};
    if (m->n == LEAVES_MOST)
        return err_set(e, ERR_REQUEST, "%s: puts more than %d folders together", w->top, LEAVES_MOST);
    GROW(m->leaf, m->n, w->room, 1);
    str_printf(&name, "%s: ", w->top);
    for (int i = 0; i < n; i++) str_printf(&name, "%s%s", i ? " + " : "", ref[i].folder);
    str_printf(&name, " (%s)", ref[0].part);
    struct energon_leaf *l = &m->leaf[m->n++];
    *l = (struct energon_leaf){.ref = arena_alloc(m->arena, (size_t)n * sizeof *ref),
                               .n_refs = n,
                               .subset = *s,
                               .weight = 1,
                               .name = arena_strdup(m->arena, str_text(&name))};
    memcpy(l->ref, ref, (size_t)n * sizeof *ref);
    str_free(&name);
    return OK;
}

static int read_file(struct walk *w, const struct around *a, enum mode *mode, struct err *e);

static int read_path(struct walk *w, const struct conf_node *v, const struct around *a, enum mode *mode, struct err *e)
{
    struct energon_ref r;
    struct around inner = *a;
    int code = read_ref(w, v, a, &r, e);
    if (code) return code;
    bool folder = fs_is_dir(r.folder);
    if (!folder && (r.dataset || r.split))
        return err_set(e, ERR_REQUEST, "%s:%d: dataset_config and split_config go with a folder, and %s is a file",
                       a->file, v->line, r.folder);
    code = read_subset(v, a, folder, &inner.subset, e);
    if (code) return code;
    if (folder) return add_leaf(w, &r, 1, &inner.subset, e);
    inner.file = r.folder;
    inner.part = r.part;
    return read_file(w, &inner, mode, e);
}

/* ---- joins ---- */

static int read_joiner(const struct conf_node *v, const char *file, struct err *e)
{
    const struct conf_node *joiner = energon_member(v, "joiner");
    const char *type = energon_text(energon_member(joiner, "__class__")),
               *module = energon_text(energon_member(joiner, "__module__"));
    if (!type) return err_set(e, ERR_CORRUPT, "%s:%d: join: has no joiner with a __class__", file, v->line);
    if (module && strcmp(module, "megatron.energon") && !str_starts(module, "megatron.energon."))
        return err_set(e, ERR_REQUEST, "%s:%d: joiner: %.100s of %.100s is Python code, which nothing here runs", file,
                       joiner->line, type, module);
    if (energon_trains(type)) return OK;
    return err_set(e, ERR_REQUEST,
                   "%s:%d: joiner: makes samples of the type %.100s; no model here trains on those yet (wanted "
                   "ImageClassificationSample: a picture and its class)",
                   file, joiner->line, type);
}

static int read_nonmatch(const struct conf_node *v, const struct around *a, bool first, struct energon_ref *r,
                         struct err *e)
{
    static const char *const words[] = {"error", "skip", "none"};
    const struct conf_node *m = energon_member(v, "nonmatch");
    const char *text = m ? energon_text(m) : words[0];
    int i = 0;
    while (i < 3 && (!text || strcmp(text, words[i]))) i++;
    if (i == 3) /* null is what YAML makes of none in some hands */
        return err_set(e, ERR_REQUEST, "%s:%d: nonmatch: wanted error, skip or none", a->file, m->line);
    if (first && i)
        return err_set(e, ERR_REQUEST, "%s:%d: nonmatch: of the first folder all samples are meant; leave it out",
                       a->file, m->line);
    r->nonmatch = (enum energon_nonmatch)i;
    return OK;
}

static int read_join(struct walk *w, const struct conf_node *v, const struct around *a, struct err *e)
{
    const struct conf_node *list = energon_member(v, "join"), *part = energon_member(v, "split_part");
    struct around inner = *a;
    struct energon_subset subset;
    const char *dataset = NULL, *split = NULL;
    int n = 0, code = check_shuffle(v, a->file, e);
    if (!code) code = read_joiner(v, a->file, e);
    if (!code) code = file_name(v, "dataset_config", a->file, &dataset, e);
    if (!code) code = file_name(v, "split_config", a->file, &split, e);
    if (!code) code = read_subset(v, a, true, &subset, e);
    if (code) return code;
    if (list->kind != CONF_NODE_LIST || list->n < 1)
        return err_set(e, ERR_REQUEST, "%s:%d: join: wanted a list of folders; names for them are for Python code",
                       a->file, list->line);
    if (part && !energon_text(part))
        return err_set(e, ERR_REQUEST, "%s:%d: split_part: wanted a name", a->file, part->line);
    if (part) inner.part = part->text;
    struct energon_ref *ref = arena_alloc(w->m->arena, (size_t)list->n * sizeof *ref);
    for (const struct conf_node *i = list->first; i && !code; i = i->next, n++) {
        code = check_keys(i, a->file, IN_JOINED, e);
        if (!code) code = read_ref(w, i, &inner, &ref[n], e);
        if (!code) code = read_nonmatch(i, a, n == 0, &ref[n], e);
        if (code) return code;
        if (!fs_is_dir(ref[n].folder))
            return err_set(e, ERR_REQUEST, "%s:%d: join: %s is no folder", a->file, i->line, ref[n].folder);
        if (!ref[n].dataset) ref[n].dataset = dataset;
        if (!ref[n].split) ref[n].split = split;
    }
    return code ? code : add_leaf(w, ref, n, &subset, e);
}

/* ---- blends ---- */

static int read_source(struct walk *w, const struct conf_node *v, const struct around *a, int own, enum mode *mode,
                       struct err *e)
{
    bool join = energon_member(v, "join") != NULL;
    int code = check_keys(v, a->file, (join ? IN_JOIN : IN_REF) | own, e);
    *mode = MODE_NONE;
    if (code) return code;
    return join ? read_join(w, v, a, e) : read_path(w, v, a, mode, e);
}

/* The items' own weights or repetitions times what is in them. */
static int read_blend(struct walk *w, const struct conf_node *v, const struct conf_node *list, const struct around *a,
                      enum mode mode, struct err *e)
{
    const char *key = mode == MODE_WEIGHTS ? "weight" : "repetitions";
    struct around inner = *a;
    double sum = 0, x;
    int code = read_subset(v, a, false, &inner.subset, e);
    if (code) return code;
    if (list->kind != CONF_NODE_LIST || !list->n)
        return err_set(e, ERR_REQUEST, "%s:%d: %s: wanted a list of {%s: N, path: FOLDER}", a->file, list->line,
                       list->key, key);
    for (const struct conf_node *i = list->first; i && !code; i = i->next) {
        code = positive(i, key, a->file, &x, e);
        sum += x;
    }
    for (const struct conf_node *i = list->first; i && !code; i = i->next) {
        enum mode has;
        int first = w->m->n;
        code = read_source(w, i, &inner, mode == MODE_WEIGHTS ? IN_WEIGHTED : IN_REPEATED, &has, e);
        if (!code && has != MODE_NONE && has != mode)
            code = err_set(e, ERR_REQUEST, "%s:%d: a %s inside a %s: samples by weight and by repetitions do not mix",
                           a->file, i->line, mode_names[has], mode_names[mode]);
        if (!code) code = positive(i, key, a->file, &x, e);
        for (int k = first; !code && k < w->m->n; k++) {
            struct energon_leaf *l = &w->m->leaf[k];
            if (mode == MODE_WEIGHTS) l->weight *= x / sum;
            else l->repetitions = x * (has == MODE_NONE ? 1 : l->repetitions);
        }
    }
    return code;
}

static int read_node(struct walk *w, const struct conf_node *v, const struct around *a, bool old, enum mode *mode,
                     struct err *e)
{
    const struct conf_node *blend = energon_member(v, old ? "datasets" : "blend"),
                           *repeated = old ? NULL : energon_member(v, "blend_epochized"),
                           *list = blend ? blend : repeated;
    if (!list && old) return err_set(e, ERR_CORRUPT, "%s:%d: %s: wanted `datasets`", a->file, v->line, a->part);
    if (!list) return read_source(w, v, a, 0, mode, e);
    int code = check_keys(v, a->file, IN_BLEND, e);
    *mode = blend ? MODE_WEIGHTS : MODE_REPETITIONS;
    if (!code && blend && repeated)
        code = err_set(e, ERR_REQUEST, "%s:%d: blend and blend_epochized are both given; which one?", a->file, v->line);
    return code ? code : read_blend(w, v, list, a, *mode, e);
}

/* a->file and a->part say what is wanted of it. */
static int read_file(struct walk *w, const struct around *a, enum mode *mode, struct err *e)
{
    struct conf_node *root;
    *mode = MODE_NONE;
    if (w->depth == DEPTH_MOST)
        return err_set(e, ERR_REQUEST, "%s: more than %d files that name each other; in a circle?", w->top, DEPTH_MOST);
    int code = energon_tree(a->file, w->m->arena, &root, e);
    if (!code) code = check_keys(root, a->file, IN_FILE, e);
    if (code) return code;
    const char *type = energon_text(energon_member(root, "__class__"));
    bool old = !type || !strcmp(type, "Metadataset");
    const struct conf_node *splits = energon_member(root, "splits"), *part = energon_member(splits, a->part);
    if (!old && strcmp(type, "MetadatasetV2"))
        return err_set(e, ERR_REQUEST,
                       "%s: __class__: %.100s: wanted MetadatasetV2 or Metadataset; other classes are "
                       "Python code, which nothing here runs",
                       a->file, type);
    if (!splits) return err_set(e, ERR_CORRUPT, "%s: has no splits", a->file);
    if (!part) return err_set(e, ERR_REQUEST, "%s:%d: splits: has no part \"%.60s\"", a->file, splits->line, a->part);
    w->depth++;
    code = read_node(w, part, a, old, mode, e);
    w->depth--;
    return code;
}

bool energon_mix_is(const char *path)
{
    struct err e;
    char *text;
    size_t n;
    if ((!str_ends(path, ".yaml") && !str_ends(path, ".yml")) || remote_is(path) || fs_absent(path) || fs_is_dir(path))
        return false;
    int code = fs_read_all(path, PEEK_BYTES, &text, &n, &e);
    if (code) return code == ERR_IO; /* whoever reads it then says why it cannot be read */
    bool is = str_starts(text, "splits:") || strstr(text, "\nsplits:") || strstr(text, "__class__: Metadataset");
    xfree(text);
    return is;
}

int energon_mix_read(struct energon_mix *m, const char *path, const char *part, struct err *e)
{
    enum mode mode;
    struct walk w = {.m = m, .top = path};
    *m = (struct energon_mix){.arena = arena_new()};
    return read_file(&w, &(struct around){path, part, ENERGON_ALL}, &mode, e);
}

void energon_mix_free(struct energon_mix *m)
{
    xfree(m->leaf);
    if (m->arena) arena_free(m->arena);
    *m = (struct energon_mix){0};
}
