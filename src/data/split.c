/* split.c: pieces by PCRE2 with its just-in-time compiler.
 *
 * Streaming is exact because the first stage asks for hard partial matching: whenever the matcher would have
 * looked past the end of what is there, look-ahead included, PCRE2 says "partial" instead of guessing, and the
 * piece waits for more text. A complete match therefore never depends on what follows the buffer. Later stages cut
 * pieces that are complete already.
 *
 * Three differences to the engines the files were written for are handled here: PCRE2's \s knows U+180E, which is
 * no white space in today's Unicode, so \s and \S are spelt out; `&&` inside a class means intersection elsewhere
 * and two ampersands here, so it is refused; look-behind would need text that is gone, so it is refused too.
 *
 * Cost: one call per piece, about 0.1 to 0.2 microseconds. Rejected: writing the two common expressions out by
 * hand, which doubles the code whose exactness has to be proven.
 */
#include "data/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "data/utf8.h"

const char *const SPLIT_GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char *const SPLIT_LLAMA3 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

#define WHITE_SPACE "\\t-\\r\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

enum { MAX_STAGES = 8, PATTERN_MAX = 16 << 10, JIT_STACK_MAX = 1 << 20 };

struct split {
    pcre2_code *stages[MAX_STAGES];
    int n;
};

struct split_work {
    pcre2_match_data *match[MAX_STAGES];
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

struct split *split_new(void)
{
    return xcalloc(1, sizeof(struct split));
}

void split_free(struct split *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) pcre2_code_free(s->stages[i]);
    xfree(s);
}

int split_n_stages(const struct split *s)
{
    return s->n;
}

/* The pattern with \s and \S spelt out; false for class intersection. */
static bool translate(struct str *out, const char *pattern, size_t n)
{
    bool in_class = false;
    size_t class_at = 0;
    for (size_t i = 0; i < n; i++) {
        char c = pattern[i];
        if (c == '\\' && i + 1 < n) {
            char next = pattern[++i];
            if (next == 's') str_puts(out, in_class ? WHITE_SPACE : "[" WHITE_SPACE "]");
            else if (next == 'S' && !in_class) str_puts(out, "[^" WHITE_SPACE "]");
            else str_add(out, pattern + i - 1, 2);
            continue;
        }
        if (!in_class && c == '[') {
            in_class = true;
            class_at = i + (i + 1 < n && pattern[i + 1] == '^');
        } else if (in_class && c == ']' && i > class_at + 1) {
            in_class = false;
        } else if (in_class && c == '&' && i + 1 < n && pattern[i + 1] == '&') {
            return false;
        } else if (in_class && c == '[' && i + 1 < n && pattern[i + 1] != ':') {
            return false; /* nested classes exist elsewhere, not in PCRE2 */
        }
        str_putc(out, c);
    }
    return true;
}

int split_add(struct split *s, const char *pattern, size_t n, const char *what, struct err *e)
{
    if (s->n == MAX_STAGES) return err_set(e, ERR_REQUEST, "%s: more than %d splits in sequence", what, MAX_STAGES);
    if (n > PATTERN_MAX)
        return err_set(e, ERR_REQUEST, "%s: a regular expression of %zu bytes; at most %d are read", what, n,
                       PATTERN_MAX);
    struct str text = {0};
    if (!translate(&text, pattern, n)) {
        str_free(&text);
        return err_set(e, ERR_REQUEST, "%s: nested character classes and && are not supported in %.200s", what,
                       pattern);
    }
    int why;
    PCRE2_SIZE where;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)str_text(&text), text.n,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &why, &where, NULL);
    str_free(&text);
    if (!code) {
        PCRE2_UCHAR message[200];
        pcre2_get_error_message(why, message, sizeof message);
        return err_set(e, ERR_REQUEST, "%s: regular expression %.200s: %s (near character %zu)", what, pattern,
                       (char *)message, where);
    }
    uint32_t behind = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    if (behind) {
        pcre2_code_free(code);
        return err_set(e, ERR_REQUEST, "%s: look-behind (also \\b and \\A) is not supported in %.200s", what, pattern);
    }
    /* Without JIT (not compiled in, or no executable memory) the interpreter does the same, slower. */
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    s->stages[s->n++] = code;
    return OK;
}

struct split_work *split_work_new(const struct split *s)
{
    struct split_work *w = xcalloc(1, sizeof *w);
    w->context = pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_MAX, NULL);
    CHECK(w->context && w->stack, "no memory for a matcher");
    pcre2_jit_stack_assign(w->context, NULL, w->stack);
    for (int i = 0; i < s->n; i++) {
        w->match[i] = pcre2_match_data_create_from_pattern(s->stages[i], NULL);
        CHECK(w->match[i], "no memory for a matcher");
    }
    return w;
}

