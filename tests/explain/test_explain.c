/* SPDX-License-Identifier: Apache-2.0 */
/* What tutti explain tells: folding says nothing that is not so, lines are broken and lose no word, and the figures are
 * those of closed forms and of the plan. */
#include "toy.h"

#include "base/rng.h"
#include "explain/explain.h"
#include "tape/lower_impl.h"
#include "layout/shape.h"
#include "plan/plan.h"

/* ---- lines ---- */

static const char *printed(struct lines *l, struct str *out)
{
    out->n = 0;
    explain_lines_print(l, 0, 0, out);
    return str_text(out);
}

static void test_fold(void **state)
{
    (void)state;
    struct lines l = {0};
    struct str out = {0};
    char line[64], index[16];
    /* three dense layers, then five with experts, the last of another width */
    explain_lines_add(&l, -1, -1, "0 ", "embed");
    for (int layer = 0, i = 1; layer < 8; layer++) {
        snprintf(line, sizeof line, "layer %d", layer);
        explain_lines_add(&l, layer, -1, "", line);
        for (int k = 0; k < 2; k++) {
            snprintf(index, sizeof index, "%d ", i++);
            snprintf(line, sizeof line, "%s%s layers.%d.x%s", k ? "mlp" : "attn", k && layer > 2 ? " moe" : "", layer,
                     layer == 7 ? " wide" : "");
            explain_lines_add(&l, layer, -1, index, line);
        }
    }
    explain_lines_fold(&l, LINE_LAYER);
    assert_string_equal(printed(&l, &out),
                        "0 embed\n"
                        "layer 0\n1 attn layers.0.x\n2 mlp layers.0.x\n     ... the same for layers 1 to 2\n"
                        "layer 3\n7 attn layers.3.x\n8 mlp moe layers.3.x\n     ... the same for layers 4 to 6\n"
                        "layer 7\n15 attn layers.7.x wide\n16 mlp moe layers.7.x wide\n");
    /* in turn, and backwards */
    for (int layer = 5; layer >= 0; layer--)
        for (int k = 0; k < 2; k++) {
            snprintf(line, sizeof line, "%s", layer % 2 ? "local" : "global");
            explain_lines_add(&l, layer, -1, "", line);
        }
    explain_lines_fold(&l, LINE_LAYER);
    assert_string_equal(printed(&l, &out), "local\nlocal\nglobal\nglobal\n     ... the same for layers 3 to 0\n");
    /* experts of two layers, of which the first half is here */
    for (int layer = 0; layer < 2; layer++)
        for (int x = 0; x < 20; x++) {
            snprintf(line, sizeof line, "layers.%d.experts.%d.up %s", layer, x, x < 10 ? "all" : "nothing");
            explain_lines_add(&l, layer, x, "", line);
        }
    explain_lines_fold(&l, LINE_EXPERT);
    explain_lines_fold(&l, LINE_LAYER);
    assert_string_equal(printed(&l, &out), "layers.0.experts.0.up all\n     ... the same for experts 1 to 9\n"
                                           "layers.0.experts.10.up nothing\n     ... the same for experts 11 to 19\n"
                                           "     ... the same for layer 1\n");
    /* layer 2 to 4 are not here */
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) explain_lines_add(&l, i < 2 ? i : 5, -1, "", "a");
    explain_lines_fold(&l, LINE_LAYER);
    assert_string_equal(printed(&l, &out), "a\na\n     ... the same for layer 1\na\na\n");
    explain_lines_free(&l);
    str_free(&out);
}

