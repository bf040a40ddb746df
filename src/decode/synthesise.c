/* SPDX-License-Identifier: Apache-2.0 */
/* synthesise.c: a queue of samples under way; the first is judged and written when it is done, so that they are written
 * in their order, and new ones are asked for while there is room. Samples of one prompt take over its pages. */
#include "decode/synthesise.h"

#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "config/start_weights.h"
#include "curate/group.h"
#include "decode/kept_answer.h"
#include "decode/prompts.h"
#include "source/bad_list.h"

enum { ROWS = 256 }; /* of a step, prompts among them */

struct made {
    int64_t i, k, id; /* prompt, sample of it; the answer's id */
    char *prompt;
    struct source_place place;
    struct kept_answer answer;
    struct made *next;
};

struct synthesis {
    const struct synthesis_options *o;
    struct weights *weights;
    struct tokenizer *tokenizer;
    struct device *device;
    struct decoding *decoding;
    struct batching *answering;
    struct made *first, **last; /* asked for and not written */
    struct tokens ids;          /* of the last prompt that was asked for */
    struct synthesis_parts parts;
    struct document document;
    struct str answer;
    uint64_t weights_hash;
    int64_t room, vocab, prompts, longest; /* longest: tokens of a prompt */
    int64_t asked, part_begun;             /* samples, in all; those before the part that is written */
    double start_s, shown_s;
    int64_t tokens_before;
    bool shown;
};

/* -- what the model is ------------------------------------------------------------------------------------------ */

static int hash_file(struct hash64 *h, const char *path, struct err *e)
{
    enum { PIECE = 4 << 20 };
    struct fs_file f;
    int code = fs_file_open(&f, path, e);
    if (code) return code;
    char *piece = xmalloc(PIECE);
    for (int64_t at = 0; at < f.bytes && !code; at += PIECE) {
        size_t n = f.bytes - at < PIECE ? (size_t)(f.bytes - at) : PIECE;
        code = fs_file_read(&f, at, n, piece, e);
        if (!code) hash64_add(h, piece, n);
    }
    xfree(piece);
    fs_file_close(&f);
    return code;
}

/* A checkpoint's manifest seals its bytes. A Hugging Face directory has no such, so its files are read. */
static int hash_weights(const struct weights *w, uint64_t *hash, struct err *e)
{
    if (weights_ckpt(w)) {
        *hash = ckpt_hash(weights_ckpt(w));
        return OK;
    }
    struct hash64 h;
    char **names;
    int n, code = fs_list(weights_path(w), &names, &n, e);
    if (code) return code;
    hash64_init(&h);
    for (int i = 0; i < n && !code; i++) {
        if (!str_ends(names[i], ".safetensors") && !str_ends(names[i], "config.json")) continue;
        char *path = fs_join(weights_path(w), names[i]);
        hash64_add(&h, names[i], strlen(names[i]) + 1);
        code = hash_file(&h, path, e);
        xfree(path);
    }
    fs_list_free(names, n);
    *hash = hash64_value(&h);
    return code;
}

static int open_model(struct synthesis *s, struct err *e)
{
    const struct synthesis_options *o = s->o;
    struct hf_model m;
    int code = weights_open(&s->weights, o->model, e);
    if (!code) code = weights_model(s->weights, &m, e);
    if (!code)
        code = o->tokenizer ? tokenizer_open(&s->tokenizer, o->tokenizer, e)
                            : source_tokenizer(s->weights, &s->tokenizer, e);
    if (!code) code = hash_weights(s->weights, &s->weights_hash, e);
    if (code) return code;
    s->room = o->max_length < m.model.max_positions ? o->max_length : m.model.max_positions;
    s->vocab = m.model.vocab;
    return OK;
}

static int open_generator(struct synthesis *s, struct err *e)
{
    int64_t most = s->longest + s->o->max_tokens, all = s->prompts * s->o->n_samples;
    struct decoding_options o = {.threads = s->o->threads,
                                 .dtype = s->o->dtype,
                                 .sequences = s->o->batch < all ? s->o->batch : all,
                                 .positions = most < s->room ? most : s->room,
                                 .rows = s->o->batch > ROWS ? s->o->batch : ROWS};
    int code = device_open(&s->device, DEVICE_CPU, s->o->threads, e);
    if (!code) code = decoding_new(&s->decoding, s->weights, s->device, &o, e);
    if (!code) s->answering = batching_new(s->decoding, s->tokenizer);
    return code;
}

/* -- one sample ------------------------------------------------------------------------------------------------- */

static void sample_free(struct made *x)
{
    kept_answer_free(&x->answer);
    xfree(x->prompt);
    xfree(x);
}

