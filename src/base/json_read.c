/* SPDX-License-Identifier: Apache-2.0 */
/* json_read.c: a document to a tree in one pass.
 *
 * Recursive descent to a bounded depth. A value is 16 bytes, a member 32. What is in a bracket that is still open waits
 * on a stack and moves to its place when the bracket closes, so that items lie side by side and are found by their
 * number. All of it lies in blocks that are freed at once; the first has the texts, which are never longer than they
 * were in the document. Objects of many members get a table of hashes; its seed is its own address, so that nobody can
 * write keys that fall together. A vocabulary's ten megabytes take about 30 ms, most of it texts of a few bytes: they
 * are copied and looked through sixteen bytes at once.
 *
 * Errors are found by whoever meets them first and told with the place, which is counted only then.
 */
#include "base/json_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/piece_hash.h"

enum {
    DEPTH_MOST = 2048, /* of brackets */
    FEW = 8,           /* members that are found by looking at each */
    WIDE = 16,         /* bytes looked at together */
    SLACK = 2 * WIDE,  /* behind the texts: WIDE bytes are written where fewer count */
    BLOCK = 64 << 10,
    STACK_FIRST = 512,
    GIVEN = 1 << 20, /* a list of so many bytes stays where it was collected */
    AHEAD = 16       /* members whose places are waited for together */
};

struct block {
    struct block *next;
    size_t unused;
};
_Static_assert(sizeof(struct block) % 16 == 0, "what follows a block's head is aligned");

struct document {
    struct json root; /* first: the root is what callers hold */
    struct block *blocks;
};

struct parser {
    const unsigned char *text, *p, *end;
    bool published;
    bool has_nul; /* some text or key has one */
    int depth;
    char *strings; /* where the next text goes */
    struct document *doc;
    unsigned char *room, *room_end; /* of the newest block */
    size_t block;                   /* bytes of one: as many as the values of a 4th of the document may take */
    unsigned char *stack;
    size_t stack_n, stack_room;
    const unsigned char *bad; /* where the mistake is */
    const char *why;          /* NULL: none */
    unsigned byte;            /* the one that was not understood, where `why` asks for it */
};

static bool fail(struct parser *x, const unsigned char *at, const char *why)
{
    x->bad = at;
    x->why = why;
    return false;
}

/* -- memory -------------------------------------------------------------------------------------------------- */

static unsigned char *own(struct parser *x, struct block *b)
{
    b->next = x->doc->blocks;
    x->doc->blocks = b;
    return (unsigned char *)(b + 1);
}

/* 16-byte aligned, not zeroed; lives as long as the document. */
static void *keep(struct parser *x, size_t bytes)
{
    bytes = (bytes + 15) / 16 * 16;
    if ((size_t)(x->room_end - x->room) < bytes) {
        size_t size = bytes > x->block / 4 ? bytes : x->block;
        unsigned char *fresh = own(x, xmalloc_large(sizeof(struct block) + size));
        if (size == bytes) return fresh;
        x->room = fresh;
        x->room_end = fresh + size;
    }
    void *p = x->room;
    x->room += bytes;
    return p;
}

/* The stack begins with room for the head of a block, which it may become. */
static void stack_start(struct parser *x, size_t room)
{
    x->stack_room = room;
    x->stack = xmalloc_large(room);
    x->stack_n = sizeof(struct block);
}

/* Room for some bytes on the stack. */
static inline void *push(struct parser *x, size_t bytes)
{
    GROW(x->stack, x->stack_n, x->stack_room, bytes);
    x->stack_n += bytes;
    return x->stack + x->stack_n - bytes;
}

/* What is on the stack from `from` on, with room for `behind` bytes behind it. Where that is much, what is below moves
 * instead, to a stack of its own. */
static void *take(struct parser *x, size_t from, size_t behind)
{
    size_t bytes = x->stack_n - from;
    if (bytes < GIVEN || from > bytes / 4) {
        unsigned char *p = keep(x, bytes + behind ? bytes + behind : 1);
        if (bytes) memcpy(p, x->stack + from, bytes);
        x->stack_n = from;
        return p;
    }
    (void)push(x, behind);
    unsigned char *full = x->stack;
    stack_start(x, x->stack_room);
    memcpy(x->stack + x->stack_n, full + x->stack_n, from - x->stack_n);
    x->stack_n = from;
    (void)own(x, (struct block *)(void *)full);
    return full + from;
}