/* Layers of random kinds: every layer is printed, or some note says that it is as a printed one that is of its kind. */
static void test_fold_is_true(void **state)
{
    (void)state;
    for (int round = 0; round < 400; round++) {
        enum { LAYERS = 24 };
        int kind[LAYERS], shown[LAYERS] = {0}, last = -1;
        struct lines l = {0};
        struct str out = {0};
        for (int i = 0; i < LAYERS; i++) {
            char line[64];
            kind[i] = (int)(rng_u64(5, 6, (uint64_t)(round * LAYERS + i)) % (uint64_t)(round % 4 ? 3 : 1)) && round % 2;
            snprintf(line, sizeof line, "layer %d", i);
            explain_lines_add(&l, i, -1, "", line);
            snprintf(line, sizeof line, "kind %d of layers.%d", kind[i], i);
            explain_lines_add(&l, i, -1, "", line);
        }
        explain_lines_fold(&l, LINE_LAYER);
        for (const char *p = printed(&l, &out); *p; p = strchr(p, '\n') + 1) {
            int from, to, at;
            if (sscanf(p, "layer %d", &at) == 1) shown[last = at] = 1;
            bool many = sscanf(p, " ... the same for layers %d to %d", &from, &to) == 2;
            if (!many && sscanf(p, " ... the same for layer %d", &from) == 1) to = from, many = true;
            if (!many) continue;
            assert_int_equal(from, last + 1);
            bool some = false;
            for (int period = 1; period <= from && !some;
                 period++) { /* a block of so many layers, all of them printed */
                some = shown[from - period] && (to - from + 1) % period == 0;
                for (int i = from; i <= to && some; i++) some = kind[i] == kind[i - period];
                for (int i = from - period; i < from && some; i++) some = shown[i];
            }
            if (!some) fail_msg("round %d: layers %d to %d are not what the note says", round, from, to);
            for (int i = from; i <= to; i++) shown[i] = 2;
            last = to;
        }
        for (int i = 0; i < LAYERS; i++)
            if (!shown[i]) fail_msg("round %d: layer %d is lost", round, i);
        str_free(&out);
        explain_lines_free(&l);
    }
}

static void test_wrap(void **state)
{
    (void)state;
    struct str out = {0};
    explain_lines_wrap("short\n  one two three four five\n\nabcdefghijklmnop\n", 12, 4, &out);
    assert_string_equal(str_text(&out), "short\n  one two\n    three\n    four\n    five\n\nabcdefghijkl\n    mnop\n");
    out.n = 0;
    explain_lines_wrap("exactly here\n", 12, 4, &out);
    assert_string_equal(str_text(&out), "exactly here\n");
    str_free(&out);
}

/* ---- figures ---- */

struct explained {
    struct arena *arena;
    struct config c;
    struct explain x;
    struct site site;
};

static void explained_open(struct explained *s, int n_ranks, const char *const *keys)
{
    struct conf *f;
    struct err e = {0};
    char *copy[40];
    int n = 0;
    *s = (struct explained){.arena = arena_new()};
    for (; keys[n]; n++) copy[n] = arena_strdup(s->arena, keys[n]);
    if (config_load(&s->c, &f, s->arena, NULL, copy, n, &e) || config_resolve(&s->c, f, 0, n_ranks, &e))
        fail_msg("%s", e.text);
    struct comm_config link = config_comm(&s->c);
    if (site_open(&s->site, &(struct site_config){.config = &s->c, .kind = SITE_COUNTS, .n = n_ranks, .link = &link},
                  &e))
        fail_msg("%s", e.text);
    s->x = (struct explain){.c = &s->c, .g = s->site.engine, .d = s->site.dev, .ranks = s->site.ranks};
}

static void explained_close(struct explained *s)
{
    site_close(&s->site);
    arena_free(s->arena);
}

static struct json *document(struct explained *s,
                             int (*json)(const struct explain *x, struct json_out *o, struct err *e))
{
    struct str text = {0};
    struct json_out o = {.s = &text};
    struct json *root;
    struct err e = {0};
    json_begin_document(&o, "test", 1);
    if (json(&s->x, &o, &e)) fail_msg("%s", e.text);
    json_end_object(&o);
    if (json_parse(&root, str_text(&text), text.n, "test", &e)) fail_msg("%s", e.text);
    str_free(&text);
    return root;
}

#define SMALL                                                                                                          \
    "model.family=llama", "model.vocab=130", "model.seq_len=32", "model.hidden=48", "model.heads=4",                   \
        "model.kv_heads=2", "model.ffn=96", "model.layers=3", "batch.global=4", "batch.micro=2"