/* What is known of it, behind what filters note. */
static void note(struct synthesis *s, const struct made *x)
{
    const struct synthesis_options *o = s->o;
    const struct ckpt *c = weights_ckpt(s->weights);
    struct str text = {0};
    struct json_out j = {.s = &text};
    char hash[17];
    json_begin_object(&j, NULL);
    if (!o->with_prompt) json_put_string(&j, "prompt", x->prompt);
    json_begin_object(&j, "generated");
    json_put_string(&j, "model", weights_path(s->weights));
    if (c) json_put_int(&j, "step", ckpt_step(c));
    json_put_string(&j, "weights", hash64_print(hash, s->weights_hash));
    json_put_string(&j, "tokenizer", hash64_print(hash, tokenizer_fingerprint(s->tokenizer)));
    json_put_string(&j, "dtype", dtype_name(o->dtype));
    json_put_int(&j, "seed", (int64_t)o->spec.seed);
    json_put_int(&j, "prompt", x->i);
    json_put_int(&j, "sample", x->k);
    json_put_real(&j, "temperature", o->spec.temperature);
    json_put_int(&j, "top_k", o->spec.top_k);
    json_put_real(&j, "top_p", o->spec.top_p);
    json_put_int(&j, "max_tokens", o->max_tokens);
    json_put_int(&j, "max_length", s->room);
    json_put_int(&j, "prompt_tokens", x->answer.counts.prompt);
    json_put_int(&j, "tokens", x->answer.counts.written);
    json_put_string(&j, "stopped", answer_end_name(x->answer.why));
    json_end_object(&j);
    json_end_object(&j);
    str_puts(&s->document.notes, ", ");
    str_add(&s->document.notes, text.p + 1, text.n - 2);
    str_free(&text);
}

static void count(struct synthesis_counts *c, const struct made *x, size_t bytes)
{
    c->samples++;
    c->prompt_tokens += x->answer.counts.prompt;
    c->tokens += x->answer.counts.written;
    c->bytes += (int64_t)bytes;
    c->stopped_length += x->answer.why == ANSWER_LENGTH;
    c->stopped_end += x->answer.why == ANSWER_END_OF_TEXT;
    c->stopped_full += x->answer.why == ANSWER_CACHE_FULL;
}

static void show_progress(struct synthesis *s, int64_t all)
{
    double now = clock_now_s(), every = log_is_terminal() ? 0.2 : 10;
    if (now - s->shown_s < every) return;
    s->shown_s = now;
    s->shown = true;
    const struct synthesis_counts *c = &s->parts.counts;
    log_status("synthesising: %lld of %lld samples (%.0f %%), %.1f %% kept, %.1f tokens/s", (long long)c->samples,
               (long long)all, 100.0 * (double)c->samples / (double)all,
               100.0 * (double)c->kept / (double)(c->samples ? c->samples : 1),
               (double)(c->tokens - s->tokens_before) / (now - s->start_s));
}

/* Sample k of the prompt at hand joins those under way. after: sample 0 of it, whose pages it takes over. */
static int ask(struct synthesis *s, struct prompts *p, const char *prompt, int64_t k, int64_t *after, struct err *e)
{
    struct made *x = xcalloc(1, sizeof *x);
    x->i = prompts_index(p);
    x->k = k;
    x->prompt = xstrdup(prompt);
    prompts_where(p, &x->place);
    *s->last = x;
    s->last = &x->next;
    struct answer_spec a = {.ids = s->ids.ids,
                            .n = s->ids.n,
                            .max_tokens = s->o->max_tokens,
                            .sample = s->o->spec,
                            .top = -1,
                            .after = *after};
    kept_answer_keep(&a, &x->answer);
    a.sample.seed = rng_u64(a.sample.seed, rng_stream_at(rng_stream("synthesise"), (uint64_t)x->i), (uint64_t)k);
    s->asked++;
    int code = batching_add(s->answering, &a, &x->id, e);
    if (!k) *after = x->id;
    return code ? err_prefix(e, "%s, prompt %lld", x->place.path, (long long)x->i) : OK;
}

