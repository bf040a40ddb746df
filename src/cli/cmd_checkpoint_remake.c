/* SPDX-License-Identifier: Apache-2.0 */
/* tutti checkpoint reshard and average: a checkpoint from checkpoints. Any layout reads any checkpoint, so nobody needs
 * reshard to train on; it makes many files few, or few many, on a machine of any size. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "hub/remake.h"
#include "cli/cmd_checkpoint.h"

/* -- reshard ------------------------------------------------------------------------------------------------- */

struct reshard_request {
    const char *from, *out;
    int64_t files;
};
static const struct cli_option reshard_options[] = {
    {"--files", "N", CLI_INT, offsetof(struct reshard_request, files), .lo = 1, .hi = REMAKE_FILES_MOST,
     .help = "into how many, of about the same size (default 1)"},
};
static const struct cli_word reshard_words[] = {{.name = "CHECKPOINT", .at = offsetof(struct reshard_request, from)},
                                                {.name = "OUT", .at = offsetof(struct reshard_request, out)}};
static const struct cli_table reshard_table = {
    .command = "checkpoint reshard",
    .usage = "CHECKPOINT OUT [--files N]",
    .about = "The same state in other files, in a new directory OUT. It is read and compared with its checksums in\n"
             "pieces, so a model may be larger than memory. Any layout reads any checkpoint: this is for file systems\n"
             "that like few large files, or many.\n",
    CLI_OPTIONS(reshard_options),
    CLI_WORDS(reshard_words),
};

int checkpoint_reshard(int argc, char **argv)
{
    struct reshard_request q = {.files = 1};
    struct err e;
    struct weights *w;
    int status;
    if (!cli_read(&reshard_table, argc, argv, &q, &status)) return status;
    if (weights_open(&w, q.from, &e)) return cli_fail(&e);
    int code = weights_ckpt(w) ? remake_reshard(w, q.out, (int)q.files, &e)
                               : err_set(&e, ERR_REQUEST,
                                         "%s: is a Hugging Face model; tutti checkpoint import reads it, and export "
                                         "--shard-bytes writes it in other files",
                                         q.from);
    if (!code)
        log_info("%s: %" PRId64 " tensors written to %s in %" PRId64 " file%s", weights_path(w), weights_count(w),
                 q.out, q.files, q.files > 1 ? "s" : "");
    weights_close(w);
    return code ? cli_fail(&e) : 0;
}

/* -- average ------------------------------------------------------------------------------------------------- */

struct average_request {
    struct cli_words from;
    const char *out, *weights;
    int64_t last;
    bool ema;
};
static const struct cli_option average_options[] = {
    {"--out", "DIR", CLI_TEXT, offsetof(struct average_request, out), .needed = true, .help = "a new directory"},
    {"--last", "K", CLI_INT, offsetof(struct average_request, last), .lo = 2, .hi = 10000,
     .help = "of one run or directory: its K newest checkpoints"},
    {"--weights", "W,W,...", CLI_TEXT, offsetof(struct average_request, weights),
     .help = "how much each counts, beside the others (default: the same)"},
    {"--ema", NULL, CLI_FLAG, offsetof(struct average_request, ema),
     .help = "of the averages that they hold (optimizer.ema), not of the last weights"},
};
static const struct cli_word average_words[] = {
    {.name = "CHECKPOINT", .at = offsetof(struct average_request, from), .many = true}};
static const struct cli_table average_table = {
    .command = "checkpoint average",
    .usage = "CHECKPOINT... --out DIR [--last K] [--weights W,W,...] [--ema]",
    .about =
        "The mean of the weights of several checkpoints of one model, as a checkpoint in a new directory: to\n"
        "generate from, to compare, to export. Moments have no mean and are left out, so no run goes on from it.\n",
    CLI_OPTIONS(average_options),
    CLI_WORDS(average_words),
};

/* The paths to average: what was given, or the newest of what was given. */
struct paths {
    char **p;
    int n;
};

