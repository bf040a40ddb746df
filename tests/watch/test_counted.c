/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens per second and FLOPs beside tokens and pairs that were counted by hand: of each kind of sample, and of layouts
 * that divide a batch unevenly or have it handed on by a server, tokens that exist and no padding, pairs that masks
 * show and none that they hide. */
#include "runs.h"

#include "base/thread.h"
#include "kernel/cpu/tile/tile_rate.h"

enum { DOCUMENT = 9, STEPS = 2 }; /* bytes of a document: as many inputs, each a token, with a target */

/* What the ranks' threads do by TUTTI_PEAK, as far as there are cores. */
static double peak(int ranks) { return 1e15 * ranks * tile_rate_share(ranks, 1, thread_n_cores()); }

static void write_lines(const struct folder *f, const char *file, const char *line)
{
    char path[256];
    struct err e = {0};
    struct str s = {0};
    for (int i = 0; i < 48; i++) str_printf(&s, line, 'a' + i % 26);
    snprintf(path, sizeof path, "%s/%s", f->dir, file);
    assert_int_equal(fs_write_atomic(path, str_text(&s), s.n, &e), OK);
    str_free(&s);
}

/* FLOPs that attention has fewer, of so many sequences, when it shows only `seen` of `open` pairs: two products
 * forward, four backward, and what a softmax takes, of each head in each layer. */
#define FEWER(n, open, seen) ((n) * ((open) - (seen)) * LAYERS * HEADS * PAIR)
enum { LAYERS = 2, HEADS = 4, HEAD_DIM = 8, PAIR = 12 * HEAD_DIM + 10 };
enum { CAUSAL = 24 * 25 / 2, OF_TEXT = DOCUMENT * (DOCUMENT + 1) / 2 + (24 - DOCUMENT) }; /* padding sees itself */

struct row {
    const char *what;
    int ranks, tokens; /* of a step */
    const char *keys;  /* between spaces; DIR: the folder */
    const char *base;  /* keys of a run whose masks hide nothing, in the same layout; NULL: FLOPs are not compared */
    int fewer;         /* than its FLOPs; */
    double times;      /* what is left, by so much */
};

#define TEXTS "data.train=[DIR/texts.jsonl] data.pack=padded model.document_mask=true "
#define T5 "model.family=t5 model.encoder_layers=1 model.kv_heads=null "
#define SIDES(file) "model.encoder_len=12 data.train=[{\"path\":\"DIR/" file "\",\"target\":\"b\",\"column\":\"a\"}]"
#define BERT "model.family=bert model.kv_heads=null model.vocab=258 data.mlm.id=257 "

/* batch.global sequences of model.seq_len places each, 4 of 24. */
static const struct row rows[] = {
    {"joined", 1, 4 * 24, "", "", 0, 1},
    {"unmasked", 1, 4 * DOCUMENT, "data.train=[DIR/texts.jsonl] data.pack=padded", "", 0, 1}, /* behind the text */
    {"padded", 1, 4 * DOCUMENT, TEXTS, "", FEWER(4, CAUSAL, OF_TEXT), 1},
    {"best_fit", 1, 4 * 2 * DOCUMENT, "data.train=[DIR/texts.jsonl] data.pack=best_fit", "",
     FEWER(4, CAUSAL, 2 * DOCUMENT * (DOCUMENT + 1) / 2 + 6), 1},
    {"computed again", 1, 4 * DOCUMENT, TEXTS "memory.recompute=full", "", FEWER(4, CAUSAL, OF_TEXT), 1},
    {"windows", 1, 4 * DOCUMENT, TEXTS "model.attn.window=4", "model.attn.window=4",
     FEWER(4, 10 + 20 * 4, 10 + 5 * 4 + 15), 1},
    {"uneven", 3, 5 * DOCUMENT, TEXTS "batch.global=5 batch.micro=1", "batch.global=5 batch.micro=1",
     FEWER(5, CAUSAL, OF_TEXT), 1},
    {"cp", 2, 4 * DOCUMENT, TEXTS "parallel.cp=2", "parallel.cp=2", FEWER(4, CAUSAL, OF_TEXT), 1},
    {"cp by rows", 2, 4 * DOCUMENT, TEXTS "parallel.cp=2 parallel.cp_balance=position", "parallel.cp=2",
     FEWER(4, CAUSAL, OF_TEXT), 1},
    {"tp and pp", 4, 4 * DOCUMENT, TEXTS "parallel.tp=2 parallel.pp=2", "parallel.tp=2 parallel.pp=2",
     FEWER(4, CAUSAL, OF_TEXT), 1},
    {"both ways", 2, 4 * DOCUMENT, TEXTS "parallel.pp=2 parallel.schedule=dualpipev batch.micro=1",
     "parallel.pp=2 parallel.schedule=dualpipev batch.micro=1", FEWER(4, CAUSAL, OF_TEXT), 1},
    {"server", 3, 4 * DOCUMENT, TEXTS "parallel.servers=1", "parallel.servers=1", FEWER(4, CAUSAL, OF_TEXT), 1},
    {"server, async", 3, 4 * DOCUMENT, TEXTS "parallel.servers=1 parallel.server_mode=async parallel.staleness=1",
     "parallel.servers=1 parallel.server_mode=async parallel.staleness=1", FEWER(4, CAUSAL, OF_TEXT), 1},
    /* the encoder reads three bytes and an end, the decoder a token that begins and two bytes; keys that are not there
     * are hidden from the encoder's layer and from what the decoder's layer reads of it */
    {"pairs of texts", 1, 4 * (4 + 3), T5 SIDES("sides.jsonl"), T5 SIDES("whole_sides.jsonl"),
     FEWER(4, 12 * 12, 12 * 4) / LAYERS * 2, 1},
    /* 29 tokens of text make 27 and 6 of 35 places (data/taken_spans.h) */
    {"spans", 1, 4 * (27 + 6), T5 "model.seq_len=35 model.vocab=288 data.spans.id=287", NULL, 0, 0},
    /* prompt and answer, 5 + 3 and 5 + 7 bytes: all are read, and the end of text is a target only. The batch goes
     * forward once more */
    {"preferences", 1, 2 * (8 + 12),
     "train.objective=dpo batch.micro=1 model.document_mask=true "
     "data.train=[{\"path\":\"DIR/pairs.jsonl\",\"chat\":\"plain\"}]",
     "batch.micro=1", FEWER(2, CAUSAL, 8 * 9 / 2 + 16) + FEWER(2, CAUSAL, 12 * 13 / 2 + 12), 4.0 / 3},
    /* hidden tokens: all that are there are read */
    {"encoder", 1, 4 * DOCUMENT, BERT TEXTS, BERT, FEWER(4, 24 * 24, DOCUMENT *DOCUMENT + 15), 1},
    /* the text and an end; the target is its class */
    {"classes", 1, 4 * (DOCUMENT + 1),
     "model.family=bert model.kv_heads=null model.classes=26 "
     "data.train=[{\"path\":\"DIR/labelled.jsonl\",\"label\":\"label\"}]",
     NULL, 0, 0},
};

