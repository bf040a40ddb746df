/* SPDX-License-Identifier: Apache-2.0 */
/* grid_row.h: words of a configuration, as of a row of the grid (grid.h), are asked whether they may be, and trained
 * for three steps in their layout and beside a plain one rank (verify.h), and in the trainer itself where data or
 * objective are not the plain ones. In a process of its own: one that ends by a signal, or hangs, is told like one that
 * differs. */
#ifndef TUTTI_TESTS_VERIFY_GRID_ROW_H
#define TUTTI_TESTS_VERIFY_GRID_ROW_H

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"
#include "config/config_codec.h"
#include "config/config_optim.h"
#include "sanitized.h"
#include "verify/grid.h"
#include "verify/verify.h"

enum { MOST_WORDS = 64 };

/* What config_load and config_resolve are given. */
struct asked {
    char *words[2 * MOST_WORDS];
    int n, ranks;
    bool trainer; /* trains something else than the plain data */
};

static inline void asked_row(struct asked *q, const struct grid *g, struct arena *a, const int *row)
{
    q->n = grid_words(g, a, row, q->words, MOST_WORDS);
    q->ranks = 0;
    for (int f = 0; f < g->factors; f++)
        if (g->of[f][row[f]].ranks) q->ranks = g->of[f][row[f]].ranks;
    q->trainer = g->names == grid_factor_names && row[GRID_DATA];
}

/* `one`: as a plain one rank instead; its words are in q afterwards. */
static inline int asked_load(struct asked *q, struct arena *a, bool one, struct config *c, struct conf **f,
                             struct err *e)
{
    static const char *const one_rank[] = {"dp_replicate=1", "dp_shard=-1",  "zero=0",     "tp=1",          "cp=1",
                                           "ep=1",           "pp=1",         "servers=0",  "schedule=auto", "chunks=0",
                                           "round=0",        "pp_layers=[]", "cp_inner=0", "etp=1"};
    for (size_t i = 0; one && i < sizeof one_rank / sizeof *one_rank; i++)
        q->words[q->n++] = arena_printf(a, "parallel.%s", one_rank[i]);
    int rc = config_load(c, f, a, NULL, q->words, q->n, e);
    return rc ? rc : config_resolve(c, *f, 0, one ? 1 : q->ranks, e);
}

static inline bool asked_may(const struct asked *q, struct err *e)
{
    struct arena *a = arena_new();
    struct asked own = *q;
    struct config c;
    struct conf *f;
    int rc = asked_load(&own, a, false, &c, &f, e);
    arena_free(a);
    return !rc;
}

/* ---- trained ---- */
enum outcome_of_row { EQUAL, DIFFERS, BROKEN };
enum { MOST_S = SANITIZED ? 1200 : 240 };

/* Bounds are those of verify/bounds.h. Toys of odd shapes round more than that where anything is rounded to fewer bits
 * than fp32 (a norm of eight numbers, a gradient that nearly cancels), so such a row may be off by three times its
 * bounds: what is wrong altogether is off by more, and in fp32, which every pair of the other factors meets, nothing is
 * added. */
static inline bool asked_within(const struct config *c, const struct verify *v)
{
    const struct verify_layout *l = &v->layout[0];
    const double times = 3, off = times * l->bound;
    /* A step of nothing is off by 1; a second moment of gradients that are off by a part r by r (2 + r). */
    const double most = fmax(1, off * (2 + off));
    const struct optim_config o = config_optim(c); /* Newton-Schulz is in bf16, whatever the recipe */
    bool rounds = optim_of(&o, PARAM_MATRICES)->whole || c->precision.recipe != RECIPE_FP32 ||
                  c->precision.grad != GRAD_FP32 || c->precision.layers.n || config_comm_grad(c) != CODEC_KEPT ||
                  config_comm_param(c) != CODEC_KEPT;
    if (v->ok || !rounds) return v->ok;
    if ((l->unrounded_rel_error >= 0 && !l->unrounded_ok) || l->lean > 1) return false;
    return l->complete && l->max_rel_error <= times * l->bound &&
           l->step_rel_error <= fmin(fmax(most, l->bound_steps), times * l->bound_steps) &&
           l->loss_rel_error <= times * l->bound_totals && l->norm_rel_error <= times * l->bound_totals &&
           l->eval_rel_error <= times * l->bound_totals && l->resume_rel_error <= times * l->bound &&
           l->trained_rel_error <= times * l->bound_steps;
}

static inline enum outcome_of_row asked_try_here(const struct asked *q, int steps, struct str *out)
{
    struct arena *a = arena_new();
    struct asked plain = *q, layout = *q;
    struct config one, own;
    struct conf *f;
    struct verify v = {0};
    struct err e = {0};
    enum outcome_of_row is = EQUAL;
    int rc = asked_load(&layout, a, false, &own, &f, &e);
    if (!rc) rc = asked_load(&plain, a, true, &one, &f, &e);
    bool trains = !rc && (q->trainer || one.train.objective != OBJECTIVE_NEXT);
    const struct trained_asked asked = {.keys = plain.words, .n_keys = plain.n};
    if (!rc)
        rc = verify_all(&v,
                        &(struct verify_asked){.config = &one,
                                               .own = &own,
                                               .trains = trains ? &asked : NULL,
                                               .max_ranks = 0,
                                               .axes = VERIFY_ALL,
                                               .steps = steps},
                        &e);
    if (rc) {
        is = BROKEN;
        str_printf(out, "ended: %d, %s\n", rc, e.text);
    } else {
        is = asked_within(&own, &v) ? EQUAL : DIFFERS;
        verify_print(&v, out);
    }
    verify_free(&v);
    arena_free(a);
    return is;
}

/* In a process of its own, whose words come through a file. */
static inline enum outcome_of_row asked_try(const struct asked *q, int steps, struct str *out)
{
    FILE *words = tmpfile();
    char line[4096];
    int status = 0;
    CHECK(words, "no file");
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0, "no process");
    if (!child) {
        struct str said = {0};
        static const int faults[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSYS};
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) signal(faults[i], SIG_DFL); /* they are cmocka's */
        alarm(MOST_S);
        enum outcome_of_row is = asked_try_here(q, steps, &said);
        fputs(str_text(&said), words);
        fflush(words);
        _exit((int)is);
    }
    CHECK(waitpid(child, &status, 0) == child, "another process");
    rewind(words);
    while (fgets(line, sizeof line, words)) str_puts(out, line);
    fclose(words);
    if (WIFEXITED(status) && WEXITSTATUS(status) <= BROKEN) return (enum outcome_of_row)WEXITSTATUS(status);
    if (WIFSIGNALED(status)) str_printf(out, "ended by signal %d\n", WTERMSIG(status));
    else str_printf(out, "ended with %d\n", WEXITSTATUS(status));
    return BROKEN;
}

#endif