static double at(const struct json *list, size_t i, const char *key)
{
    return json_real(json_get(json_at(list, i), key), -1);
}

/* Products of one microbatch, from shapes alone: 2 M N K each, three times over (forward, gradients of inputs and of
 * weights). */
static void test_tape_figures(void **state)
{
    (void)state;
    struct explained s;
    explained_open(&s, 1, (const char *const[]){SMALL, "memory.recompute=none", NULL});
    struct json *root = document(&s, explain_tape_json);
    const struct json *stage = json_at(json_get(root, "stages"), 0), *phases = json_get(stage, "phases");
    double tokens = 2 * 32, linear = 0, all = 0, bytes = 0,
           macs = 3 * (48 * (48 + 24 + 24) + 48 * 48 + 3 * 48 * 96) + 48 * 130;
    int logits = 0;
    for (size_t p = 0; p < json_size(phases); p++) {
        const struct json *code = json_get(json_at(phases, p), "instructions");
        double sum = 0;
        for (size_t i = 0; i < json_size(code); i++) {
            const char *op = json_string(json_get(json_at(code, i), "op"), NULL, "");
            const char *pass = json_string(json_get(json_at(code, i), "pass"), NULL, "");
            sum += at(code, i, "flops");
            if (strcmp(op, "linear")) continue;
            linear += at(code, i, "flops");
            if (at(code, i, "flops") != 2 * tokens * 48 * 130 || strcmp(pass, "fwd")) continue;
            logits++; /* x, w and logits in bf16 */
            bytes = at(code, i, "bytes");
        }
        assert_true(sum == at(phases, p, "flops"));
        all += sum;
    }
    if (linear != 2 * 3 * tokens * macs) fail_msg("products: %.17g FLOP, wanted %.17g", linear, 2 * 3 * tokens * macs);
    assert_int_equal(logits, 1);
    assert_true(bytes == 2 * (tokens * 48 + 130 * 48 + tokens * 130));
    struct plan p;
    struct err e = {0};
    if (plan_make(&p, &s.c, &e)) fail_msg("%s", e.text);
    assert_true(fabs(all * 2 / p.flops_per_step - 1) < 1e-12); /* two microbatches */
    /* and the text says the same, with its unit */
    struct str text = {0};
    char want[128];
    if (explain_tape(&s.x, &text, &e)) fail_msg("%s", e.text);
    assert_contains(str_text(&text), str_flops(want, s.x.g->stage[0].train->flops[PHASE_F]));
    assert_contains(str_text(&text), str_flops(want, 2 * tokens * 48 * 130));
    assert_contains(str_text(&text), "the same for layer 2");
    /* who computes it was chosen when it was lowered, with its scratch, and is told; a long line goes on in the next */
    struct str flat = {0};
    for (const char *c = str_text(&text); *c; c++)
        if (!strchr(" \n", *c) || !flat.n || flat.p[flat.n - 1] != ' ') str_putc(&flat, *c == '\n' ? ' ' : *c);
    const struct program *t = s.x.g->stage[0].train;
    for (int k = 0; k < t->begin[PHASE_N]; k++) {
        const struct instr *i = &t->code[k];
        struct kernel_call c;
        const char *family = NULL;
        instr_call(i, &c);
        const struct kernel_slot *slot = kernel_find(&s.x.g->kernels, &c, &family);
        assert_true(op_collective(i->op) ? !i->kernel : i->kernel && i->kernel == slot && !strcmp(i->family, family));
        size_t need = i->kernel && slot->scratch ? slot->scratch(&c, s.x.g->kernels.n_threads) : 0;
        assert_true(need <= (i->scratch >= 0 ? t->places[i->scratch].bytes : 0));
        if (!i->kernel) continue;
        assert_true(!i->kernel->choose && i->kernel->run);
        snprintf(want, sizeof want, " %s%s%s ", i->family, *instr_path(i) ? " " : "", instr_path(i));
        assert_contains(str_text(&flat), want);
    }
    str_free(&flat);
    str_free(&text);
    plan_free(&p);
    json_free(root);
    explained_close(&s);
}