/* Splits text at spaces, in place. */
static int split(char *text, const char **key)
{
    int n = 0;
    for (char *rest = text, *word; (word = strsep(&rest, " "));)
        if (*word) key[n++] = word;
    key[n] = NULL;
    return n;
}

static char *with_folder(const char *keys, const char *dir)
{
    struct str s = {0};
    for (const char *p = keys; *p;) {
        bool here = !strncmp(p, "DIR", 3);
        if (here) str_puts(&s, dir);
        else str_putc(&s, *p);
        p += here ? 3 : 1;
    }
    char *text = xstrdup(str_text(&s));
    str_free(&s);
    return text;
}

/* Steps of a run: their tokens, and their FLOPs in units of what TUTTI_PEAK says. */
static void steps_of(const struct folder *f, const char *name, int ranks, const char *words, double tokens[STEPS],
                     double work[STEPS])
{
    const char *key[32];
    char *keys = with_folder(words, f->dir);
    struct trainer_result r;
    struct err e;
    struct json *line[16];
    int n = split(keys, key);
    key[n] = "run.steps=2";
    key[n + 1] = "checkpoint.every=0";
    key[n + 2] = NULL;
    if (train_ranks(f, name, ranks, key, &r, &e)) fail_msg("%s: %s", name, e.text);
    n = read_metrics(f, name, line, 16);
    assert_int_equal(n, STEPS);
    for (int i = 0; i < n; i++) {
        double s = json_real(json_get(line[i], "step_s"), NAN);
        tokens[i] = json_real(json_get(line[i], "tokens_per_s"), NAN) * s;
        work[i] = json_real(json_get(line[i], "mfu"), NAN) * s;
        json_free(line[i]);
    }
    xfree(keys);
}

static void check(const struct folder *f, const struct row *row)
{
    double tokens[STEPS], work[STEPS], ignored[STEPS], open[STEPS];
    char name[64];
    steps_of(f, row->what, row->ranks, row->keys, tokens, work);
    for (int i = 0; i < STEPS; i++)
        if (fabs(tokens[i] / row->tokens - 1) > 1e-4)
            fail_msg("%s: %.1f tokens a step, %d exist", row->what, tokens[i], row->tokens);
    if (!row->base) return;
    snprintf(name, sizeof name, "%s, open", row->what);
    steps_of(f, name, row->ranks, row->base, ignored, open);
    double most = row->times == 1 ? 2e-3 : 0.01, fewer = row->fewer / peak(row->ranks); /* mfu has four digits */
    for (int i = 0; i < STEPS; i++) {
        double want = (open[i] - fewer) * row->times;
        if (!(fabs(work[i] / want - 1) < most))
            fail_msg("%s: %.5g FLOPs, wanted %.5g; with nothing hidden they are %.5g", row->what,
                     work[i] * peak(row->ranks), want * peak(row->ranks), open[i] * peak(row->ranks));
    }
}

static void tokens_and_pairs_exist(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    write_lines(&f, "texts.jsonl", "{\"text\": \"%c23456789\"}\n");
    write_lines(&f, "labelled.jsonl", "{\"text\": \"%c23456789\", \"label\": 7}\n");
    write_lines(&f, "sides.jsonl", "{\"a\": \"%c23\", \"b\": \"45\"}\n");
    write_lines(&f, "whole_sides.jsonl", "{\"a\": \"%c2345678901\", \"b\": \"45\"}\n");
    write_lines(&f, "pairs.jsonl", "{\"prompt\": \"%c2345\", \"chosen\": \"yes\", \"rejected\": \"not yes\"}\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(&f, &rows[i]);
    folder_close(&f);
}

int main(void)
{
    setenv("TUTTI_PEAK", "1e15", 1); /* no figure of this machine is asked for, and no step is faster */
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_and_pairs_exist)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
