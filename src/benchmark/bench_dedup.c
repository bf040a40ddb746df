/* SPDX-License-Identifier: Apache-2.0 */
/* bench_dedup.c: steps of tutti data dedup, as that runs them: from a file to files, on one rank. The bytes of text
 * over the processor time of the process is what a core does. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "base/mem.h"
#include "benchmark/bench_texts.h"
#include "curate/dedup.h"
#include "curate/group.h"

static double process_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int put_documents(const char *path, const struct bench_documents *d, struct err *e)
{
    struct str lines = {0};
    struct document x = {0};
    for (int64_t i = 0; i < d->n; i++) {
        document_set(&x, d->text.p + d->begin[i], d->begin[i + 1] - d->begin[i], &(struct origin){.source = "bench"});
        group_put_line(&x, &lines);
    }
    int code = fs_write_atomic(path, str_text(&lines), lines.n, e);
    document_free(&x);
    str_free(&lines);
    return code;
}

struct job {
    struct dedup_config c;
    struct dedup_result r;
};

static int run_rank(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    return dedup_run(world, &j->c, &j->r, e);
}

static int run_step(const char *dir, const char *input, enum dedup_kind kind, struct bench_text_rates *r, struct err *e)
{
    struct job j = {.c = DEDUP_USUAL};
    struct comm_config world = {.timeout_s = 3600};
    char *out = fs_join(dir, "out");
    j.c.inputs = &input;
    j.c.n_inputs = 1;
    j.c.out = out;
    j.c.steps[0] = kind;
    j.c.n_steps = 1;
    double from = process_s();
    int code = comm_run_local(1, &world, run_rank, &j, e);
    double took = process_s() - from;
    if (!code) code = fs_remove_tree(out, e);
    xfree(out);
    if (code) return code;
    if (took < 1e-9) took = 1e-9;
    GROW(r->p, r->n, r->room, 1);
    r->p[r->n++] = (struct bench_text_rate){BENCH_DEDUP, dedup_kind_name(kind), "kept_documents",
                                            (double)j.r.bytes_in / took, (double)j.r.documents_out / took};
    return OK;
}

int bench_dedup(const struct bench_texts *b, const struct bench_documents *d, struct bench_text_rates *r, struct err *e)
{
    if (!b->dedup) return OK;
    struct dedup_config named = {0};
    int code = dedup_read_steps("--dedup", b->dedup, &named, e);
    if (code) return code;
    const char *tmp = getenv("TMPDIR");
    char *dir = fs_join(tmp && *tmp ? tmp : "/tmp", "tutti-bench-XXXXXX");
    if (!mkdtemp(dir)) {
        code = err_set(e, ERR_IO, "%s: cannot be made (%s); name a folder for temporary files by TMPDIR", dir,
                       strerror(errno));
        xfree(dir);
        return code;
    }
    char *input = fs_join(dir, "documents.jsonl");
    code = put_documents(input, d, e);
    for (int i = 0; i < named.n_steps && !code; i++) code = run_step(dir, input, named.steps[i], r, e);
    struct err ignored;
    int removed = fs_remove_tree(dir, code ? &ignored : e);
    xfree(input);
    xfree(dir);
    return code ? code : removed;
}
