/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c: a main() for all fuzz targets where libFuzzer is not to be had (gcc builds).
 *
 *     fuzz_tests TARGET [-max_total_time=SECONDS] [-runs=N] [-seed=N] SCRATCH_DIR [SEED_DIR ...]
 *
 * -runs=0 replays the seeds only; with -runs the clock ends nothing, so that what ran is the same everywhere.
 * Runs every seed as it is, then mutants of seeds: flipped bits, replaced bytes, cuts, doubled stretches, and
 * two seeds spliced. Mutant i is a pure function of (seed number, i), so a crash repeats. Every input is written
 * to SCRATCH_DIR/last-input before it runs: after a crash, or a hang (10 s of a
 * processor; who only waits is ended by ctest), that file is the culprit. There is no
 * coverage feedback: this finds shallow mistakes and keeps old ones fixed; libFuzzer digs.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"

typedef int fuzz_input(const uint8_t *data, size_t n); /* what LLVMFuzzerTestOneInput of a target is called here */
#define TARGET(name) fuzz_input fuzz_input_##name;
#include FUZZ_TABLE
#undef TARGET
static const struct {
    const char *name;
    fuzz_input *run;
} targets[] = {
#define TARGET(name) {#name, fuzz_input_##name},
#include FUZZ_TABLE
};
enum { N_TARGETS = sizeof targets / sizeof *targets };

#define INPUT_BYTES ((size_t)1 << 16)
#define HANG_S 10

struct input {
    char *p;
    size_t n;
};

struct corpus {
    fuzz_input *target;
    struct input *inputs;
    int n;
    int last_input; /* file descriptor */
};

static void add_directory(struct corpus *c, const char *dir)
{
    struct err e = {0};
    char **names;
    int n;
    if (fs_list(dir, &names, &n, &e)) {
        fprintf(stderr, "%s\n", e.text);
        exit(2);
    }
    for (int i = 0; i < n; i++) {
        char *path = fs_join(dir, names[i]);
        struct input in;
        if (!str_starts(names[i], "last-input") && !fs_read_all(path, INPUT_BYTES, &in.p, &in.n, &e)) {
            c->inputs = xrealloc(c->inputs, (size_t)(c->n + 1) * sizeof *c->inputs);
            c->inputs[c->n++] = in;
        }
        xfree(path);
    }
    fs_list_free(names, n);
}

/* The target gets a block of exactly n bytes, so that a sanitizer sees one byte too far. */
static void run_one(struct corpus *c, const struct input *in)
{
    if (ftruncate(c->last_input, 0) || pwrite(c->last_input, in->p, in->n, 0) != (ssize_t)in->n) {
        perror("last-input");
        exit(1);
    }
    uint8_t *exact = xmalloc(in->n);
    if (in->n) memcpy(exact, in->p, in->n);
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = HANG_S}, NULL);
    c->target(exact, in->n);
    xfree(exact);
}

/* Draws of one mutant: the k-th number below `below`. */
struct dice {
    uint64_t seed, mutant, k;
};

static size_t roll(struct dice *d, size_t below)
{
    return below ? (size_t)(rng_u64(d->seed, d->mutant, d->k++) % below) : 0;
}

static void flip_bit(struct dice *d, struct input *m, const struct input *other)
{
    (void)other;
    if (m->n) m->p[roll(d, m->n)] ^= (char)(1 << roll(d, 8));
}

static void replace_byte(struct dice *d, struct input *m, const struct input *other)
{
    static const char telling[] = "\0\n\t \"'{}[]:,-&*!#\\0919eE+.~\177\200\377";
    (void)other;
    if (m->n) m->p[roll(d, m->n)] = telling[roll(d, sizeof telling - 1)];
}

static void cut(struct dice *d, struct input *m, const struct input *other)
{
    (void)other;
    size_t at = roll(d, m->n), n = roll(d, m->n - at) + (m->n > at);
    memmove(m->p + at, m->p + at + n, m->n - at - n);
    m->n -= n;
}

