/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of a document: copied and looked through sixteen bytes at once; escapes and what is no UTF-8 by character. */
#include <string.h>

#include "base/json_parser.h"

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

/* Copies up to a quote, a backslash, a control character or the end, where x->p is then. *beyond: the first byte beyond
 * ASCII; NULL: there is none. They are not looked at. */
static inline char *copy_run(struct parser *x, char *out, const unsigned char **beyond)
{
    const unsigned char *p = x->p;
    while (x->end - p >= JSON_WIDE) {
        wide v = load_wide(p);
        memcpy(out, p, JSON_WIDE);
        unsigned high = marked(v), stop = marked((v == '"') | (v == '\\') | (v < 0x20)) & ~high;
        int n = stop ? __builtin_ctz(stop) : JSON_WIDE;
        high &= (1u << n) - 1;
        if (high && !*beyond) *beyond = p + __builtin_ctz(high);
        p += n;
        out += n;
        if (n < JSON_WIDE) {
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

bool json_read_text(struct parser *x, const char **text, uint32_t *n)
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

void json_spell_key(struct parser *x, struct json_member *m)
{
    if (!x->has_nul || !memchr(m->key, 0, m->key_n)) return;
    char *p = json_keep(x, (size_t)m->key_n * 7 + 2), *out = p + m->key_n + 1;
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
