/* SPDX-License-Identifier: Apache-2.0 */
/* reference.bin, little-endian: eight bytes "tuttiref", n_train, n_valid, both fingerprints, the values as f64, and the
 * XXH64 of everything before. */
#include "learn/preference.h"

#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"

#define NAME "reference.bin"
enum { HEAD = 5 }; /* words */
static const char magic[8] = {'t', 'u', 't', 't', 'i', 'r', 'e', 'f'};

void preference_pair(double beta, const double nats[2], const double reference[2], struct preference_sums *s,
                     double factor[2])
{
    double chosen = beta * (reference[0] - nats[0]), rejected = beta * (reference[1] - nats[1]), h = chosen - rejected;
    double small = exp(-fabs(h)); /* sigmoid(-h) without overflow */
    double wrong = h > 0 ? small / (1 + small) : 1 / (1 + small);
    s->loss += (h < 0 ? -h : 0) + log1p(small);
    s->chosen += chosen;
    s->rejected += rejected;
    s->right += h > 0;
    s->pairs++;
    factor[0] = beta * wrong;
    factor[1] = -beta * wrong;
}

void preference_rewards(double centre, const double nats[2], struct preference_sums *s, double factor[2])
{
    static const double none[2] = {0};
    double both = nats[0] + nats[1];
    preference_pair(1, nats, none, s, factor);
    s->scored = true;
    s->loss += centre * both * both;
    for (int side = 0; side < 2; side++) factor[side] += 2 * centre * both;
}

static size_t words_of(const struct reference *r) { return HEAD + to_size(r->n_train) + to_size(r->n_valid) + 1; }

static void head_of(const struct reference *r, uint64_t head[HEAD])
{
    memcpy(head, magic, sizeof magic);
    head[1] = (uint64_t)r->n_train;
    head[2] = (uint64_t)r->n_valid;
    head[3] = r->of_train;
    head[4] = r->of_valid;
}

int reference_write(const char *dir, const struct reference *r, struct err *e)
{
    size_t n = words_of(r);
    uint64_t *word = xcalloc(n, sizeof *word);
    head_of(r, word);
    memcpy(word + HEAD, r->train, to_size(r->n_train) * sizeof *word);
    if (r->n_valid) memcpy(word + HEAD + r->n_train, r->valid, to_size(r->n_valid) * sizeof *word);
    word[n - 1] = hash64(word, (n - 1) * sizeof *word);
    char *path = fs_join(dir, NAME);
    int rc = fs_write_atomic(path, word, n * sizeof *word, e);
    xfree(path);
    xfree(word);
    return rc;
}

static int check(const char *path, const struct reference *r, const char *text, size_t bytes, struct err *e)
{
    static const char remedy[] = "what a run began with is gone by now: copy the file from where the run was, or start "
                                 "afresh (checkpoint.resume=never)";
    uint64_t mine[HEAD], head[HEAD] = {0}, sum = 0;
    size_t n = words_of(r);
    head_of(r, mine);
    memcpy(head, text, bytes < sizeof head ? bytes : sizeof head);
    if (bytes < sizeof head || memcmp(head, magic, sizeof magic))
        return err_set(e, ERR_CORRUPT, "%s: is no list of a reference's log-probabilities; %s", path, remedy);
    if (memcmp(head, mine, sizeof head))
        return err_set(e, ERR_REQUEST, "%s: is of other data: %lld and %lld answers, this run has %lld and %lld; %s",
                       path, (long long)head[1], (long long)head[2], (long long)r->n_train, (long long)r->n_valid,
                       remedy);
    if (bytes == n * sizeof sum) memcpy(&sum, text + (n - 1) * sizeof sum, sizeof sum);
    if (bytes != n * sizeof sum || sum != hash64(text, (n - 1) * sizeof sum))
        return err_set(e, ERR_CORRUPT, "%s: is damaged; %s", path, remedy);
    return OK;
}

int reference_read(const char *dir, struct reference *r, struct err *e)
{
    char *path = fs_join(dir, NAME), *text = NULL;
    size_t bytes = 0;
    int64_t there = 0;
    int rc = fs_look(path, &there, e);
    if (!rc && there < 0)
        rc = err_set(e, ERR_REQUEST,
                     "%s: is not there: the log-probabilities that a run of preferences began with; copy it from where "
                     "the run was, or start afresh (checkpoint.resume=never)",
                     path);
    if (!rc) rc = fs_read_all(path, words_of(r) * sizeof(uint64_t) + 4096, &text, &bytes, e);
    if (!rc) rc = check(path, r, text, bytes, e);
    if (!rc) memcpy(r->train, text + HEAD * sizeof(uint64_t), to_size(r->n_train) * sizeof(double));
    if (!rc && r->n_valid)
        memcpy(r->valid, text + (HEAD + to_size(r->n_train)) * sizeof(uint64_t), to_size(r->n_valid) * sizeof(double));
    xfree(text);
    xfree(path);
    return rc;
}