/* -- tables of members --------------------------------------------------------------------------------------- */

/* The table lies behind the members. Places are 32 bits: 0 none, else the number of a member and one, and above it the
 * hash's upper bits, as many as are left: a place of another key is passed without a look at the key. At most half of
 * the places are taken. */
static size_t table_places(size_t n)
{
    size_t places = 2 * FEW;
    while (places < 2 * n) places *= 2;
    return n > FEW ? places : 0;
}

static uint64_t hash(const struct json_member *members, const char *key, size_t n)
{
    return piece_hash_from((uint64_t)(uintptr_t)members, (const unsigned char *)key, n);
}

static bool same(const struct json_member *m, const char *key, size_t n)
{
    return m->key_n == n && piece_same((const unsigned char *)m->key, (const unsigned char *)key, n);
}

struct table {
    const struct json_member *members;
    uint32_t *place, mask;
};

static struct table table_of(const struct json_member *members, size_t n)
{
    return (struct table){members, (uint32_t *)(void *)(members + n), (uint32_t)(table_places(n) - 1)};
}

/* Where the key of this hash is in the table, or would be. */
static uint32_t *table_place(const struct table *t, uint64_t h, const char *key, size_t n)
{
    uint32_t at = (uint32_t)h & t->mask, above = (uint32_t)(h >> 32) & ~t->mask;
    for (;; at = (at + 1) & t->mask) {
        uint32_t v = t->place[at];
        if (!v) break;
        if ((v & ~t->mask) == above && same(&t->members[(v & t->mask) - 1], key, n)) break;
    }
    return &t->place[at];
}

struct json_member *json_find(const struct json *object, const char *key, size_t n)
{
    struct json_member *m = object->members;
    if (object->n > FEW) {
        struct table t = table_of(m, object->n);
        uint32_t v = *table_place(&t, hash(m, key, n), key, n);
        return v ? &m[(v & t.mask) - 1] : NULL;
    }
    for (uint32_t i = 0; i < object->n; i++)
        if (same(&m[i], key, n)) return &m[i];
    return NULL;
}

void json_find_many(const struct json *object, struct json_asked *asked, size_t n)
{
    struct json_member *m = object->members;
    struct table t = table_of(m, object->n);
    bool few = object->n <= FEW;
    for (size_t i = 0; few && i < n; i++) asked[i].it = json_find(object, asked[i].key, asked[i].n);
    if (few) return;
    for (size_t i = 0; i < n; i++) {
        asked[i].hash = hash(m, asked[i].key, asked[i].n);
        __builtin_prefetch(t.place + ((uint32_t)asked[i].hash & t.mask));
    }
    for (size_t i = 0; i < n; i++) { /* most are where they would be first */
        uint32_t v = t.place[(uint32_t)asked[i].hash & t.mask] & t.mask;
        __builtin_prefetch(m + (v ? v - 1 : 0));
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t v = t.place[(uint32_t)asked[i].hash & t.mask] & t.mask;
        __builtin_prefetch(m[v ? v - 1 : 0].key);
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t v = *table_place(&t, asked[i].hash, asked[i].key, asked[i].n);
        asked[i].it = v ? &m[(v & t.mask) - 1] : NULL;
    }
}

/* Puts all members into the table; of equal keys the first place and the last value stay (an error where keys given
 * twice are one). The number that is left. */
static bool index_many(struct parser *x, struct json_member *m, uint32_t *n)
{
    uint32_t left = 0;
    uint64_t h[AHEAD] = {0};
    struct table t = table_of(m, *n);
    memset(t.place, 0, table_places(*n) * sizeof *t.place);
    for (uint32_t next = 0; next < *n + AHEAD; next++) {
        uint64_t now = h[next % AHEAD];
        if (next < *n) {
            h[next % AHEAD] = hash(m, m[next].key, m[next].key_n);
            __builtin_prefetch(t.place + ((uint32_t)h[next % AHEAD] & t.mask));
        }
        if (next < AHEAD) continue;
        uint32_t i = next - AHEAD, *place = table_place(&t, now, m[i].key, m[i].key_n);
        if (*place && !x->published) return fail(x, x->text + m[i].at, "duplicate object key");
        if (*place) {
            m[(*place & t.mask) - 1].value = m[i].value;
        } else {
            m[left] = m[i];
            *place = ((uint32_t)(now >> 32) & ~t.mask) | ++left;
        }
    }
    if (left == *n) return true;
    *n = left;
    return left <= FEW || index_many(x, m, n); /* a smaller table, which begins where they end */
}

