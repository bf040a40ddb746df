/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* Validation by the trainer: every layout evaluates all of the text once, whoever takes which part, to one rank's loss;
 * of the validation text and not of the training text, without dropout, and in whatever way the parts fall. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "train/trainer.h"
#include "scratch.h"

/* Two texts of unlike difficulty, so that whose part is whose is seen in the loss: the validation text gets harder
 * towards its end. */
static void write_texts(const char *dir)
{
    struct str easy = {0}, hard = {0};
    struct err e = {0};
    char path[96];
    unsigned x = 1;
    for (int i = 0; i < 120; i++) str_puts(&easy, "aaaa bbbb cccc dddd ");
    for (int i = 0; i < 700; i++) {
        x = x * 1103515245u + 12345u;
        str_printf(&hard, "%c", i < 350 ? "ab "[x >> 16 & 1] : (int)(' ' + (x >> 16) % 90));
    }
    snprintf(path, sizeof path, "%s/train.txt", dir);
    if (fs_write_atomic(path, easy.p, easy.n, &e)) fail_msg("%s", e.text);
    snprintf(path, sizeof path, "%s/valid.txt", dir);
    if (fs_write_atomic(path, hard.p, hard.n, &e)) fail_msg("%s", e.text);
    str_free(&easy);
    str_free(&hard);
}

/* The validation loss after two steps. */
static double validated(const char *dir, const char *keys, int ranks, int64_t *tokens)
{
    static const char fixed[] =
        "model.layers=2 model.hidden=32 model.heads=4 model.ffn=44 model.seq_len=16 batch.global=5 batch.micro=2 "
        "run.steps=2 run.eval_every=1 run.eval_batches=0 run.threads=1 comm.timeout_s=100 run.tensorboard=false "
        "checkpoint.every=0 precision.recipe=fp32 optimizer.lr=5e-2 optimizer.schedule.warmup_steps=0 ";
    char all[1500], *list[64], run[96], *text, path[128];
    struct trainer_result r;
    struct err e = {0};
    int n = 0;
    size_t bytes;
    snprintf(run, sizeof run, "%s/run", dir);
    if (fs_remove_tree(run, &e)) fail_msg("%s", e.text);
    snprintf(all, sizeof all, "%s data.train=%s/train.txt data.valid=%s/valid.txt run.dir=%s %s", fixed, dir, dir, run,
             keys);
    for (char *word = strtok(all, " "); word; word = strtok(NULL, " ")) list[n++] = word;
    if (trainer_run(NULL, list, n, ranks, &r, &e)) fail_msg("%s on %d ranks: %s", keys, ranks, e.text);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    if (fs_read_all(path, 1 << 20, &text, &bytes, &e)) fail_msg("%s", e.text);
    const char *last = text, *next;
    while ((next = strstr(last + 1, "\"valid_tokens\""))) last = next;
    *tokens = 0;
    assert_int_equal(sscanf(last, "\"valid_tokens\":%" SCNd64, tokens), 1);
    xfree(text);
    return r.valid_loss;
}

static const struct {
    const char *keys;
    int ranks;
} layouts[] = {
    {"parallel.dp_shard=2", 2},
    {"parallel.dp_shard=3 parallel.zero=1", 3},
    {"parallel.dp_shard=4 parallel.zero=3", 4}, /* parts of 2, 1, 1, 1 sequences */
    {"parallel.dp_replicate=3", 3},
    {"parallel.dp_replicate=2 parallel.dp_shard=2 parallel.zero=2", 4},
    {"parallel.dp_shard=6 parallel.zero=2", 6}, /* a rank without any */
    {"parallel.tp=2 parallel.dp_shard=2", 4},
    {"parallel.tp=2 parallel.sequence_parallel=true parallel.pp=2", 4},
    {"parallel.cp=3", 3},
    {"parallel.cp=2 parallel.dp_shard=2 parallel.zero=3", 4},
    {"parallel.pp=2 parallel.dp_shard=2", 4},
    {"parallel.pp=2 parallel.schedule=dualpipe parallel.dp_shard=1 batch.global=8 batch.micro=1", 2},
    {"parallel.servers=1 parallel.dp_shard=3", 4},
    {"numerics.exact_order=true parallel.dp_shard=4 batch.global=4 batch.micro=1", 4},
};

static void test_every_layout(void **state)
{
    (void)state;
    char *dir = scratch_new();
    write_texts(dir);
    int64_t all, tokens;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char batch[64] = "";
        const char *at = strstr(layouts[i].keys, "batch.global");
        if (at) snprintf(batch, sizeof batch, "%s", at); /* the last of the keys */
        double want = validated(dir, batch, 1, &all), got = validated(dir, layouts[i].keys, layouts[i].ranks, &tokens);
        if (!(fabs(got - want) <= 2e-5 * want) || tokens != all)
            fail_msg("%s on %d ranks: validation loss %.9g of %lld tokens, one rank has %.9g of %lld", layouts[i].keys,
                     layouts[i].ranks, got, (long long)tokens, want, (long long)all);
    }
    scratch_free(dir);
}

/* Weights that no step moves: dropout and the text that is trained on are nothing to the validation loss, on one rank
 * and on three. */
static void test_of_what(void **state)
{
    (void)state;
    char *dir = scratch_new(), path[96];
    struct err e = {0};
    write_texts(dir);
    int64_t tokens;
    static const char still[] = "optimizer.lr=1e-30 optimizer.schedule.min_lr=0";
    double want = validated(dir, still, 1, &tokens);
    for (int ranks = 1; ranks <= 3; ranks += 2) {
        char keys[160];
        snprintf(keys, sizeof keys, "%s model.dropout=0.5 parallel.dp_shard=%d", still, ranks);
        double got = validated(dir, keys, ranks, &tokens);
        if (!(fabs(got - want) <= 2e-6 * want))
            fail_msg("with dropout on %d ranks %.9g, without %.9g", ranks, got, want);
    }
    snprintf(path, sizeof path, "%s/train.txt", dir);
    struct str other = {0};
    for (int i = 0; i < 300; i++) str_printf(&other, "%d %d, ", i, i * i);
    if (fs_write_atomic(path, other.p, other.n, &e)) fail_msg("%s", e.text);
    str_free(&other);
    double got = validated(dir, still, 1, &tokens);
    if (got != want) fail_msg("with another text to train on %.9g, before %.9g", got, want);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_layout), cmocka_unit_test(test_of_what)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