/* The first sample is done: through the filters, and written. */
static int write_sample(struct synthesis *s, const struct made *x, struct err *e)
{
    struct synthesis_counts *c = &s->parts.counts;
    struct document *d = &s->document;
    struct origin from = {x->place.path, x->place.number, x->place.offset, x->i * s->o->n_samples + x->k};
    if (x->answer.why == ANSWER_FAILED) {
        *e = x->answer.err;
        return err_prefix(e, "%s, prompt %lld, sample %lld", from.source, (long long)x->i, (long long)x->k);
    }
    str_clear(&s->answer);
    if (s->o->with_prompt) str_puts(&s->answer, x->prompt);
    str_add(&s->answer, str_text(&x->answer.said), x->answer.said.n);
    count(c, x, s->answer.n);
    if (x->k == s->o->n_samples - 1) c->prompts = x->i + 1;
    document_set(d, str_text(&s->answer), s->answer.n, &from);
    if (rules_judge(s->o->rules, d, &s->parts.removals) != FILTER_KEEPS) return OK;
    if (!d->text.n || !x->answer.counts.written) {
        c->emptied++;
        return OK;
    }
    c->kept++;
    c->kept_bytes += (int64_t)d->text.n;
    note(s, x);
    group_put_line(d, &s->parts.lines);
    return parts_flush(&s->parts, false, e);
}

static int write_done(struct synthesis *s, struct err *e)
{
    int code = OK;
    while (!code && s->first && s->first->answer.done) {
        struct made *x = s->first;
        code = write_sample(s, x, e);
        s->first = x->next;
        if (!s->first) s->last = &s->first;
        sample_free(x);
        if (!code) show_progress(s, s->prompts * s->o->n_samples);
    }
    return code;
}

/* A step of the generator for all under way. */
static int go_on(struct synthesis *s, struct err *e)
{
    int code = batching_step(s->answering, e);
    return code ? code : write_done(s, e);
}

/* -- all of them ------------------------------------------------------------------------------------------------ */

static int open_prompts(const struct synthesis *s, struct prompts **p, struct bad_list *bad, struct err *e)
{
    const struct synthesis_options *o = s->o;
    return prompts_open(p,
                        &(struct prompts_options){.path = o->prompts,
                                                  .template = o->template,
                                                  .name = o->template_name,
                                                  .tokenizer = s->tokenizer,
                                                  .most_tokens = s->room,
                                                  .vocab = s->vocab,
                                                  .skip_bad = o->skip_bad,
                                                  .tell_bad = bad ? bad_list_add : NULL,
                                                  .tell_ctx = bad},
                        e);
}

/* Looks at all prompts, but for a folder of other keys, which is refused before. */
static int look_through(struct synthesis *s, struct synthesis_result *r, struct err *e)
{
    struct prompts *p;
    struct bad_list bad;
    const char *text;
    bool before = false;
    bad_list_init(&bad, s->o->out);
    int got = open_prompts(s, &p, &bad, e);
    if (!got) {
        s->parts.key[SYNTHESIS_PROMPTS] = prompts_key(p);
        got = parts_start(&s->parts, &before, e);
    }
    if (!got) {
        bad_list_clear(&bad);
        while ((got = prompts_next(p, &text, e)) > 0) {
            s->prompts++;
            if (prompts_tokens(p) > s->longest) s->longest = prompts_tokens(p);
        }
        r->bad = prompts_n_bad(p);
    }
    prompts_close(p);
    if (!got) got = bad_list_end(&bad, e);
    if (!got && !s->prompts)
        got = err_set(e, ERR_REQUEST, "%s: holds no prompt%s", s->o->prompts, r->bad ? " that is not bad" : "");
    bad_list_fini(&bad);
    return got || before ? got : parts_claim(&s->parts, e);
}

static uint64_t options_key(const struct synthesis *s)
{
    const struct synthesis_options *o = s->o;
    struct str t = {0};
    str_printf(&t, "%s|%lld %lld %lld %lld %d %d %d|%.17g %lld %.17g %llu|%s", weights_path(s->weights),
               (long long)o->n_samples, (long long)o->max_tokens, (long long)s->room, (long long)o->part_samples,
               o->with_prompt, o->plain, o->skip_bad, o->spec.temperature, (long long)o->spec.top_k, o->spec.top_p,
               (unsigned long long)o->spec.seed, dtype_name(o->dtype));
    str_printf(&t, "|batch %lld", (long long)o->batch);
    str_printf(&t, "|%d%s", o->template != NULL, o->template ? o->template : "");
    uint64_t key = hash64(t.p, t.n);
    str_free(&t);
    return key;
}

/* All samples of a prompt, as soon as there is room for each. */
static int ask_all(struct synthesis *s, struct prompts *p, const char *text, struct err *e)
{
    int64_t after = 0, room = 2 * decoding_sequences(s->decoding);
    s->ids.n = 0;
    int code = tokenizer_encode_text(s->tokenizer, text, strlen(text), &s->ids, e);
    for (int64_t k = 0; k < s->o->n_samples && !code; k++) {
        code = ask(s, p, text, k, &after, e);
        while (!code && batching_waiting(s->answering) + batching_writing(s->answering) >= room) code = go_on(s, e);
    }
    return code;
}