static bool index_few(struct parser *x, struct json_member *m, uint32_t *n)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < *n; i++) {
        uint32_t k = 0;
        while (k < left && !same(&m[k], m[i].key, m[i].key_n)) k++;
        if (k < left && !x->published) return fail(x, x->text + m[i].at, "duplicate object key");
        if (k < left) m[k].value = m[i].value;
        else m[left++] = m[i];
    }
    *n = left;
    return true;
}

/* -- texts --------------------------------------------------------------------------------------------------- */

static bool continues(const unsigned char *p, int n)
{
    for (int i = 1; i <= n; i++)
        if ((p[i] & 0xC0) != 0x80) return false;
    return true;
}

/* Bytes of the character beyond ASCII at p; 0: it is none. */
static int character(const unsigned char *p, const unsigned char *end)
{
    ptrdiff_t left = end - p;
    unsigned c = p[0];
    if (c < 0xC2 || c > 0xF4) return 0;
    if (c < 0xE0) return left > 1 && continues(p, 1) ? 2 : 0;
    if (c < 0xF0) {
        if (left < 3 || !continues(p, 2)) return 0;
        return (c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F) ? 0 : 3; /* too long; a surrogate */
    }
    if (left < 4 || !continues(p, 3)) return 0;
    return (c == 0xF0 && p[1] < 0x90) || (c == 0xF4 && p[1] > 0x8F) ? 0 : 4;
}

static int hex4(const unsigned char *p, const unsigned char *end)
{
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        unsigned c = p[i];
        int digit = c >= '0' && c <= '9'   ? (int)c - '0'
                    : c >= 'a' && c <= 'f' ? (int)c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? (int)c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        v = v << 4 | digit;
    }
    return v;
}

static char *put_code(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
        return out;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *out++ = (char)((0xF00u >> (more + 1) & 0xFF) | c >> 6 * more);
    while (more--) *out++ = (char)(0x80 | (c >> 6 * more & 0x3F));
    return out;
}

/* \uXXXX at x->p, and its second half where it is the first of two. */
static bool code_unit(struct parser *x, char **out)
{
    const unsigned char *p = x->p;
    int c = hex4(p + 2, x->end), low;
    if (c < 0) return fail(x, p, "\\u without four hexadecimal digits");
    x->p += 6;
    if (c >= 0xD800 && c < 0xE000) {
        bool two = c < 0xDC00 && x->end - x->p >= 2 && x->p[0] == '\\' && x->p[1] == 'u';
        low = two ? hex4(x->p + 2, x->end) : -1;
        if (low < 0xDC00 || low > 0xDFFF) return fail(x, p, "half of a pair of surrogates");
        c = 0x10000 + ((c & 0x3FF) << 10) + (low & 0x3FF);
        x->p += 6;
    }
    x->has_nul = x->has_nul || !c;
    *out = put_code(*out, (uint32_t)c);
    return true;
}

static bool escape(struct parser *x, char **out)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (x->end - x->p < 2) return fail(x, x->end, "the document ends inside a text");
    if (x->p[1] == 'u') return code_unit(x, out);
    const char *found = x->p[1] ? strchr(letters, x->p[1]) : NULL;
    if (!found) return fail(x, x->p, "an escape that JSON does not have");
    *(*out)++ = meant[found - letters];
    x->p += 2;
    return true;
}

/* Sixteen bytes at once, in the vectors that gcc and clang have for every machine. */
typedef signed char wide __attribute__((vector_size(WIDE)));

static inline wide load_wide(const unsigned char *p)
{
    wide v;
    memcpy(&v, p, WIDE);
    return v;
}

/* A bit for each byte that is negative: those that comparisons mark are. */
#ifdef __SSE2__
#include <emmintrin.h>
static inline unsigned marked(wide v) { return (unsigned)_mm_movemask_epi8((__m128i)v); }
#else
static inline unsigned marked(wide v)
{
    unsigned bits = 0;
    for (int i = 0; i < WIDE; i++) bits |= (unsigned)(v[i] < 0) << i;
    return bits;
}
#endif

/* Copies up to a quote, a backslash, a control character or the end, where x->p is then. *beyond: the first byte beyond
 * ASCII; NULL: there is none. They are not looked at. */
