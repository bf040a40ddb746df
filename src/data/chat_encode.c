/* SPDX-License-Identifier: Apache-2.0 */
/* chat_encode.c: a text whose writers are known → tokens, each trained on or not.
 *
 * The text falls into control tokens (of which the template wrote every byte) and runs between them. A run is tokenized
 * in parts: cut where an answer begins or ends, and cut inside what reads like a control token but is not, behind its
 * first character, so that the tokenizer does not see it. Why cut at answers, rather than tokenize the run whole and
 * ask which token holds which byte: when the model is asked, the prompt ends exactly there and is tokenized by itself,
 * so a token across the edge would be one that it never sees at that place.
 */
#include <string.h>

#include "base/mem.h"
#include "data/chat_impl.h"
#include "text/utf8.h"

/* -- what comes out ------------------------------------------------------------------------------------------- */

static void put(struct chat_tokens *out, int32_t id, bool trained)
{
    tokens_push(&out->ids, id);
    GROW(out->trained, out->ids.n - 1, out->trained_room, 1);
    out->trained[out->ids.n - 1] = trained;
}

/* Whether byte `at` is an answer's. */
static bool in_answer(const struct chat_text *t, size_t at)
{
    for (int64_t i = 0; i < t->n_answers; i++)
        if (at >= t->answers[i].from && at < t->answers[i].to) return true;
    return false;
}

/* The first place after `at` where an answer begins or ends, or `end`. */
static size_t next_edge(const struct chat_text *t, size_t at, size_t end)
{
    for (int64_t i = 0; i < t->n_answers; i++) {
        size_t edges[] = {t->answers[i].from, t->answers[i].to};
        for (int k = 0; k < 2; k++)
            if (edges[k] > at && edges[k] < end) end = edges[k];
    }
    return end;
}

static int encode_part(struct chat_work *w, const char *p, size_t n, struct err *e)
{
    w->part.n = 0;
    int code = encoder_feed(w->encoder, p, n, &w->part, e);
    return code ? code : encoder_end(w->encoder, &w->part, e);
}

/* -- control tokens -------------------------------------------------------------------------------------------- */

/* The next control token in [from, end): of the template, or (imitation) one that data wrote a byte of. */
static const struct added_token *next_control(const struct chat_work *w, const struct chat_text *t, size_t from,
                                              size_t end, bool imitation, size_t *at)
{
    size_t sure;
    for (;;) {
        const struct added_token *hit =
            added_find(&w->chat->control, (const unsigned char *)t->out.text.p, from, end, true, at, &sure);
        if (!hit || imitation == (memchr(t->out.data.p + *at, 1, hit->n) != NULL)) return hit;
        from = *at + (imitation ? hit->n : 1);
    }
}

/* -- runs ------------------------------------------------------------------------------------------------------ */

/* [from, end) in parts. */
static int encode_run(struct chat_work *w, const struct chat_text *t, size_t from, size_t end, struct chat_tokens *out,
                      struct err *e)
{
    while (from < end) {
        size_t to = next_edge(t, from, end), at;
        if (next_control(w, t, from, to, true, &at)) {
            size_t cut = at + 1;
            while (cut < to && ((unsigned char)t->out.text.p[cut] & 0xC0) == 0x80) cut++;
            if (cut < to) to = cut;
        }
        int code = encode_part(w, t->out.text.p + from, to - from, e);
        if (code) return code;
        bool trained = in_answer(t, from);
        for (int64_t i = 0; i < w->part.n; i++) put(out, w->part.ids[i], trained);
        from = to;
    }
    return OK;
}

/* How far into the text each token of a run goes, when decoded one after the other; false: what is decoded is not the
 * text. */
static bool places_of(struct chat_work *w, const char *p, size_t n, size_t *place)
{
    struct decoder d = {.t = w->chat->t, .with_special = true};
    struct str text = {0};
    for (int64_t i = 0; i < w->part.n; i++) {
        decoder_push(&d, w->part.ids[i], &text);
        place[i] = text.n;
    }
    decoder_end(&d, &text);
    bool same = text.n == n && !memcmp(str_text(&text), p, n);
    if (same && w->part.n) place[w->part.n - 1] = n;
    str_free(&text);
    return same;
}

