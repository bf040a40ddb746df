/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_ledger.c: `tutti data ledger`: which documents, bytes and tokens a step trained on, or will. Nothing is
 * looked up: the order is a function of (config, seed, step), so it is computed again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd_data.h"
#include "cli/cli.h"
#include "cli/image_samples.h"
#include "config/setup.h"
#include "data/batch.h"
#include "layout/document_ids.h"
#include "layout/document_order.h"
#include "train/datasets.h"
#include "keep/skips.h"

struct request {
    struct cli_args a;
    int64_t step;
};

static const struct cli_option option_rows[] = {
    {"--step", "N", CLI_INT, offsetof(struct request, step), .lo = 1, .hi = INT64_MAX >> 32,
     .help = "the step, counted from 1 as in metrics.jsonl (default 1)"},
    CLI_RANKS(struct request, a.ranks, 1 << 20, "how many ranks train"),
    CLI_JSON(struct request, a.json),
};
static const struct cli_word words[] = {{.name = "CONFIG", .at = offsetof(struct request, a.config)}};
static const struct cli_table table = {
    .command = "data ledger",
    .usage = "CONFIG [--step N] [-n RANKS] [--json] [key=value ...]",
    .about =
        "Says which documents a training step is made of: for every sample its source, epoch and number, and for\n"
        "every document in it where it came from (input and byte, where the token file knows it), its tokens, and\n"
        "their bytes in the token file. Also what is padding, how much of each source was used before the step,\n"
        "and, with parallel.cp, how even attention's work is. Texts that were not tokenised yet are. A step\n"
        "whose batch the run in run.dir left out (run.skip, run.on_spike, run.on_nan) is said to be.\n",
    CLI_OPTIONS(option_rows),
    CLI_WORDS(words),
    .takes_keys = true,
    .keys = offsetof(struct request, a.keys),
};

/* Why the run at run.dir left the step's batch out; NULL: it did not, or there is no run yet. */
static int left_out(const struct config *c, int64_t step, const char **why, struct err *e)
{
    struct skips s = {0};
    const int64_t *by_hand = c->run.skip.items;
    *why = NULL;
    int code = skips_read(&s, c->run.dir, NULL, e);
    if (!code && skips_has(&s, step)) *why = SKIPS_NAME;
    for (int i = 0; i < c->run.skip.n && !code; i++)
        if (by_hand[i] == step) *why = "run.skip";
    skips_free(&s);
    return code;
}

void data_tell_left_out(const struct config *c, const char *why, struct json_out *j)
{
    if (j) json_put_bool(j, "left_out", why != NULL);
    if (j && why) json_put_string(j, "left_out_by", why);
    if (j || !why) return;
    if (!strcmp(why, SKIPS_NAME))
        printf("left out: the run in %s did not train on this step's batch (%s/%s says why); it counts as done\n",
               c->run.dir, c->run.dir, SKIPS_NAME);
    else printf("left out: this step's batch is not trained on (%s); it counts as done\n", why);
}

struct teller {
    const struct request *q;
    const struct config *c;
    const struct dataset *d;
    struct json_out *j; /* NULL: words */
    int64_t parts;      /* of a sample */
    int64_t documents, tokens;
};

static const char *source_name(const struct teller *l, int source)
{
    const struct tokenfile *f = dataset_file(l->d, source);
    return f->made_from ? f->made_from : f->path;
}

static int tell_piece(struct teller *l, const struct tokenfile *f, const struct cuts_piece *p, struct err *e)
{
    char *input = NULL;
    int64_t byte = -1, begin = -1, end = -1;
    int code = OK;
    if (p->document >= 0) code = tokenfile_origin(f, p->document, &input, &byte, e);
    if (!code && p->document >= 0) code = tokenfile_document(f, p->document, &begin, &end, e);
    if (code) return code;
    int64_t at = f->table[TABLE_TOKENS].at;
    if (l->j) {
        json_begin_object(l->j, NULL);
        if (p->document >= 0) json_put_int(l->j, "document", p->document);
        if (input) json_put_string(l->j, "input", input);
        if (byte >= 0) json_put_int(l->j, "input_byte", byte);
        if (begin >= 0) json_put_int(l->j, "from_token", p->begin - begin);
        json_put_int(l->j, "tokens", p->n);
        json_put_int(l->j, "file_token", p->begin);
        json_put_int(l->j, "file_byte", at + p->begin * f->width);
        json_put_int(l->j, "file_bytes", (p->n + 1) * f->width);
        json_end_object(l->j);
    } else {
        if (p->document >= 0) printf("    document %lld", (long long)p->document);
        else printf("    documents not known");
        if (input) printf(" of %s", input);
        if (byte >= 0) printf(" at byte %lld", (long long)byte);
        if (begin >= 0 && (p->begin > begin || p->begin + p->n < end - 1))
            printf(", from its token %lld", (long long)(p->begin - begin));
        printf(": %lld tokens, %lld to %lld of the file (bytes %lld to %lld)\n", (long long)p->n, (long long)p->begin,
               (long long)(p->begin + p->n), (long long)(at + p->begin * f->width),
               (long long)(at + (p->begin + p->n + 1) * f->width));
    }
    l->documents++;
    l->tokens += p->n;
    xfree(input);
    return OK;
}

