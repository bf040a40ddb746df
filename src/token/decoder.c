/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c: ids → bytes, and ids → text that can be shown at once.
 *
 * A token may end inside a character, so the streaming decoder holds back up to three bytes until the character is
 * complete; whatever can no longer become one is shown as U+FFFD, one per byte. Where tokens are not simply joined, a
 * detokenizer is between (detokenizer.h).
 */
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"
#include "token/detokenizer.h"
#include "token/tokenizer_impl.h"

/* What a token is called when text is decoded: an added token that is looked for in normalised text is called so. */
static const char *spoken(const struct tokenizer *t, int32_t id, size_t *n)
{
    for (int i = 0; i < t->n_spoken; i++)
        if (t->spoken[i].id == id) {
            *n = t->spoken[i].text.n;
            return str_text(&t->spoken[i].text);
        }
    return tokenizer_piece(t, id, n);
}

static bool in_use(const struct tokenizer *t, int32_t id)
{
    size_t n;
    (void)tokenizer_piece(t, id, &n);
    return n > 0;
}

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int64_t n, bool with_special, struct str *out)
{
    struct detok_state *chain = t->detokenizer ? detok_state_new(t->detokenizer) : NULL;
    for (int64_t i = 0; i < n; i++) {
        if (!with_special && tokenizer_is_special(t, ids[i])) continue;
        size_t bytes;
        const char *p = spoken(t, ids[i], &bytes);
        if (!chain) str_add(out, p, bytes);
        else if (in_use(t, ids[i])) detok_push(chain, p, bytes, out);
    }
    if (chain) detok_end(chain, out);
    detok_state_free(chain);
}

/* Shows as much of p[0..n) as is decided; returns how many bytes are left, at most three. */
static size_t show(const unsigned char *p, size_t n, struct str *out)
{
    while (n > 0) {
        size_t valid = utf8_run(p, n);
        str_add(out, p, valid);
        p += valid;
        n -= valid;
        if (n == 0 || utf8_char(p, n) < 0) break;
        str_puts(out, "\xEF\xBF\xBD");
        p++;
        n--;
    }
    return n;
}

/* The same with what is held before it. */
static void show_more(struct decoder *d, const char *p, size_t n, struct str *out)
{
    struct str whole = {0};
    if (d->n_held) {
        str_add(&whole, d->held, (size_t)d->n_held);
        str_add(&whole, p, n);
        p = str_text(&whole);
        n = whole.n;
    }
    size_t left = show((const unsigned char *)p, n, out);
    memcpy(d->held, p + n - left, left);
    d->n_held = (int)left;
    str_free(&whole);
}

void decoder_push(struct decoder *d, int32_t id, struct str *out)
{
    if (!d->with_special && tokenizer_is_special(d->t, id)) return;
    size_t n;
    const char *p = spoken(d->t, id, &n);
    if (!d->t->detokenizer) {
        show_more(d, p, n, out);
        return;
    }
    if (!in_use(d->t, id)) return;
    if (!d->chain) d->chain = detok_state_new(d->t->detokenizer);
    struct str text = {0};
    detok_push(d->chain, p, n, &text);
    show_more(d, str_text(&text), text.n, out);
    str_free(&text);
}

void decoder_pass(struct decoder *d, const int32_t *ids, int64_t n)
{
    struct str nobody = {0};
    for (int64_t i = 0; i < n; i++) decoder_push(d, ids[i], &nobody);
    d->n_held = 0;
    str_free(&nobody);
}

void decoder_end(struct decoder *d, struct str *out)
{
    if (d->chain) {
        struct str text = {0};
        detok_end(d->chain, &text);
        show_more(d, str_text(&text), text.n, out);
        str_free(&text);
        detok_state_free(d->chain);
        d->chain = NULL;
    }
    for (int i = 0; i < d->n_held; i++) str_puts(out, "\xEF\xBF\xBD");
    d->n_held = 0;
}