static inline char *copy_run(struct parser *x, char *out, const unsigned char **beyond)
{
    const unsigned char *p = x->p;
    while (x->end - p >= WIDE) {
        wide v = load_wide(p);
        memcpy(out, p, WIDE);
        unsigned high = marked(v), stop = marked((v == '"') | (v == '\\') | (v < 0x20)) & ~high;
        int n = stop ? __builtin_ctz(stop) : WIDE;
        high &= (1u << n) - 1;
        if (high && !*beyond) *beyond = p + __builtin_ctz(high);
        p += n;
        out += n;
        if (n < WIDE) {
            x->p = p;
            return out;
        }
    }
    for (; p < x->end && *p >= 0x20 && *p != '"' && *p != '\\'; p++) {
        if (*p >= 0x80 && !*beyond) *beyond = p;
        *out++ = (char)*p;
    }
    x->p = p;
    return out;
}

/* From p to x->p all is UTF-8; or the first byte that is not. */
static bool check_run(struct parser *x, const unsigned char *p)
{
    const unsigned char *end = x->p;
    while (p < end) {
        if (*p < 0x80) {
            p++;
        } else if (*p >= 0xC2 && *p < 0xE0 && end - p > 1 && (p[1] & 0xC0) == 0x80) {
            p += 2;
        } else {
            int bytes = character(p, end);
            if (!bytes) {
                x->byte = *p;
                return fail(x, p, "unable to decode byte");
            }
            p += bytes;
        }
    }
    return true;
}

/* The text whose quote x->p is at. */
static bool read_text(struct parser *x, const char **text, uint32_t *n)
{
    char *out = x->strings;
    x->p++;
    for (;;) {
        const unsigned char *beyond = NULL;
        out = copy_run(x, out, &beyond);
        if (beyond && !check_run(x, beyond)) return false;
        if (x->p == x->end) return fail(x, x->p, "the document ends inside a text");
        if (*x->p == '"') break;
        if (*x->p < 0x20) return fail(x, x->p, "a control character inside a text");
        if (!escape(x, &out)) return false;
    }
    x->p++;
    *out = 0;
    *text = x->strings;
    *n = (uint32_t)(out - x->strings);
    x->strings = out + 1;
    return true;
}

/* A key that holds NUL has a spelling that holds none, for whoever compares it with names. */
static void spell_key(struct parser *x, struct json_member *m)
{
    if (!x->has_nul || !memchr(m->key, 0, m->key_n)) return;
    char *p = keep(x, (size_t)m->key_n * 7 + 2), *out = p + m->key_n + 1;
    memcpy(p, m->key, (size_t)m->key_n + 1);
    for (uint32_t i = 0; i < m->key_n; i++) {
        if (p[i]) {
            *out++ = p[i];
        } else {
            memcpy(out, "\\u0000", 6);
            out += 6;
        }
    }
    *out = 0;
    m->key = p;
}

/* -- numbers and words --------------------------------------------------------------------------------------- */