/* The same for a tokenizer that puts a space before each text: a run whole, its tokens placed by decoding them. */
static int encode_spaced(struct chat_work *w, const struct chat_text *t, size_t from, size_t end, const char *where,
                         struct chat_tokens *out, struct err *e)
{
    size_t at;
    const struct added_token *hit = next_control(w, t, from, end, true, &at);
    if (hit)
        return err_set(e, ERR_CORRUPT,
                       "%s: a message spells the control token %.60s, which this tokenizer, that puts a space before "
                       "every text, cannot take as plain text",
                       where, hit->text);
    int code = encode_part(w, t->out.text.p + from, end - from, e);
    if (code) return code;
    bool edges = next_edge(t, from, end) < end;
    size_t *place = xcalloc(to_size(w->part.n) + 1, sizeof *place);
    if (edges && !places_of(w, t->out.text.p + from, end - from, place))
        code = err_set(e, ERR_CORRUPT,
                       "%s: the tokenizer changes the text between two control tokens, so where an answer begins in it "
                       "cannot be told",
                       where);
    for (int64_t i = 0, lo = 0; i < w->part.n && !code; lo = (int64_t)place[i++]) {
        size_t hi = (size_t)lo < place[i] ? place[i] : (size_t)lo + 1; /* the beginning of a character counts for it */
        bool trained = !edges && in_answer(t, from);
        for (size_t k = (size_t)lo; edges && k < hi && !trained; k++) trained = in_answer(t, from + k);
        put(out, w->part.ids[i], trained);
    }
    xfree(place);
    return code;
}

/* -- pictures -------------------------------------------------------------------------------------------------- */

/* The next place in [from, end) that stands for a picture, whoever wrote it; end: there is none. */
static size_t next_picture(const struct chat_work *w, const struct chat_text *t, size_t from, size_t end)
{
    const char *hit =
        w->chat->patches ? memmem(t->out.text.p + from, end - from, CHAT_IMAGE, strlen(CHAT_IMAGE)) : NULL;
    return hit ? (size_t)(hit - t->out.text.p) : end;
}

static void put_picture(const struct chat_work *w, struct chat_tokens *out)
{
    for (int64_t i = 0; i < w->chat->patches; i++) put(out, w->chat->image_token, false);
    out->pictures++;
}

/* -- the whole ------------------------------------------------------------------------------------------------- */

/* An answer that ends with a control token and white space behind it ends with the token: a model asked stops there. */
static void end_at_control(const struct chat_work *w, struct chat_text *t)
{
    for (int64_t i = 0; i < t->n_answers; i++) {
        struct jinja_span *a = &t->answers[i];
        size_t end = 0, at;
        const struct added_token *hit;
        for (size_t from = a->from; (hit = next_control(w, t, from, a->to, false, &at)); from = end) end = at + hit->n;
        if (!end) continue;
        size_t rest = utf8_space_before((const unsigned char *)t->out.text.p + end, a->to - end);
        if (rest == 0 && !memchr(t->out.data.p + end, 1, a->to - end)) a->to = end;
    }
}

/* Between two pictures. */
static int encode_stretch(struct chat_work *w, const struct chat_text *t, size_t from, size_t end, const char *where,
                          struct chat_tokens *out, struct err *e)
{
    const unsigned char *p = (const unsigned char *)str_text(&t->out.text);
    for (size_t at; from < end;) {
        const struct added_token *hit = next_control(w, t, from, end, false, &at);
        size_t to = hit ? at : end;
        if (hit && hit->strip_before) to = from + utf8_space_before(p + from, to - from);
        int code = to == from        ? OK
                   : w->chat->spaced ? encode_spaced(w, t, from, to, where, out, e)
                                     : encode_run(w, t, from, to, out, e);
        if (code || !hit) return code;
        put(out, hit->id, in_answer(t, at));
        from = at + hit->n;
        for (int len; hit->strip_after && from < end && (len = utf8_space(p + from, end - from));) from += (size_t)len;
    }
    return OK;
}

static int encode_text(struct chat_work *w, const struct chat_text *t, const char *where, struct chat_tokens *out,
                       struct err *e)
{
    int code = OK;
    out->pictures = 0;
    for (size_t from = 0, end = t->out.text.n; from < end && !code;) {
        size_t to = next_picture(w, t, from, end);
        code = encode_stretch(w, t, from, to, where, out, e);
        if (!code && to < end) put_picture(w, out);
        from = to + strlen(CHAT_IMAGE);
    }
    return code;
}

/* Two texts that no template writes begin as any text does. */
static void put_begin(const struct chat *c, struct chat_tokens *out)
{
    const struct tokens *begin = tokenizer_begin(c->t);
    for (int64_t i = 0; i < begin->n; i++) put(out, begin->ids[i], c->train_on == CHAT_ALL);
}