/* Nobody is left under way: the next part begins as if it were the first. */
static int end_part(struct synthesis *s, bool last, struct err *e)
{
    int code = OK;
    while (!code && s->first) code = go_on(s, e);
    if (!code) code = parts_end(&s->parts, last, e);
    s->part_begun = s->asked;
    if (!code) decoding_forget(s->decoding);
    return code;
}

static int answer_all(struct synthesis *s, struct prompts *p, struct err *e)
{
    const char *text;
    int got;
    int64_t done = s->parts.counts.prompts;
    s->asked = s->part_begun = s->parts.counts.samples;
    while ((got = prompts_next(p, &text, e)) > 0) {
        if (prompts_index(p) < done) continue;
        int code = ask_all(s, p, text, e);
        if (!code && s->asked - s->part_begun >= s->o->part_samples) code = end_part(s, false, e);
        if (code) return code;
    }
    return got < 0 ? got : end_part(s, true, e);
}

static int run_locked(struct synthesis *s, struct synthesis_result *r, struct err *e)
{
    struct prompts *p = NULL;
    uint64_t tokenizer = tokenizer_key(s->tokenizer);
    s->parts.folder = s->o->out;
    s->parts.plain = s->o->plain;
    s->parts.key[SYNTHESIS_RULES] = s->o->rules->key;
    s->parts.key[SYNTHESIS_MODEL] = hash64((uint64_t[]){s->weights_hash, tokenizer}, 2 * sizeof tokenizer);
    s->parts.key[SYNTHESIS_OPTIONS] = options_key(s);
    int code = look_through(s, r, e);
    if (code) return code;
    r->complete_before = s->parts.complete;
    r->resumed_at = s->parts.counts.samples;
    s->tokens_before = s->parts.counts.tokens;
    if (r->resumed_at && !r->complete_before)
        log_info("data: %s: goes on behind sample %lld", s->o->out, (long long)r->resumed_at);
    if (!r->complete_before) {
        code = open_generator(s, e);
        s->start_s = s->shown_s = clock_now_s();
        if (!code) code = open_prompts(s, &p, NULL, e);
        if (!code) code = answer_all(s, p, e);
        prompts_close(p);
        if (s->shown) log_status_end();
        r->seconds = clock_now_s() - s->start_s;
    }
    r->counts = s->parts.counts;
    r->new_tokens = r->counts.tokens - s->tokens_before;
    r->parts = s->parts.files;
    r->weights = s->weights_hash;
    r->tokenizer = tokenizer_fingerprint(s->tokenizer);
    r->step = weights_ckpt(s->weights) ? ckpt_step(weights_ckpt(s->weights)) : -1;
    removals_add(&r->removals, &s->parts.removals);
    return code;
}

int synthesise(const struct synthesis_options *o, struct synthesis_result *r, struct err *e)
{
    struct synthesis s = {.o = o};
    s.last = &s.first;
    struct fs_lock lock = {.fd = -1};
    *r = (struct synthesis_result){0};
    removals_init(&r->removals, o->rules->use, o->rules->n);
    removals_init(&s.parts.removals, o->rules->use, o->rules->n);
    int code = sample_check(&o->spec, e);
    if (!code && o->spec.temperature == 0 && o->n_samples > 1)
        code = err_set(e, ERR_REQUEST,
                       "--samples %lld with --temperature 0: all samples of a prompt would be the same; raise the "
                       "temperature, or take one",
                       (long long)o->n_samples);
    if (!code) code = open_model(&s, e);
    if (!code) code = fs_mkdirs(o->out, e);
    if (!code) {
        char *path = fs_join(o->out, ".lock");
        code = fs_lock_take(&lock, path, e);
        if (!code) code = run_locked(&s, r, e);
        if (lock.fd >= 0) fs_lock_release(&lock);
        xfree(path);
    }
    parts_fini(&s.parts);
    document_free(&s.document);
    batching_free(s.answering);
    while (s.first) {
        struct made *next = s.first->next;
        sample_free(s.first);
        s.first = next;
    }
    decoding_free(s.decoding);
    tokens_free(&s.ids);
    if (s.device) device_free(s.device);
    tokenizer_free(s.tokenizer);
    weights_close(s.weights);
    str_free(&s.answer);
    if (code) synthesis_result_fini(r);
    return code;
}

void synthesis_result_fini(struct synthesis_result *r) { removals_fini(&r->removals); }