static const unsigned char *digits(const unsigned char *p, const unsigned char *end)
{
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

/* The end of the number at p by JSON's grammar; NULL: there is none. *whole: it has no point and no exponent. */
static const unsigned char *number_end(const unsigned char *p, const unsigned char *end, bool *whole)
{
    p += p < end && *p == '-';
    const unsigned char *stop = digits(p, end);
    *whole = true;
    if (stop == p || (stop > p + 1 && *p == '0')) return NULL;
    if (stop < end && *stop == '.') {
        *whole = false;
        p = stop + 1;
        stop = digits(p, end);
        if (stop == p) return NULL;
    }
    if (stop < end && (*stop == 'e' || *stop == 'E')) {
        *whole = false;
        p = stop + 1;
        p += p < end && (*p == '+' || *p == '-');
        stop = digits(p, end);
        if (stop == p) return NULL;
    }
    return stop;
}

/* Digits with a sign, as many as are there; false: no int64_t holds them. */
static bool whole_number(const unsigned char *p, const unsigned char *stop, int64_t *out)
{
    bool negative = *p == '-';
    uint64_t v = 0;
    for (p += negative; p < stop; p++) {
        if (v > (UINT64_MAX - 9) / 10) return false;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    if (v > (uint64_t)INT64_MAX + negative) return false;
    *out = (int64_t)(negative ? 0 - v : v);
    return true;
}

static const char *keep_text(struct parser *x, const unsigned char *p, size_t n)
{
    char *text = x->strings;
    memcpy(text, p, n);
    text[n] = 0;
    x->strings += n + 1;
    return text;
}

/* The usual number: up to 18 digits, no sign, nothing behind them. */
static inline bool read_digits(struct parser *x, struct json *v)
{
    const unsigned char *p = x->p, *most = x->end - p > 18 ? p + 18 : x->end;
    int64_t sum = 0;
    if (p == most || *p < '1' || *p > '9') return false;
    for (; p < most && *p >= '0' && *p <= '9'; p++) sum = sum * 10 + (*p - '0');
    if (p == most || *p == '.' || *p == 'e' || *p == 'E' || (*p >= '0' && *p <= '9')) return false;
    x->p = p;
    v->kind = JSON_INT;
    v->integer = sum;
    return true;
}

static bool read_number(struct parser *x, struct json *v)
{
    bool whole;
    if (read_digits(x, v)) return true;
    const unsigned char *p = x->p, *stop = number_end(p, x->end, &whole);
    if (!stop) return fail(x, p, "a number that JSON does not have");
    x->p = stop;
    v->kind = JSON_INT;
    if (whole && whole_number(p, stop, &v->integer)) return true;
    if (whole && !x->published) return fail(x, p, "too big integer");
    v->kind = JSON_REAL;
    v->n = (uint32_t)(stop - p);
    v->text = keep_text(x, p, v->n);
    bool small = v->n < 300 && !memchr(p, 'e', v->n) && !memchr(p, 'E', v->n);
    if (x->published || small || isfinite(strtod(v->text, NULL))) return true;
    return fail(x, p, "real number overflow");
}

static bool begins_word(const struct parser *x, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(x->end - x->p) >= n && !memcmp(x->p, word, n);
}

static bool read_word(struct parser *x, struct json *v)
{
    static const struct {
        const char *word;
        enum json_kind kind;
        bool truth, published;
    } words[] = {
        {"true", JSON_BOOL, true, false}, {"false", JSON_BOOL, false, false},   {"null", JSON_NULL, false, false},
        {"NaN", JSON_REAL, false, true},  {"Infinity", JSON_REAL, false, true}, {"-Infinity", JSON_REAL, false, true},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        if ((words[i].published && !x->published) || !begins_word(x, words[i].word)) continue;
        v->kind = (uint8_t)words[i].kind;
        v->truth = words[i].truth;
        v->n = (uint32_t)n;
        if (words[i].published) v->text = keep_text(x, x->p, n);
        x->p += n;
        return true;
    }
    return fail(x, x->p, "a value was expected");
}

/* -- values -------------------------------------------------------------------------------------------------- */

static inline void skip_space(struct parser *x)
{
    const unsigned char *p = x->p;
    if (p<x->end && * p> ' ') return;
    while (x->end - p >= WIDE) {
        wide v = load_wide(p);
        unsigned stop = marked((v != ' ') & (v != '\n') & (v != '\r') & (v != '\t'));
        if (stop) {
            x->p = p + __builtin_ctz(stop);
            return;
        }
        p += WIDE;
    }
    while (p < x->end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
    x->p = p;
}

static bool read_value(struct parser *x, struct json *v);

/* A comma, and more follows; or the bracket, and *more is false. */
static bool next_item(struct parser *x, unsigned char bracket, bool *more, const char *why)
{
    skip_space(x);
    *more = x->p < x->end && *x->p == ',';
    if (!*more && (x->p == x->end || *x->p != bracket)) return fail(x, x->p, why);
    x->p++;
    return true;
}

/* Passes the opening bracket; *more is false where the closing one follows, which is passed, too. */
static bool open_bracket(struct parser *x, unsigned char bracket, bool *more)
{
    if (++x->depth > DEPTH_MOST) return fail(x, x->p, "maximum parsing depth reached");
    x->p++;
    skip_space(x);
    *more = x->p == x->end || *x->p != bracket;
    x->p += !*more;
    return true;
}

static bool read_array(struct parser *x, struct json *v)
{
    size_t from = x->stack_n;
    bool more;
    if (!open_bracket(x, ']', &more)) return false;
    while (more) {
        struct json item;
        if (!read_value(x, &item)) return false;
        memcpy(push(x, sizeof item), &item, sizeof item);
        if (!next_item(x, ']', &more, "',' or ']' expected")) return false;
    }
    x->depth--;
    *v = (struct json){.kind = JSON_ARRAY, .n = (uint32_t)((x->stack_n - from) / sizeof *v)};
    v->items = take(x, from, 0);
    return true;
}

static bool read_member(struct parser *x, struct json_member *m)
{
    skip_space(x);
    if (x->p == x->end || *x->p != '"') return fail(x, x->p, "a key, in quotes, was expected");
    m->at = (uint32_t)(x->p - x->text);
    if (!read_text(x, &m->key, &m->key_n)) return false;
    spell_key(x, m);
    skip_space(x);
    if (x->p == x->end || *x->p != ':') return fail(x, x->p, "':' expected");
    x->p++;
    return read_value(x, &m->value);
}

static bool read_object(struct parser *x, struct json *v)
{
    size_t from = x->stack_n;
    bool more;
    if (!open_bracket(x, '}', &more)) return false;
    while (more) {
        struct json_member m;
        if (!read_member(x, &m)) return false;
        memcpy(push(x, sizeof m), &m, sizeof m);
        if (!next_item(x, '}', &more, "',' or '}' expected")) return false;
    }
    x->depth--;
    *v = (struct json){.kind = JSON_OBJECT, .n = (uint32_t)((x->stack_n - from) / sizeof(struct json_member))};
    v->members = take(x, from, table_places(v->n) * sizeof(uint32_t));
    return v->n > FEW ? index_many(x, v->members, &v->n) : index_few(x, v->members, &v->n);
}

static bool read_value(struct parser *x, struct json *v)
{
    *v = (struct json){0};
    skip_space(x);
    if (x->p == x->end) return fail(x, x->p, "a value was expected, and the document ends");
    switch (*x->p) {
    case '{': return read_object(x, v);
    case '[': return read_array(x, v);
    case '"': v->kind = JSON_STRING; return read_text(x, &v->text, &v->n);
    case '-':
        if (begins_word(x, "-I")) return read_word(x, v);
        return read_number(x, v);
    default: return *x->p >= '0' && *x->p <= '9' ? read_number(x, v) : read_word(x, v);
    }
}

/* -- the document -------------------------------------------------------------------------------------------- */

static int refuse(const struct parser *x, const char *what, struct err *e)
{
    int line = 1, column = 1;
    for (const unsigned char *p = x->text; p < x->bad; p++) {
        if (*p == '\n') column = 1, line++;
        else column += (*p & 0xC0) != 0x80;
    }
    if (!strcmp(x->why, "unable to decode byte"))
        return err_set(e, ERR_CORRUPT, "%s:%d: not valid JSON: %s 0x%02x (column %d)", what, line, x->why, x->byte,
                       column);
    return err_set(e, ERR_CORRUPT, "%s:%d: not valid JSON: %s (column %d)", what, line, x->why, column);
}

static bool read_root(struct parser *x)
{
    if (!read_value(x, &x->doc->root)) return false;
    skip_space(x);
    return x->p == x->end || fail(x, x->p, "the document goes on behind its value");
}

int json_read(struct json **root, const char *text, size_t n, bool published, const char *what, struct err *e)
{
    *root = NULL;
    if (n >= UINT32_MAX / 2) return err_set(e, ERR_REQUEST, "%s: a JSON document of 2 GiB or more", what);
    size_t values = 2 * n < BLOCK ? 2 * n + 256 : 0; /* short documents are one allocation and the stack */
    size_t head = (sizeof(struct document) + n + SLACK + 15) / 16 * 16;
    struct document *doc = xmalloc_large(head + values);
    doc->blocks = NULL;
    struct parser x = {.text = (const unsigned char *)text,
                       .p = (const unsigned char *)text,
                       .end = (const unsigned char *)text + n,
                       .published = published,
                       .strings = (char *)(doc + 1),
                       .doc = doc,
                       .block = n / 4 > BLOCK ? n / 4 / 16 * 16 : BLOCK,
                       .room = (unsigned char *)doc + head,
                       .room_end = (unsigned char *)doc + head + values};
    stack_start(&x, values ? STACK_FIRST : n); /* a vocabulary's members take about as much as they do in the text */
    bool read = read_root(&x);
    xfree(x.stack);
    if (read) {
        *root = &doc->root;
        return OK;
    }
    json_free(&doc->root);
    return refuse(&x, what, e);
}

void json_free(struct json *root)
{
    struct document *doc = (struct document *)root; /* its first member */
    if (!doc) return;
    for (struct block *b = doc->blocks, *next; b; b = next) {
        next = b->next;
        xfree(b);
    }
    xfree(doc);
}
