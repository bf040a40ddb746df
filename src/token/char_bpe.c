/* SPDX-License-Identifier: Apache-2.0 */
/* char_bpe.c: characters to symbols, symbols merged by rules (merge.h). A cache of words in front of it answers most
 * pieces.
 *
 * These models are published without a rule that cuts text into words: a document is one piece, since spaces are part
 * of tokens. Merges do not reach across most places all the same: if no rule joins something that ends with x to
 * something that begins with y, no token of any text covers x followed by y, and cutting there changes nothing. The
 * pairs that rules do join are kept in a table (joins), so that documents are cut into words, cached, and streamed.
 * Rejected: a limit on the text, which is what the reference has (its memory).
 */
#include "token/char_bpe.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "text/utf8.h"
#include "token/merge.h"
#include "token/token_cache.h"

enum { PLAIN = 0x10000 };

/* -- joins ---------------------------------------------------------------------------------------------------- */

static uint64_t *join_slot(const struct joins *j, uint64_t key)
{
    uint64_t at = piece_mix((uint64_t)(uintptr_t)j->slots, key) & j->mask;
    while (j->slots[at] && j->slots[at] != key + 1) at = (at + 1) & j->mask;
    return &j->slots[at];
}

static void join_put(struct joins *j, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 32 | right, *slot, *recent = &j->recent[piece_mix(0, key) % RECENT_JOINS];
    if (*recent == key + 1) return;
    *recent = key + 1;
    if (2 * (j->n + 1) > j->mask) {
        uint64_t *old = j->slots, old_n = old ? j->mask + 1 : 0;
        j->mask = old ? 2 * j->mask + 1 : 1023;
        j->slots = xcalloc(j->mask + 1, sizeof *j->slots);
        for (uint64_t i = 0; i < old_n; i++)
            if (old[i]) *join_slot(j, old[i] - 1) = old[i];
        xfree(old);
    }
    slot = join_slot(j, key);
    j->n += *slot == 0;
    *slot = key + 1;
}

static int32_t token_of(const struct char_bpe *b, uint32_t code)
{
    unsigned char utf8[4];
    if (code < PLAIN) return b->plain[code];
    return piece_map_get(b->ids, utf8, (size_t)utf8_put(utf8, code));
}

bool joins_never_looked_up(const struct joins *j, uint32_t left, uint32_t right)
{
    return !*join_slot(j, (uint64_t)left << 32 | right) && token_of(j->bpe, right) >= 0;
}

/* -- making ------------------------------------------------------------------------------------------------- */

static void drop_joins(struct char_bpe *b)
{
    if (b->joins) xfree(b->joins->slots);
    xfree(b->joins);
    b->joins = NULL;
}

void char_bpe_fini(struct char_bpe *b)
{
    bpe_fini(&b->rules);
    str_free(&b->prefix);
    str_free(&b->suffix);
    xfree(b->plain);
    drop_joins(b);
}

static bool is_byte(const struct char_bpe *b, int32_t id)
{
    if (id < b->byte_least || id > b->byte_most) return false;
    for (int i = 0; i < 256; i++)
        if (id == b->byte_token[i]) return true;
    return false;
}

/* The token stands for its own text. */
static bool speaks_for_itself(const struct char_bpe *b, int32_t id)
{
    return id != b->unknown && !(b->fallback && is_byte(b, id));
}

const char *char_bpe_put(struct char_bpe *b, const char *left, size_t left_n, const char *right, size_t right_n,
                         const int32_t id[3], int32_t rank)
{
    const unsigned char *l = (const unsigned char *)left, *r = (const unsigned char *)right;
    if (left_n == 0 || id[0] < 0) return "the left part";
    if (right_n <= b->prefix.n || id[1] < 0) return "the right part";
    if (id[2] < 0) return "the result";
    bpe_put(&b->rules, id[0], id[1], rank, id[2]);
    if (!b->joins) return NULL;
    if (speaks_for_itself(b, id[0]) && speaks_for_itself(b, id[1])) {
        int len;
        size_t last = left_n - 1;
        while (last && (l[last] & 0xC0) == 0x80) last--;
        join_put(b->joins, utf8_code(l + last, &len), utf8_code(r, &len));
    } else {
        drop_joins(b); /* the table would say nothing about text */
    }
    return NULL;
}

void char_bpe_start(struct char_bpe *b, int64_t n_rules)
{
    bpe_init(&b->rules, n_rules);
    b->plain = xmalloc(PLAIN * sizeof *b->plain);
    for (uint32_t c = 0; c < PLAIN; c++) {
        unsigned char utf8[4];
        b->plain[c] = c >= 0xD800 && c < 0xE000 ? -1 : piece_map_get(b->ids, utf8, (size_t)utf8_put(utf8, c));
    }
    b->byte_least = INT32_MAX;
    b->byte_most = -1;
    for (int i = 0; i < 256; i++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
        int32_t id = b->byte_token[i] = piece_map_get(b->ids, (unsigned char *)text, 6);
        if (id >= 0 && id < b->byte_least) b->byte_least = id;
        if (id > b->byte_most) b->byte_most = id;
    }
    if (b->whole || b->prefix.n || b->suffix.n) return; /* then a piece's ends matter */
    b->joins = xcalloc(1, sizeof *b->joins);
    b->joins->bpe = b;
}