static int newest_of(const char *path, int64_t last, struct paths *out, struct err *e)
{
    struct ckpt_listing *list;
    char *inner = fs_join(path, "checkpoints"), *newest = NULL;
    const char *root = fs_is_dir(inner) ? inner : path;
    int n = 0, good = 0, code = ckpt_find_latest(root, &newest, e); /* says what is wrong with the newest */
    xfree(newest);
    if (!code) code = ckpt_list(root, &list, &n, e);
    if (!code) {
        for (int i = 0; i < n; i++) good += list[i].code == OK;
        if (good < last)
            code = err_set(e, ERR_REQUEST, "--last %" PRId64 ": %s holds %d complete checkpoints", last, root, good);
        out->p = xcalloc(to_size(last), sizeof *out->p);
        for (int i = 0; i < n && !code; i++)
            if (list[i].code == OK && good-- <= last) out->p[out->n++] = xstrdup(list[i].path);
        ckpt_list_free(list, n);
    }
    xfree(inner);
    return code;
}

static int choose_paths(const struct average_request *q, struct paths *out, struct err *e)
{
    if (q->last && q->from.n > 1)
        return err_set(e, ERR_REQUEST, "--last: takes one run or directory of checkpoints, %d were given", q->from.n);
    if (q->last) return newest_of(q->from.p[0], q->last, out, e);
    if (q->from.n < 2)
        return err_set(e, ERR_REQUEST, "one checkpoint has no mean; give several, or a run and --last K");
    out->p = xcalloc(to_size(q->from.n), sizeof *out->p);
    for (; out->n < q->from.n; out->n++) out->p[out->n] = xstrdup(q->from.p[out->n]);
    return OK;
}

/* Each one's part of the whole. */
static int read_shares(const char *text, double *share, int n, struct err *e)
{
    double sum = 0;
    const char *at = text;
    for (int k = 0; k < n; k++) {
        char *end = NULL;
        share[k] = text ? strtod(at, &end) : 1;
        bool more = k + 1 < n;
        if (text && (end == at || !isfinite(share[k]) || share[k] < 0 || *end != (more ? ',' : 0)))
            return err_set(e, ERR_REQUEST, "--weights: wanted %d numbers of 0 or more with commas between, got '%s'", n,
                           text);
        at = text ? end + more : at;
        sum += share[k];
    }
    if (!(sum > 0) || !isfinite(sum)) return err_set(e, ERR_REQUEST, "--weights: '%s' add up to %g", text, sum);
    for (int k = 0; k < n; k++) share[k] /= sum;
    return OK;
}

static int average(const struct average_request *q, const struct paths *paths, struct err *e)
{
    int code = OK, n = 0;
    struct weights **w = xcalloc(to_size(paths->n), sizeof *w);
    double *share = xcalloc(to_size(paths->n), sizeof *share);
    code = read_shares(q->weights, share, paths->n, e);
    for (; n < paths->n && !code; n += !code) {
        code = weights_open(&w[n], paths->p[n], e);
        if (!code && q->ema) code = weights_average(w[n], e);
    }
    if (!code && !weights_ckpt(w[n - 1]))
        code = err_set(e, ERR_REQUEST,
                       "%s: is a Hugging Face model; the last one gives the mean its config and tokenizer and must be "
                       "a checkpoint of tutti (tutti checkpoint import makes one)",
                       paths->p[n - 1]);
    if (!code) code = remake_average(w, share, n, q->out, e);
    for (int k = 0; k < n && !code; k++) log_info("%.4g of %s", share[k], weights_path(w[k]));
    for (int k = 0; k < paths->n; k++) weights_close(w[k]);
    xfree(share);
    xfree(w);
    return code;
}

int checkpoint_average(int argc, char **argv)
{
    struct average_request q = {0};
    struct paths paths = {0};
    struct err e;
    int status;
    if (!cli_read(&average_table, argc, argv, &q, &status)) return status;
    int code = choose_paths(&q, &paths, &e);
    if (!code) code = average(&q, &paths, &e);
    if (!code) log_info("the mean of %d checkpoints is in %s", paths.n, q.out);
    for (int i = 0; i < paths.n; i++) xfree(paths.p[i]);
    xfree(paths.p);
    return code ? cli_fail(&e) : 0;
}