/* The part that stands at place j of sample k: all of it, where there is one. */
static int tell_part(struct teller *l, int64_t k, int64_t j, struct err *e)
{
    int source;
    int64_t epoch, sample, used = 0, part = dataset_part(l->d, k, j), places = l->c->model.seq_len / l->parts;
    struct cuts_pieces p;
    dataset_where(l->d, part, &source, &epoch, &sample);
    int code = dataset_pieces(l->d, part, &p, e);
    if (code) return code;
    for (int64_t i = 0; i < p.n; i++) used += p.p[i].n;
    if (l->j) {
        json_begin_object(l->j, NULL);
        json_put_int(l->j, "sample", k);
        if (l->parts > 1) json_put_int(l->j, "part", j);
        json_put_int(l->j, "source", source);
        json_put_int(l->j, "epoch", epoch);
        if (sample >= 0) json_put_int(l->j, "of_source", sample);
        json_put_int(l->j, "padding", places - used);
        json_begin_array(l->j, "documents");
    } else if (sample < 0) {
        printf("  sample %lld: empty; it fills the last group of epoch %lld of %s\n", (long long)k, (long long)epoch,
               source_name(l, source));
    } else {
        printf("  sample %lld", (long long)k);
        if (l->parts > 1) printf(", part %lld of %lld", (long long)j + 1, (long long)l->parts);
        printf(": %s, epoch %lld, sample %lld of %lld", source_name(l, source), (long long)epoch, (long long)sample,
               (long long)dataset_cuts(l->d, source)->n);
        if (used < places) printf(", %lld of padding", (long long)(places - used));
        printf("\n");
    }
    for (int64_t i = 0; i < p.n && !code; i++) code = tell_piece(l, dataset_file(l->d, source), &p.p[i], e);
    if (l->j) {
        json_end_array(l->j);
        json_end_object(l->j);
    }
    xfree(p.p);
    return code;
}

/* Attention's pairs of the busiest rank of cp beside the mean, summed over the step's sequences. */
static double evenness(const struct teller *l, const struct batch *b, bool area)
{
    int n = to_int(l->c->parallel.cp);
    int64_t seq = b->seq_len, *order = xmalloc(to_size(seq) * sizeof *order);
    int32_t *marked = model_prefixes(&l->c->model) ? xmalloc(to_size(seq) * sizeof *marked) : NULL;
    double *sum = xcalloc((size_t)n, sizeof *sum), *one = xcalloc((size_t)n, sizeof *one), all = 0, most = 0;
    for (int64_t s = 0; s < b->n_seqs; s++) {
        const int32_t *docs = b->documents + s * seq;
        if (marked) document_mark(docs, b->targets + s * seq, seq, marked);
        if (marked) docs = marked;
        if (area) document_order(docs, marked, seq, n, order);
        document_pairs(docs, marked, seq, n, area ? order : NULL, one);
        for (int p = 0; p < n; p++) sum[p] += one[p];
    }
    for (int p = 0; p < n; p++) {
        all += sum[p];
        most = sum[p] > most ? sum[p] : most;
    }
    xfree(order);
    xfree(marked);
    xfree(sum);
    xfree(one);
    return most * n / all;
}

static void tell_balance(const struct teller *l, const struct batch *b)
{
    double position = evenness(l, b, false), area = evenness(l, b, true);
    bool by_area = config_cp_area(l->c);
    if (l->j) {
        json_begin_object(l->j, "cp_balance");
        json_put_string(l->j, "chosen", by_area ? "area" : "position");
        json_put_real_digits(l->j, "busiest_by_position", position, 6);
        json_put_real_digits(l->j, "busiest_by_area", area, 6);
        json_end_object(l->j);
        return;
    }
    printf("attention over cp %lld: pairs of the busiest rank / mean: %.3f by position, %.3f by area; it goes by %s\n",
           (long long)l->c->parallel.cp, position, area, by_area ? "area" : "position");
}