/* Axes of several ranks are told, others are not; changes of type along several ranks stay, others go. */
static void check_axes(int n, const char *const *keys)
{
    struct explained s;
    struct err e = {0};
    struct str tape = {0}, layout = {0}, full = {0};
    char word[64];
    explained_open(&s, n, keys);
    if (explain_tape(&s.x, &tape, &e) || explain_layout(&s.x, &layout, &e)) fail_msg("%s", e.text);
    s.x.full = true;
    if (explain_tape(&s.x, &full, &e)) fail_msg("%s", e.text);
    for (int a = 0; a < AXIS_N; a++) {
        bool typed = false, dense = a == AXIS_DP_REPLICATE || a == AXIS_DP_SHARD || a == AXIS_CP || a == AXIS_TP;
        for (int i = 0; i < s.x.g->params.n; i++) typed = typed || s.x.g->params.p[i].type.on[a] != SPMD_I;
        snprintf(word, sizeof word, " %s:", axis_name((enum axis)a));
        bool several = s.x.ranks.mesh.size[a] > 1;
        if (dense && (strstr(str_text(&layout), word) != NULL) != (several && typed))
            fail_msg("explain layout over %s of %d", axis_name((enum axis)a), s.x.ranks.mesh.size[a]);
        if (!several && strstr(str_text(&tape), word))
            fail_msg("explain tape tells of %s, of size 1", axis_name((enum axis)a));
        if (dense && several && !strstr(str_text(&tape), word))
            fail_msg("explain tape does not tell of %s", axis_name((enum axis)a));
        if (dense && !strstr(str_text(&full), word)) fail_msg("--full does not tell of %s", axis_name((enum axis)a));
    }
    const struct tape *t = s.x.g->stage[0].tape;
    int left_out = 0;
    for (int i = 0; i < t->n_nodes; i++) left_out += t->nodes[i].retype && s.x.ranks.mesh.size[t->nodes[i].axis] == 1;
    snprintf(word, sizeof word, "(%d changes of mesh type", left_out);
    assert_true((strstr(str_text(&tape), word) != NULL) == (left_out > 0));
    str_free(&tape);
    str_free(&layout);
    str_free(&full);
    explained_close(&s);
}

static void test_axes(void **state)
{
    (void)state;
    check_axes(1, (const char *const[]){SMALL, NULL});
    check_axes(2, (const char *const[]){SMALL, "parallel.tp=2", NULL});
    check_axes(2, (const char *const[]){SMALL, "parallel.cp=2", NULL});
    check_axes(4, (const char *const[]){SMALL, "parallel.dp_replicate=2", "parallel.zero=3", "batch.micro=1", NULL});
    check_axes(4,
               (const char *const[]){SMALL, "parallel.tp=2", "parallel.sequence_parallel=true", "parallel.pp=2", NULL});
}

