/* SPDX-License-Identifier: Apache-2.0 */
/* tokenize.c: source → encoder → token file (tokenize_run.c), and the cache of its results.
 *
 * The cache is keyed by content: the checksum of every input's path, size and time of change together with the
 * tokenizer's fingerprint names the file, so that a changed text or tokenizer simply misses, and several runs can
 * share a directory. A cached file that turns out damaged when it is opened is made again; one that cannot be read is
 * an error, since what was not read is not replaced.
 */
#include "data/tokenize.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "data/chat_tokenize.h"
#include "data/tokenize_run.h"
#include "remote/remote.h"
#include "source/bad_list.h"
#include "source/source.h"

/* Goes up when ids of the same text by the same tokenizer.json change, so that what was tokenized before is made again.
 */
enum { IDS_VERSION = 3 };

/* c: of conversations, else NULL. */
static uint64_t cache_key(const struct tokenizer *t, const struct source *s, const struct chat *c)
{
    uint64_t parts[] = {source_key(s), tokenizer_key(t), (uint64_t)tokenizer_eos(t), IDS_VERSION, c ? chat_key(c) : 0};
    return hash64(parts, c ? sizeof parts : 4 * sizeof *parts);
}

/* Below this nothing is kept for going on: it is done again in a second. */
enum { WORK_FROM = 16 << 20 };

/* What is made of what. */
struct making {
    const struct tokenizer *t;
    struct source *s;
    struct chat *chat;   /* NULL: of texts */
    int32_t image_token; /* that stands for a patch; 0: none does */
    bool skip_bad;
    struct bad_list bad;
    struct str told;
    char *first_input; /* what may be said of it */
    const atomic_int *give_up;
    int n_threads;
};

/* Why a file was not made, if nothing failed. */
enum turn { TURN_OURS, TURN_OTHERS, TURN_PAST }; /* somebody else is making it, or has made it just now */

/* cached: a file of the same key that lies at out_path by now is what is wanted. */
static int tokenize_to(struct making *m, const char *out_path, bool cached, enum turn *turn, struct tokenize_result *r,
                       struct err *e)
{
    const struct tokenizer *t = m->t;
    struct source *s = m->s;
    *r = (struct tokenize_result){0};
    *turn = TURN_OURS;
    if (tokenizer_eos(t) < 0)
        return err_set(e, ERR_REQUEST,
                       "the tokenizer names no end-of-text token to separate documents with; put a "
                       "tokenizer_config.json with an \"eos_token\" beside tokenizer.json");
    struct tokenfile_head head = {
        .vocab = m->image_token >= tokenizer_vocab(t) ? m->image_token + 1 : tokenizer_vocab(t),
        .eos = tokenizer_eos(t),
        .fingerprint = tokenizer_fingerprint(t),
        .key = cache_key(t, s, m->chat),
    };
    struct tokenfile_writer *w;
    bool busy;
    int code = tokenfile_create(&w, &busy, out_path, &head, e);
    if (busy) *turn = TURN_OTHERS;
    if (code) return code;
    int there = cached ? tokenfile_is_cached(out_path, head.key, e) : 0;
    if (there) {
        tokenfile_abandon(w);
        *turn = there > 0 ? TURN_PAST : TURN_OURS;
        return there > 0 ? OK : there;
    }
    bad_list_clear(&m->bad);
    struct tokenize_run run = {.tokenizer = t,
                               .vocab = head.vocab,
                               .source = s,
                               .out_path = out_path,
                               .key = head.key,
                               .work_from = WORK_FROM,
                               .n_threads = m->n_threads,
                               .told = &m->told,
                               .bad = &m->bad,
                               .give_up = m->give_up};
    code = m->chat ? chat_tokenize(m->chat, m->skip_bad, &run, w, r, e) : tokenize_run(&run, w, r, e);
    int listed = bad_list_end(&m->bad, code ? NULL : e);
    code = code ? code : listed;
    if (!code && r->documents == 0)
        code = err_set(e, ERR_REQUEST, "%s: holds no text (%lld files, %lld of them no text%s%s)", m->first_input,
                       (long long)source_n_files(s), (long long)r->skipped, r->skipped ? ": " : "", r->skipped_text);
    if (!code && m->chat && r->trained == 0)
        log_warn("data: %s: of %lld tokens in %lld conversations none is trained: no record has an answer of the "
                 "assistant whose weight is not 0; nothing can be trained on it (train_on: all takes a loss of "
                 "everything)",
                 m->first_input, (long long)r->tokens, (long long)r->documents);
    if (code) {
        tokenfile_abandon(w);
        return code;
    }
    code = tokenfile_publish(w, e);
    if (!code) tokenize_run_done(&run);
    return code;
}