static void tell_sources(const struct teller *l, int64_t k)
{
    if (l->j) json_begin_array(l->j, "sources");
    else printf("used before:\n");
    for (int i = 0; i < dataset_n_sources(l->d); i++) {
        const struct tokenfile *f = dataset_file(l->d, i);
        double epochs;
        int64_t samples = dataset_used(l->d, k * l->parts, i, &epochs);
        if (!l->j) {
            printf("  %s: %lld %s, %.4f epochs\n", source_name(l, i), (long long)samples,
                   l->parts > 1 ? "parts" : "samples", epochs);
            continue;
        }
        json_begin_object(l->j, NULL);
        json_put_string(l->j, "path", source_name(l, i));
        json_put_string(l->j, "file", f->path);
        json_put_int(l->j, "samples", samples);
        json_put_real_digits(l->j, "epochs", epochs, 6);
        json_put_real_digits(l->j, "padding", dataset_padding(l->d, i), 6);
        json_end_object(l->j);
    }
    if (l->j) json_end_array(l->j);
}

static int tell_step(struct teller *l, struct err *e)
{
    int64_t global = l->c->batch.global, first = (l->q->step - 1) * global;
    struct batch b;
    batch_init_pictures(&b, global, l->c->model.seq_len, dataset_pixels(l->d));
    int code = dataset_batch(l->d, l->q->step - 1, global, 0, &b, e);
    if (!code && l->j) json_begin_array(l->j, "samples");
    else if (!code)
        printf("step %lld: samples %lld to %lld of the order\n", (long long)l->q->step, (long long)first,
               (long long)(first + global - 1));
    for (int64_t k = first; k < first + global; k++)
        for (int64_t j = 0; j < l->parts && !code; j++) code = tell_part(l, k, j, e);
    if (!code && l->j) {
        json_end_array(l->j);
        json_put_int(l->j, "tokens", l->tokens);
        json_put_int(l->j, "trained", b.n_trained);
        json_put_int(l->j, "padding", b.n_padded);
    } else if (!code) {
        int64_t places = global * l->c->model.seq_len;
        printf("%lld pieces of documents, %lld tokens, %lld of them trained, %lld places of %lld padding (%.2f %%)\n",
               (long long)l->documents, (long long)l->tokens, (long long)b.n_trained, (long long)b.n_padded,
               (long long)places, 100 * (double)b.n_padded / (double)places);
    }
    if (!code && l->c->parallel.cp > 1 && l->c->model.document_mask) tell_balance(l, &b);
    if (!code) tell_sources(l, first);
    batch_fini(&b);
    return code;
}

static int tell(const struct request *q, const struct config *c, const struct dataset *d, const char *why,
                struct err *e)
{
    struct str text = {0};
    struct json_out j = {.s = &text};
    struct teller l = {.q = q, .c = c, .d = d, .parts = dataset_parts(d), .j = q->a.json ? &j : NULL};
    if (l.j) {
        json_begin_document(&j, "data-ledger", 1);
        json_put_int(&j, "step", q->step);
    }
    data_tell_left_out(c, why, l.j);
    int code = tell_step(&l, e);
    if (l.j && !code) {
        json_end_object(&j);
        data_print_json(&text);
    }
    str_free(&text);
    return code;
}

static int run(const void *options, struct err *e)
{
    const struct request *q = options;
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct tokenizer *t = NULL;
    struct dataset *d = NULL;
    const char *why;
    int code = config_load(&c, &f, a, q->a.config, q->a.keys.p, q->a.keys.n, e);
    if (!code) code = setup_model(&c, f, a, &t, e);
    if (!code && !t && !model_sees(&c.model)) code = setup_no_tokenizer(&c, f, e);
    if (!code) code = config_resolve(&c, f, t ? tokenizer_vocab(t) : 0, to_int(q->a.ranks), e);
    if (!code && !c.data.train.n)
        code = err_set(e, ERR_REQUEST, "%s: data.train: is required: a ledger is of the data that is trained on",
                       q->a.config);
    if (!code && config_prefers(&c))
        code = conf_error(f, e, "train.objective",
                          "it reads two answers of each record, and a ledger tells of one text; tutti data inspect "
                          "CONFIG --step N shows both");
    if (!code && (code = datasets_open(&d, &c, &c.data.train, t, NULL, e)))
        err_prefix(e, "%s: data.train", conf_where(f, "data.train"));
    if (!code) code = left_out(&c, q->step, &why, e);
    if (!code && dataset_sees(d)) code = image_samples_ledger(&c, d, q->step, why, q->a.json, e);
    else if (!code) code = tell(q, &c, d, why, e);
    dataset_close(d);
    tokenizer_free(t);
    arena_free(a);
    return code;
}

static const struct request usual = {.a.ranks = 1, .step = 1};
const struct data_command data_ledger = {"ledger", &table, &usual, sizeof usual, run};
