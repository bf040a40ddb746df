/* SPDX-License-Identifier: Apache-2.0 */
/* json_read.c: a document to a tree in one pass.
 *
 * Recursive descent to a bounded depth. A value is 16 bytes, a member 32. What is in a bracket that is still open waits
 * on a stack and moves to its place when the bracket closes, so that items lie side by side and are found by their
 * number. All of it lies in blocks that are freed at once; the first has the texts, which are never longer than they
 * were in the document. Texts are read in json_text.c, members found in json_index.c. A vocabulary's ten megabytes take
 * about 30 ms, most of it texts of a few bytes.
 *
 * Errors are found by whoever meets them first and told with the place, which is counted only then.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_parser.h"
#include "base/mem.h"

enum {
    DEPTH_MOST = 2048, /* of brackets */
    BLOCK = 64 << 10,
    STACK_FIRST = 512,
    GIVEN = 1 << 20 /* a list of so many bytes stays where it was collected */
};

/* -- memory -------------------------------------------------------------------------------------------------- */

static unsigned char *own(struct parser *x, struct block *b)
{
    b->next = x->doc->blocks;
    x->doc->blocks = b;
    return (unsigned char *)(b + 1);
}

void *json_keep(struct parser *x, size_t bytes)
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
        unsigned char *p = json_keep(x, bytes + behind ? bytes + behind : 1);
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
    if (p < x->end && (unsigned)*p > ' ') return;
    while (x->end - p >= JSON_WIDE) {
        wide v = load_wide(p);
        unsigned stop = marked((v != ' ') & (v != '\n') & (v != '\r') & (v != '\t'));
        if (stop) {
            x->p = p + __builtin_ctz(stop);
            return;
        }
        p += JSON_WIDE;
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
    if (!json_read_text(x, &m->key, &m->key_n)) return false;
    json_spell_key(x, m);
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
    v->members = take(x, from, json_table_bytes(v->n));
    return json_index(x, v->members, &v->n);
}

static bool read_value(struct parser *x, struct json *v)
{
    *v = (struct json){0};
    skip_space(x);
    if (x->p == x->end) return fail(x, x->p, "a value was expected, and the document ends");
    switch (*x->p) {
    case '{': return read_object(x, v);
    case '[': return read_array(x, v);
    case '"': v->kind = JSON_STRING; return json_read_text(x, &v->text, &v->n);
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
    size_t head = (sizeof(struct json_document) + n + JSON_SLACK + 15) / 16 * 16;
    struct json_document *doc = xmalloc_large(head + values);
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
    struct json_document *doc = (struct json_document *)root; /* its first member */
    if (!doc) return;
    for (struct block *b = doc->blocks, *next; b; b = next) {
        next = b->next;
        xfree(b);
    }
    xfree(doc);
}