/* Files of a folder that are no text are nothing unusual; that they were not read is said once. */
static void say_skipped(const struct source *s, const struct tokenize_result *r, const char *input)
{
    if (r->skipped)
        log_info("data: %s: %lld of %lld files are no text and were passed over: %s", input, (long long)r->skipped,
                 (long long)source_n_files(s), r->skipped_text);
}

static int open_making(struct making *m, const char *const *inputs, int n, const struct tokenize_input *how,
                       struct err *e)
{
    static const struct tokenize_input usual = {.column = NULL};
    if (!how) how = &usual;
    struct source_options o = {.column = how->column,
                               .remote = how->remote,
                               .skip_bad = how->skip_bad,
                               .whole_records = how->chat.template_name != NULL,
                               .pictures = how->chat.patches > 0,
                               .fields = how->fields,
                               .tell_bad = tokenize_tell,
                               .tell_ctx = &m->told};
    m->first_input = remote_hidden(inputs[0]);
    m->skip_bad = how->skip_bad;
    m->image_token = how->chat.patches ? how->chat.image_token : 0;
    if (o.whole_records && how->column)
        return err_set(e, ERR_REQUEST, "%s: column %s: conversations are whole records; leave the column out",
                       m->first_input, how->column);
    int code = o.whole_records ? chat_open(&m->chat, &how->chat, m->t, e) : OK;
    if (code) return code;
    return how->fields ? source_open_with(&m->s, how->shards, how->n_shards, &o, e)
                       : source_open_with(&m->s, inputs, n, &o, e);
}

static void close_making(struct making *m)
{
    source_close(m->s);
    chat_close(m->chat);
    xfree(m->first_input);
    str_free(&m->told);
}

int tokenize(const struct tokenizer *t, const char *const *inputs, int n_inputs, const struct tokenize_input *how,
             const char *out_path, int n_threads, struct tokenize_result *r, struct err *e)
{
    struct making m = {.t = t, .n_threads = n_threads};
    enum turn turn;
    bad_list_init(&m.bad, out_path);
    int code = open_making(&m, inputs, n_inputs, how, e);
    if (!code) code = tokenize_to(&m, out_path, false, &turn, r, e);
    if (!code) say_skipped(m.s, r, m.first_input);
    bad_list_fini(&m.bad);
    close_making(&m);
    return code;
}

static int make_cached(struct making *m, const char *path, struct err *e)
{
    const char *input = m->first_input;
    uint64_t key = cache_key(m->t, m->s, m->chat);
    for (bool said = false;; said = true) {
        struct tokenize_result r;
        enum turn turn;
        bool none = fs_absent(path); /* one that is damaged is told of once */
        int code = tokenfile_is_cached(path, key, e);
        if (code) return code < 0 ? code : OK;
        code = tokenize_to(m, path, none, &turn, &r, e);
        if (!code) {
            if (turn == TURN_PAST) return OK;
            char bytes[32], tokens[32], rate[32];
            log_info("data: %s: %s of text, %s tokens, %lld documents, tokenized at %s/s", input,
                     str_bytes(bytes, (double)r.bytes), str_count(tokens, (double)r.tokens), (long long)r.documents,
                     str_bytes(rate, (double)(r.bytes - r.bytes_before) / (r.seconds > 1e-9 ? r.seconds : 1e-9)));
            say_skipped(m->s, &r, input);
            return OK;
        }
        /* Somebody else holds the lock, who lets go also by dying: nothing was read yet, so the source can be used
         * again. */
        if (turn != TURN_OTHERS) return code;
        if (!said) log_info("data: waiting for another process to tokenize %s; it holds %s.lock", input, path);
        clock_sleep_s(0.2);
        if ((code = tokenize_given_up(m->give_up, e))) return code; /* also where who held it gave up */
    }
}

int tokenize_cached(const struct tokenizer *t, const char *input, const struct tokenize_input *how,
                    const char *cache_dir, const atomic_int *give_up, char **path, struct err *e)
{
    *path = NULL;
    struct making m = {.t = t, .n_threads = thread_n_cores(), .give_up = give_up};
    int code = open_making(&m, &input, 1, how, e);
    if (!code) code = fs_mkdirs(cache_dir, e);
    if (!code) {
        char name[40];
        snprintf(name, sizeof name, "%016" PRIx64 ".tok", cache_key(t, m.s, m.chat));
        *path = fs_join(cache_dir, name);
        bad_list_init(&m.bad, *path);
        code = make_cached(&m, *path, e);
        bad_list_fini(&m.bad);
    }
    close_making(&m);
    if (code) {
        xfree(*path);
        *path = NULL;
    }
    return code;
}