void split_work_free(struct split_work *w)
{
    if (!w) return;
    for (int i = 0; i < MAX_STAGES; i++) pcre2_match_data_free(w->match[i]);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    xfree(w);
}

/* One search in p[at..n): OK with found, undecided, or neither (no match at all). */
struct found {
    bool match, undecided;
    size_t from, to;
};

static int find(const struct split *s, struct split_work *w, int stage, const unsigned char *p, size_t n, size_t at,
                bool final, struct found *f, struct err *e)
{
    uint32_t options = PCRE2_NO_UTF_CHECK | (final ? 0 : PCRE2_PARTIAL_HARD);
    pcre2_match_data *match = w->match[stage];
    int n_groups = pcre2_match(s->stages[stage], p, n, at, options, match, w->context);
    if (n_groups == PCRE2_ERROR_JIT_STACKLIMIT)
        n_groups = pcre2_match(s->stages[stage], p, n, at, options | PCRE2_NO_JIT, match, w->context);
    *f = (struct found){0};
    if (n_groups >= 0) {
        PCRE2_SIZE *span = pcre2_get_ovector_pointer(match);
        *f = (struct found){.match = true, .from = span[0], .to = span[1]};
        return OK;
    }
    if (n_groups == PCRE2_ERROR_PARTIAL) f->undecided = true;
    if (n_groups == PCRE2_ERROR_PARTIAL || n_groups == PCRE2_ERROR_NOMATCH) return OK;
    PCRE2_UCHAR message[200];
    pcre2_get_error_message(n_groups, message, sizeof message);
    return err_set(e, ERR_REQUEST, "the tokenizer's regular expression gave up on this text: %s", (char *)message);
}

static int run_stage(const struct split *s, struct split_work *w, int stage, const unsigned char *p, size_t n,
                     bool final, split_piece_fn *fn, void *arg, size_t *used, struct err *e);

/* A piece of `stage` goes to the next one, whole; after the last, to the caller. */
static int hand_on(const struct split *s, struct split_work *w, int stage, const unsigned char *p, size_t n,
                   split_piece_fn *fn, void *arg, struct err *e)
{
    size_t used;
    if (n == 0) return OK;
    if (stage + 1 < s->n) return run_stage(s, w, stage + 1, p, n, true, fn, arg, &used, e);
    fn(arg, p, n);
    return OK;
}

/* The window that a piece starting at p[at] is decided in: its end, and whether text beyond cannot matter. */
static size_t window(const unsigned char *p, size_t n, size_t at, bool *final)
{
    if (n - at < SPLIT_PIECE_MAX) return n;
    *final = true;
    return n - at == SPLIT_PIECE_MAX ? n : utf8_cut(p, at + SPLIT_PIECE_MAX);
}

static int run_stage(const struct split *s, struct split_work *w, int stage, const unsigned char *p, size_t n,
                     bool final, split_piece_fn *fn, void *arg, size_t *used, struct err *e)
{
    size_t done = 0; /* everything before is in pieces that were handed on */
    size_t at = 0;   /* where the next search starts: >= done, beyond it only after an empty match */
    *used = 0;
    while (done < n) {
        bool last = final;
        size_t end = window(p, n, done, &last);
        struct found f = {.match = false};
        int code = at < end ? find(s, w, stage, p, end, at, last, &f, e) : OK;
        if (code) return code;
        if (f.match && f.from == f.to && f.from < end) { /* an empty match cuts nothing */
            int len = utf8_char(p + f.from, end - f.from);
            at = f.from + (size_t)(len > 0 ? len : 1);
            continue;
        }
        if (f.match && f.from < f.to) {
            code = hand_on(s, w, stage, p + done, f.from - done, fn, arg, e);
            if (!code) code = hand_on(s, w, stage, p + f.from, f.to - f.from, fn, arg, e);
            done = f.to;
        } else if (last) {
            code = hand_on(s, w, stage, p + done, end - done, fn, arg, e);
            done = end;
        } else {
            return OK; /* undecided, or no match yet: both wait for more text */
        }
        if (code) return code;
        at = done;
        *used = done;
    }
    return OK;
}

int split_run(const struct split *s, struct split_work *w, const unsigned char *p, size_t n, bool final,
              split_piece_fn *fn, void *arg, size_t *used, struct err *e)
{
    if (s->n) return run_stage(s, w, 0, p, n, final, fn, arg, used, e);
    size_t done = 0;
    while (done < n) {
        bool last = final;
        size_t end = window(p, n, done, &last);
        if (!last) break;
        fn(arg, p + done, end - done);
        done = end;
    }
    *used = done;
    return OK;
}