static void truncate_tail(struct dice *d, struct input *m, const struct input *other)
{
    (void)other;
    m->n = roll(d, m->n + 1);
}

/* Inserts a stretch of p at a random place, as far as there is room. */
static void insert(struct dice *d, struct input *m, const char *p, size_t n)
{
    if (n > INPUT_BYTES - m->n) n = INPUT_BYTES - m->n;
    size_t at = roll(d, m->n + 1);
    char *copy = xmalloc(n);
    memcpy(copy, p, n);
    memmove(m->p + at + n, m->p + at, m->n - at);
    memcpy(m->p + at, copy, n);
    xfree(copy);
    m->n += n;
}

static void repeat(struct dice *d, struct input *m, const struct input *other)
{
    (void)other;
    size_t at = roll(d, m->n), n = roll(d, m->n - at + 1);
    for (size_t times = 1 + roll(d, 8); times && n; times--) insert(d, m, m->p + at, n);
}

static void splice_in(struct dice *d, struct input *m, const struct input *other)
{
    size_t at = roll(d, other->n);
    insert(d, m, other->p + at, roll(d, other->n - at + 1));
}

static void run_mutant(struct corpus *c, uint64_t seed, uint64_t i, char *room)
{
    static void (*const mutations[])(struct dice *, struct input *, const struct input *) = {
        flip_bit, replace_byte, replace_byte, cut, truncate_tail, repeat, splice_in,
    };
    struct dice d = {.seed = seed, .mutant = i};
    const struct input *from = &c->inputs[roll(&d, (size_t)c->n)];
    struct input m = {.p = room, .n = from->n};
    memcpy(room, from->p, from->n);
    for (size_t times = 1 + roll(&d, 5); times; times--)
        mutations[roll(&d, sizeof mutations / sizeof *mutations)](&d, &m, &c->inputs[roll(&d, (size_t)c->n)]);
    run_one(c, &m);
}

/* The number after "-name=", or `otherwise`. */
static double flag(int argc, char **argv, const char *name, double otherwise)
{
    for (int i = 1; i < argc; i++)
        if (str_starts(argv[i], name)) return atof(argv[i] + strlen(name));
    return otherwise;
}

int main(int argc, char **argv)
{
    double runs = flag(argc, argv, "-runs=", -1), seconds = flag(argc, argv, "-max_total_time=", runs < 0 ? 5 : 1e9);
    uint64_t seed = (uint64_t)flag(argc, argv, "-seed=", 1);
    struct corpus c = {.last_input = -1};
    for (int i = 0; argc > 1 && i < N_TARGETS; i++)
        if (!strcmp(argv[1], targets[i].name)) c.target = targets[i].run;
    for (int i = 2; i < argc; i++) {
        if (argv[i][0] == '-') continue;
        if (c.last_input < 0) {
            char *path = fs_join(argv[i], "last-input");
            c.last_input = open(path, O_RDWR | O_CREAT, 0666);
            xfree(path);
        }
        add_directory(&c, argv[i]);
    }
    if (!c.target || c.last_input < 0 || c.n == 0) {
        fprintf(stderr,
                "usage: %s TARGET [-max_total_time=S] [-runs=N] [-seed=N] SCRATCH_DIR SEED_DIR ... (with at least one "
                "seed)\n",
                argv[0]);
        return 2;
    }
    double until = clock_now_s() + seconds;
    for (int i = 0; i < c.n; i++) run_one(&c, &c.inputs[i]);
    char *room = xmalloc(INPUT_BYTES);
    uint64_t n = 0;
    while ((runs < 0 || (double)n < runs) && clock_now_s() < until) run_mutant(&c, seed, n++, room);
    fprintf(stderr, "%d seeds and %llu mutants\n", c.n, (unsigned long long)n);
    for (int i = 0; i < c.n; i++) xfree(c.inputs[i].p);
    xfree(c.inputs);
    xfree(room);
    close(c.last_input);
    return 0;
}