/* How many ranks hold, share, count a parameter: what the table says when each rank in turn is asked. */
static void check_spread(int n, const char *const *keys)
{
    struct explained s;
    struct err e = {0};
    struct str text = {0};
    explained_open(&s, n, keys);
    struct json *root = document(&s, explain_layout_json);
    struct param_table *t = &s.x.g->params;
    if (explain_layout(&s.x, &text, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < t->n; i++) {
        const struct json *q = json_at(json_get(root, "parameters"), (size_t)i);
        int64_t holders = 0, copies = 0, counted = 0, lo[PARAM_MAX_DIM], ln[PARAM_MAX_DIM];
        char line[96];
        for (int r = 0; r < n; r++) {
            param_place(t, r);
            const struct param *p = &t->p[i];
            if (!p->held) continue;
            if (!holders++) memcpy(lo, p->lo, sizeof lo), memcpy(ln, p->ln, sizeof ln);
            copies +=
                !memcmp(lo, p->lo, to_size(p->nd) * sizeof *lo) && !memcmp(ln, p->ln, to_size(p->nd) * sizeof *ln);
            counted += p->counted;
        }
        counted /= t->mesh.size[AXIS_DP_REPLICATE];
        if (holders != json_int(json_get(q, "holders"), -1) || copies != json_int(json_get(q, "copies"), -1) ||
            counted != json_int(json_get(q, "counted_by"), -1))
            fail_msg("%s: %lld ranks, %lld alike, %lld count it; said are %lld, %lld, %lld", t->p[i].name,
                     (long long)holders, (long long)copies, (long long)counted,
                     (long long)json_int(json_get(q, "holders"), -1), (long long)json_int(json_get(q, "copies"), -1),
                     (long long)json_int(json_get(q, "counted_by"), -1));
        assert_int_equal(json_int(json_get(q, "pieces"), -1) * (holders / copies), counted);
        snprintf(line, sizeof line, "held by %lld of %d ranks", (long long)holders, n);
        assert_non_null(strstr(str_text(&text), line));
    }
    for (const char *at = str_text(&text), *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        assert_true(end - at <= EXPLAIN_COLUMNS);
    }
    param_place(t, 0);
    str_free(&text);
    json_free(root);
    explained_close(&s);
}

static void test_layout_spread(void **state)
{
    (void)state;
    check_spread(1, (const char *const[]){SMALL, NULL});
    check_spread(8, (const char *const[]){SMALL, "parallel.tp=2", "parallel.pp=2", "parallel.zero=3", NULL});
    check_spread(8, (const char *const[]){SMALL, "parallel.cp=2", "parallel.dp_replicate=2", NULL});
    check_spread(8, (const char *const[]){SMALL, "model.family=mixtral", "model.moe.experts=4", "parallel.pp=2",
                                          "parallel.ep=2", "parallel.dp_replicate=2", NULL});
}

/* Every parameter, once, as the table has it; the sums are the model's. */
static void test_layout_json(void **state)
{
    (void)state;
    struct explained s;
    explained_open(&s, 4, (const char *const[]){SMALL, "parallel.tp=2", "parallel.zero=3", NULL});
    struct json *root = document(&s, explain_layout_json);
    const struct json *list = json_get(root, "parameters");
    const struct param_table *t = &s.x.g->params;
    int64_t held = 0, updated = 0;
    assert_int_equal(json_size(list), t->n);
    for (size_t i = 0; i < json_size(list); i++) {
        const struct json *q = json_at(list, i), *box = json_get(q, "held");
        int64_t n = 1;
        assert_string_equal(json_string(json_get(q, "name"), NULL, ""), t->p[i].name);
        for (size_t k = 0; k < json_size(box); k++)
            n *= json_int(json_at(json_at(box, k), 1), 0) - json_int(json_at(json_at(box, k), 0), 0);
        assert_int_equal(n, json_int(json_get(q, "held_elements"), -1));
        held += n;
        updated += json_int(json_get(q, "updated_elements"), -1);
    }
    assert_int_equal(held, json_int(json_get(root, "held_elements"), -1));
    assert_int_equal(updated, json_int(json_get(root, "updated_elements"), -1));
    assert_int_equal(json_int(json_get(root, "elements"), -1), t->numel);
    const struct json *q = json_at(list, (size_t)param_find(t, "layers.1.attn.o.weight"));
    assert_string_equal(json_string(json_get(json_get(q, "type"), "tp"), NULL, ""), "S1");
    assert_null(json_get(json_get(q, "type"), "pp"));
    assert_string_equal(json_string(json_get(q, "layout"), NULL, ""), "dp_replicate:R dp_shard:R cp:R tp:S1*24");
    assert_string_equal(json_string(json_get(q, "stepped"), NULL, ""), "dp_replicate:R tp:S1*24 dp_shard:S0");
    json_free(root);
    explained_close(&s);
}

/* Holders of stages and experts, factors, heads: in full. */
static void test_layout_in_full(void **state)
{
    (void)state;
    struct explained s;
    struct err e = {0};
    struct str full = {0};
    explained_open(&s, 8,
                   (const char *const[]){SMALL, "model.family=mixtral", "model.moe.experts=4", "parallel.pp=2",
                                         "parallel.ep=2", "parallel.dp_replicate=2", NULL});
    s.x.full = true;
    if (explain_layout(&s.x, &full, &e)) fail_msg("%s", e.text);
    assert_non_null(strstr(str_text(&full), "  pp{1}:I dp_replicate:R dp_shard:R cp:R\n")); /* the head */
    assert_non_null(strstr(str_text(&full), "  pp{0}:I ep{1}:I edp:R edp%1:R etp:S0\n"));
    str_free(&full);
    explained_close(&s);
}

static void test_memory_json(void **state)
{
    (void)state;
    struct explained s;
    struct plan p;
    struct err e = {0};
    explained_open(&s, 2, (const char *const[]){SMALL, "parallel.pp=2", "batch.micro=1", NULL});
    if (plan_make(&p, &s.c, &e)) fail_msg("%s", e.text);
    struct json *root = document(&s, explain_memory_json);
    const struct plan_rank *r = p.role;
    while (r->rank != 0) r++;
    for (int m = 0; m < MEM_N; m++)
        assert_int_equal(json_int(json_get(json_get(root, "bytes"), mem_cat_name((enum mem_cat)m)), -1), r->bytes[m]);
    assert_int_equal(json_int(json_get(root, "total_bytes"), -1), r->peak_bytes);
    const struct json *stage = json_at(json_get(root, "stages"), 0), *kept = json_get(stage, "kept");
    double end = 0;
    for (size_t i = 0; i < json_size(kept); i++) end = fmax(end, at(kept, i, "offset") + at(kept, i, "bytes"));
    double slab = json_real(json_get(stage, "activation_bytes"), 0);
    assert_true(end <= slab && end > slab - 64);
    assert_int_equal((int64_t)slab, r->act_bytes_microbatch);
    plan_free(&p);
    json_free(root);
    explained_close(&s);
}

/* The arrays are all that the ledger counts for parameters, and what is said of them is what the store does. */
static void test_arrays(void **state)
{
    (void)state;
    struct explained s;
    explained_open(&s, 2,
                   (const char *const[]){SMALL, "parallel.zero=1", "optimizer.name=sgd", "optimizer.momentum=0",
                                         "optimizer.vectors.name=adamw", NULL});
    struct json *root = document(&s, explain_memory_json);
    const struct json *list = json_get(root, "arrays");
    int64_t sum[MEM_N] = {0}, found = 0;
    for (size_t i = 0; i < json_size(list); i++) {
        const struct json *x = json_at(list, i);
        const char *name = json_string(json_get(x, "name"), NULL, "");
        bool moment = !strcmp(name, "m") || !strcmp(name, "v");
        for (int c = 0; c < MEM_N; c++)
            if (!strcmp(json_string(json_get(x, "category"), NULL, ""), mem_cat_name((enum mem_cat)c)))
                sum[c] += (int64_t)at(list, i, "bytes");
        assert_int_equal(json_bool(json_get(x, "whole"), false), !strcmp(name, "weight") || !strcmp(name, "grad"));
        assert_int_equal(json_bool(json_get(x, "saved"), false), moment || !strcmp(name, "master"));
        assert_int_equal(json_size(json_get(x, "groups")), moment ? 1 : 3);
        if (moment) assert_string_equal(json_string(json_at(json_get(x, "groups"), 0), NULL, ""), "vectors");
        found += moment;
    }
    assert_int_equal(found, 2);
    for (int c = MEM_PARAM; c <= MEM_OPTIMIZER; c++)
        assert_int_equal(sum[c], json_int(json_get(json_get(root, "bytes"), mem_cat_name((enum mem_cat)c)), -1));
    struct str out = {0};
    explain_arrays(&s.x, &out);
    assert_non_null(strstr(str_text(&out), "vectors\n"));
    str_free(&out);
    json_free(root);
    explained_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fold),        cmocka_unit_test(test_fold_is_true),
                                       cmocka_unit_test(test_wrap),        cmocka_unit_test(test_tape_figures),
                                       cmocka_unit_test(test_axes),        cmocka_unit_test(test_layout_spread),
                                       cmocka_unit_test(test_layout_json), cmocka_unit_test(test_layout_in_full),
                                       cmocka_unit_test(test_memory_json), cmocka_unit_test(test_arrays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