static int encode_record(struct chat_work *w, const struct chat_record *r, const char *where, struct chat_tokens *out,
                         struct err *e)
{
    struct chat_text t;
    int code = chat_render(w, r, where, &t, e);
    if (code) return code;
    out->ends_trained = w->chat->train_on == CHAT_ALL || !r->messages;
    if (w->chat->train_on == CHAT_ALL && !r->messages) t.answers[0].from = 0;
    if (w->chat->train_on != CHAT_ALL && !(r->messages && jinja_marks_answers(w->chat->template)))
        end_at_control(w, &t);
    if (!r->messages) put_begin(w->chat, out);
    code = encode_text(w, &t, where, out, e);
    if (!code && out->ids.n && out->ids.ids[out->ids.n - 1] == tokenizer_eos(w->chat->t))
        out->ends_trained = out->trained[--out->ids.n];
    if (!code && !out->ids.n) code = err_set(e, ERR_CORRUPT, "%s: a conversation of no text", where);
    chat_text_fini(&t);
    return code;
}

int chat_encode(struct chat_work *w, const struct json *record, const char *where, struct chat_tokens *out,
                struct err *e)
{
    struct chat_record r;
    out->ids.n = 0;
    str_clear(&out->unread);
    int code = chat_record_read(&r, record, w->chat->side, where, e);
    if (code) return code;
    if (w->chat->side != CHAT_REJECTED) chat_record_unread(&r, w->chat->text, &out->unread); /* once of each record */
    code = encode_record(w, &r, where, out, e);
    chat_record_fini(&r);
    return code;
}

/* The answer goes on where the prompt for it ends, and is data. */
static int encode_unfinished(struct chat_work *w, const struct json *asked, const char *answer, size_t n,
                             const char *where, struct chat_tokens *out, struct err *e)
{
    struct chat_text t;
    int code = chat_render_prompt(w, &(struct chat_asked){.messages = asked}, where, &t, e);
    if (code) return code;
    GROW(t.answers, t.n_answers, t.answers_room, 1);
    t.answers[t.n_answers++] = (struct jinja_span){t.out.text.n, t.out.text.n + n};
    str_add(&t.out.text, answer, n);
    for (size_t i = 0; i < n; i++) str_putc(&t.out.data, 1);
    code = encode_text(w, &t, where, out, e);
    if (!code && !out->ids.n) code = err_set(e, ERR_CORRUPT, "%s: a conversation of no text", where);
    chat_text_fini(&t);
    return code;
}

int chat_answered(struct chat_work *w, const struct json *record, const char *answer, size_t n, bool ended,
                  const char *where, struct chat_tokens *out, struct err *e)
{
    struct chat_record r;
    out->ids.n = 0;
    int code = chat_record_answered(&r, record, answer, n, where, e);
    if (code) return code;
    const struct json *asked;
    struct json *own = NULL;
    if (ended || !r.messages) code = encode_record(w, &r, where, out, e);
    else code = chat_record_asked(record, &asked, &own, where, e);
    if (!code && !ended && r.messages) code = encode_unfinished(w, asked, answer, n, where, out, e);
    json_free(own);
    if (!ended) out->ends_trained = false;
    chat_record_fini(&r);
    return code;
}

int chat_asked(struct chat_work *w, const struct json *record, const char *where, struct tokens *ids, struct err *e)
{
    const struct json *asked;
    struct json *own;
    int code = chat_record_asked(record, &asked, &own, where, e);
    if (!code) code = chat_prompt(w, asked, where, ids, e);
    json_free(own);
    return code;
}

int chat_prompt(struct chat_work *w, const struct json *messages, const char *where, struct tokens *ids, struct err *e)
{
    return chat_prompt_asked(w, &(struct chat_asked){.messages = messages}, where, ids, e);
}

int chat_prompt_asked(struct chat_work *w, const struct chat_asked *a, const char *where, struct tokens *ids,
                      struct err *e)
{
    struct chat_text t;
    struct chat_tokens out = {0};
    int code = chat_render_prompt(w, a, where, &t, e);
    if (code) return code;
    code = encode_text(w, &t, where, &out, e);
    ids->n = 0;
    for (int64_t i = 0; !code && i < out.ids.n; i++) tokens_push(ids, out.ids.ids[i]);
    if (!code && !ids->n) code = err_set(e, ERR_CORRUPT, "%s: a conversation of no text", where);
    chat_text_fini(&t);
    chat_tokens_free(&out);
    return code;
}
