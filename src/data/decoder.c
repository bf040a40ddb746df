/* SPDX-License-Identifier: Apache-2.0 */
/* decoder.c: ids → bytes, and ids → text that can be shown at once.
 *
 * A token may end inside a character, so the streaming decoder holds back up to three bytes until the character is
 * complete; whatever can no longer become one is shown as U+FFFD, one per byte.
 */
#include <string.h>

#include "data/tokenizer_impl.h"
#include "data/utf8.h"

void tokenizer_decode(const struct tokenizer *t, const int32_t *ids, int64_t n, bool with_special, struct str *out)
{
    for (int64_t i = 0; i < n; i++) {
        if (!with_special && tokenizer_is_special(t, ids[i])) continue;
        size_t bytes;
        const char *p = tokenizer_piece(t, ids[i], &bytes);
        str_add(out, p, bytes);
    }
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

void decoder_push(struct decoder *d, int32_t id, struct str *out)
{
    if (!d->with_special && tokenizer_is_special(d->t, id)) return;
    size_t n;
    const char *p = tokenizer_piece(d->t, id, &n);
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

void decoder_end(struct decoder *d, struct str *out)
{
    for (int i = 0; i < d->n_held; i++) str_puts(out, "\xEF\xBF\xBD");
    d->n_held = 0;
}
