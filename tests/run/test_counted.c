/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens per second beside tokens that were counted by hand: of each kind of sample, and of layouts that divide a batch
 * unevenly or have it handed on by a server, those that exist and no padding. */
#include "run/runs.h"

#include "data/tokenfile.h"

enum { DOCUMENT = 9, STEPS = 2 }; /* bytes of a document: as many inputs, each a token, with a target */

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

struct row {
    const char *what;
    int ranks, tokens; /* of a step */
    const char *keys;  /* between spaces; DIR: the folder */
};

/* batch.global sequences of model.seq_len places each, 4 of 24. */
static const struct row rows[] = {
    {"joined", 1, 4 * 24, ""},
    {"padded", 1, 4 * DOCUMENT, "data.train=[DIR/texts.jsonl] data.pack=padded"},
    {"best_fit", 1, 4 * 2 * DOCUMENT, "data.train=[DIR/texts.jsonl] data.pack=best_fit"},
    {"uneven", 3, 5 * DOCUMENT, "data.train=[DIR/texts.jsonl] data.pack=padded batch.global=5 batch.micro=1"},
    {"cp", 2, 4 * DOCUMENT, "data.train=[DIR/texts.jsonl] data.pack=padded parallel.cp=2"},
    {"tp and pp", 4, 4 * DOCUMENT, "data.train=[DIR/texts.jsonl] data.pack=padded parallel.tp=2 parallel.pp=2"},
    {"server", 3, 4 * DOCUMENT, "data.train=[DIR/texts.jsonl] data.pack=padded parallel.servers=1"},
    {"server, async", 3, 4 * DOCUMENT,
     "data.train=[DIR/texts.jsonl] data.pack=padded parallel.servers=1 parallel.server_mode=async "
     "parallel.staleness=1"},
    /* the encoder reads three bytes and an end, the decoder a token that begins and two bytes */
    {"pairs of texts", 1, 4 * (4 + 3),
     "model.family=t5 model.encoder_layers=1 model.kv_heads=null model.encoder_len=12 "
     "data.train=[{\"path\":\"DIR/sides.jsonl\",\"target\":\"b\",\"column\":\"a\"}]"},
    /* 29 tokens of text make 27 and 6 of 35 places (data/taken_spans.h) */
    {"spans", 1, 4 * (27 + 6),
     "model.family=t5 model.encoder_layers=1 model.kv_heads=null model.seq_len=35 model.vocab=288 "
     "data.spans.id=287"},
    /* prompt and answer, 5 + 3 and 5 + 7 bytes: all are read, and the end of text is a target only */
    {"preferences", 1, 2 * (8 + 12),
     "train.objective=dpo batch.micro=1 data.train=[{\"path\":\"DIR/pairs.jsonl\",\"chat\":\"plain\"}]"},
    /* hidden tokens: all that are there are read */
    {"encoder", 1, 4 * DOCUMENT,
     "model.family=bert model.kv_heads=null model.vocab=258 data.mlm.id=257 data.train=[DIR/texts.jsonl] "
     "data.pack=padded"},
    /* the text and an end; the target is its class */
    {"classes", 1, 4 * (DOCUMENT + 1),
     "model.family=bert model.kv_heads=null model.classes=26 "
     "data.train=[{\"path\":\"DIR/labelled.jsonl\",\"label\":\"label\"}]"},
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

static void check(const struct folder *f, const struct row *row)
{
    const char *key[32];
    char *keys = with_folder(row->keys, f->dir);
    struct trainer_result r;
    struct err e;
    struct json *line[16];
    int n = split(keys, key), steps = 0;
    key[n] = "run.steps=2";
    key[n + 1] = "checkpoint.every=0";
    key[n + 2] = NULL;
    if (train_ranks(f, row->what, row->ranks, key, &r, &e)) fail_msg("%s: %s", row->what, e.text);
    n = read_metrics(f, row->what, line, 16);
    for (int i = 0; i < n; i++) {
        double rate = json_real(json_get(line[i], "tokens_per_s"), NAN), s = json_real(json_get(line[i], "step_s"), 0);
        if (fabs(rate * s / row->tokens - 1) > 1e-4)
            fail_msg("%s: %.1f tokens a step, %d exist", row->what, rate * s, row->tokens);
        steps++;
        json_free(line[i]);
    }
    assert_int_equal(steps, STEPS);
    xfree(keys);
}

static void tokens_exist(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    write_lines(&f, "texts.jsonl", "{\"text\": \"%c23456789\"}\n");
    write_lines(&f, "labelled.jsonl", "{\"text\": \"%c23456789\", \"label\": 7}\n");
    write_lines(&f, "sides.jsonl", "{\"a\": \"%c23\", \"b\": \"45\"}\n");
    write_lines(&f, "pairs.jsonl", "{\"prompt\": \"%c2345\", \"chosen\": \"yes\", \"rejected\": \"not yes\"}\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check(&f, &rows[i]);
    folder_close(&f);
}

int main(void)
{
    setenv("TUTTI_PEAK", "1e9", 1); /* no figure of this machine is asked for */
    const struct CMUnitTest tests[] = {cmocka_unit_test(tokens_exist)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