void char_bpe_finish(struct char_bpe *b)
{
    struct joins *j = b->joins;
    if (j && !j->n) drop_joins(b);
    for (uint32_t left = 0; b->joins && left < 128; left++)
        for (uint32_t right = 0; right < 128; right++)
            if (joins_never_looked_up(j, left, right)) j->ascii[left][right / 64] |= (uint64_t)1 << right % 64;
}

/* -- encoding ------------------------------------------------------------------------------------------------ */

struct char_bpe_work {
    struct token_cache *cache;
    struct merger merger;
    struct tokens symbols; /* of one piece */
    struct str key;
};

struct char_bpe_work *char_bpe_work_new(void)
{
    struct char_bpe_work *w = xcalloc(1, sizeof *w);
    w->cache = token_cache_new();
    return w;
}

void char_bpe_work_free(struct char_bpe_work *w)
{
    if (!w) return;
    token_cache_free(w->cache);
    merger_fini(&w->merger);
    tokens_free(&w->symbols);
    str_free(&w->key);
    xfree(w);
}

/* The token of a character in its place. */
static int32_t token_at(const struct char_bpe *b, struct char_bpe_work *w, const unsigned char *p, size_t len,
                        bool first, bool last)
{
    bool prefixed = b->prefix.n && !first, suffixed = b->suffix.n && last;
    if (!prefixed && !suffixed) {
        int n;
        return token_of(b, utf8_code(p, &n));
    }
    str_clear(&w->key);
    if (prefixed) str_add(&w->key, b->prefix.p, b->prefix.n);
    str_add(&w->key, p, len);
    if (suffixed) str_add(&w->key, b->suffix.p, b->suffix.n);
    return piece_map_get(b->ids, (unsigned char *)w->key.p, w->key.n);
}

/* The bytes of what was looked up (affixes too, as the reference has it) as tokens; false when one has none. */
static bool add_bytes(const struct char_bpe *b, struct char_bpe_work *w, const unsigned char *p, size_t len, bool first,
                      bool last)
{
    const struct {
        const unsigned char *p;
        size_t n;
    } parts[] = {{(const unsigned char *)b->prefix.p, first ? 0 : b->prefix.n},
                 {p, len},
                 {(const unsigned char *)b->suffix.p, last ? b->suffix.n : 0}};
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 3; i++)
            for (size_t k = 0; k < parts[i].n; k++) {
                int32_t id = b->byte_token[parts[i].p[k]];
                if (id < 0) return false;
                if (pass) tokens_push(&w->symbols, id);
            }
    return true;
}

/* Characters to symbols. As in the reference, unknown ones wait for the next known character, also where bytes come
 * in between. */
static void read_symbols(const struct char_bpe *b, struct char_bpe_work *w, const unsigned char *p, size_t n)
{
    int unknown = 0;
    w->symbols.n = 0;
    for (size_t at = 0, len; at < n; at += len) {
        int bytes;
        (void)utf8_code(p + at, &bytes);
        len = (size_t)bytes;
        bool first = at == 0, last = at + len == n;
        int32_t id = token_at(b, w, p + at, len, first, last);
        if (id >= 0) {
            if (unknown) tokens_push(&w->symbols, b->unknown);
            unknown = 0;
            tokens_push(&w->symbols, id);
        } else if (!(b->fallback && add_bytes(b, w, p + at, len, first, last)) && b->unknown >= 0) {
            if (unknown && !b->fuse_unknown) tokens_push(&w->symbols, b->unknown);
            unknown = 1;
        }
    }
    if (unknown) tokens_push(&w->symbols, b->unknown);
}

void char_bpe_encode(const struct char_bpe *b, struct char_bpe_work *w, const unsigned char *p, size_t n,
                     struct tokens *out)
{
    if (n == 1 && p[0] >= 0x80) {
        if (b->byte_token[p[0]] >= 0) tokens_push(out, b->byte_token[p[0]]);
        return;
    }
    if (n == 1 && !b->prefix.n && !b->suffix.n && b->plain[p[0]] >= 0) {
        tokens_push(out, b->plain[p[0]]);
        return;
    }
    if (token_cache_get(w->cache, p, n, out)) return;
    int64_t before = out->n;
    int32_t whole = b->whole ? piece_map_get(b->ids, p, n) : -1;
    if (whole >= 0) {
        tokens_push(out, whole);
    } else {
        read_symbols(b, w, p, n);
        merge_symbols(&b->rules, &w->merger, w->symbols.ids, (size_t)w->symbols.n, out);
    }
    token_cache_put(w->cache, p, n, out->ids + before, out->n - before);
}
