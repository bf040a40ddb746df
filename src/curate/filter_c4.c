/* SPDX-License-Identifier: Apache-2.0 */
/* filter_c4.c: the rules of C4: Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text
 * transformer", JMLR 2020, section 2.2, with what its program does beside: words that are too long, citations, phrases
 * of policies. Lines that fail are taken out; some of what they hold drops the document. The paper's first edition had
 * five sentences and three words where the last has three and five.
 *
 * A sentence ends at . ! ? or their like, with what closes behind them, before white space or the end of the line; what
 * is left of a line counts as one; an ellipsis does not end it. Bad words have a filter of their own (bad_words).
 */
#include <string.h>

#include "curate/filter.h"
#include "curate/letters.h"

struct options {
    int64_t min_sentences, min_words, max_word_chars;
    bool terminal, citations, lorem_ipsum, curly, javascript, policy;
};

enum { LOREM, CURLY, SENTENCES };
static const struct filter_rule rules[] = {
    [LOREM] = {"lorem_ipsum", 0, 2, false},
    [CURLY] = {"curly_bracket", 0, 2, false},
    [SENTENCES] = {"sentences", 1, 1e4, true},
};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "terminal", .type = CONF_BOOL, AT(terminal), .otherwise = "true", .doc = "take out lines that do not end with . ! ? or a quotation mark"},
    {.path = "min_words", .type = CONF_INT, AT(min_words), .otherwise = "5", .lo = 0, .hi = 1e9, .doc = "take out lines of fewer words"},
    {.path = "max_word_chars", .type = CONF_INT, AT(max_word_chars), .otherwise = "1000", .lo = 0, .hi = 1e9, .doc = "take out lines with a longer word; 0: any"},
    {.path = "javascript", .type = CONF_BOOL, AT(javascript), .otherwise = "true", .doc = "take out lines that say JavaScript"},
    {.path = "policy", .type = CONF_BOOL, AT(policy), .otherwise = "true", .doc = "take out lines about cookies, terms of use, privacy"},
    {.path = "citations", .type = CONF_BOOL, AT(citations), .otherwise = "true", .doc = "take [1], [edit], [citation needed] out of lines"},
    {.path = "lorem_ipsum", .type = CONF_BOOL, AT(lorem_ipsum), .otherwise = "true", .doc = "drop documents that say lorem ipsum"},
    {.path = "curly_bracket", .type = CONF_BOOL, AT(curly), .otherwise = "true", .doc = "drop documents with a {"},
    {.path = "min_sentences", .type = CONF_INT, AT(min_sentences), .otherwise = "3", .lo = 0, .hi = 1e9, .doc = "drop documents of fewer sentences in what is left"},
    {0},
};
/* clang-format on */

static const char *const policies[] = {
    "terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies",
};

/* Whether the phrase, in lower case, is in the line, in any case of ASCII letters. */
static bool says(const char *p, size_t n, const char *phrase)
{
    size_t m = strlen(phrase);
    for (size_t i = 0; i + m <= n; i++)
        if ((p[i] | 32) == (*phrase | 32) && !strncasecmp(p + i, phrase, m)) return true;
    return false;
}

static size_t citation(const char *p, size_t n)
{
    static const char *const words[] = {"[edit]", "[citation needed]"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n >= strlen(words[i]) && !memcmp(p, words[i], strlen(words[i]))) return strlen(words[i]);
    size_t i = 1;
    while (i < n && p[i] >= '0' && p[i] <= '9') i++;
    return i < n && p[i] == ']' ? i + 1 : 0;
}

/* The line without white space around it and without citations, behind what is in out. */
static void add_line(struct str *out, const char *p, size_t n, bool citations)
{
    for (size_t i = 0; i < n;) {
        const char *open = citations ? memchr(p + i, '[', n - i) : NULL;
        size_t to = open ? (size_t)(open - p) : n;
        str_add(out, p + i, to - i);
        if (to == n) return;
        size_t cut = citation(p + to, n - to);
        if (!cut) str_putc(out, '[');
        i = to + (cut ? cut : 1);
    }
}

static bool ends_well(const char *p, size_t n)
{
    if (n >= 3 && !memcmp(p + n - 3, "...", 3)) return false;
    return n && p[n - 1] && strchr(".?!\"'", p[n - 1]); /* a NUL is no mark */
}

static bool closes(uint32_t c)
{
    return (c < 0x80 && c && strchr("\"')]}", (int)c)) || c == 0x201D || c == 0x2019 || c == 0xBB;
}

static int64_t sentences(const char *p, size_t n)
{
    int64_t count = 0;
    bool open = false, ending = false, counted = false;
    for (size_t i = 0; i < n;) {
        int len;
        uint32_t c = char_at(p + i, n - i, &len);
        bool space = letters_space(p + i, n - i) > 0;
        if (ending && space) open = ending = false;
        bool dots = c == '.' && ((i && p[i - 1] == '.') || (i + 1 < n && p[i + 1] == '.'));
        if (letters_ends_sentence(c) && !dots) {
            counted = open || (ending && counted);
            count += open;
            open = false;
            ending = true;
        } else if (!space && !(ending && closes(c))) {
            if (ending && c < 0x3000) count -= counted; /* a mark inside of a word: 3.5, www.example.org */
            open = true;
            ending = false;
        }
        i += (size_t)len;
    }
    return count + open;
}

/* Words of a line, and its longest in characters. */
static int64_t words_of(const char *p, size_t n, int64_t *longest)
{
    int64_t count = 0, chars = 0;
    *longest = 0;
    for (size_t i = 0; i < n;) {
        size_t space = letters_space(p + i, n - i);
        int len = (int)space;
        if (space) {
            chars = 0;
        } else {
            (void)char_at(p + i, n - i, &len);
            count += chars++ == 0;
            if (chars > *longest) *longest = chars;
        }
        i += (size_t)len;
    }
    return count;
}

/* A line that stays is added to d->spare, one that does not is told. The rule that drops the document, or KEEPS. */
static int judge_line(const struct options *o, struct document *d, struct findings *f, const char *p, size_t n,
                      int64_t *n_sentences)
{
    struct str *out = &d->spare;
    size_t from = out->n, space;
    int64_t longest, words;
    n = letters_trim(p, n);
    while (n && (space = letters_space(p, n)) > 0) p += space, n -= space;
    words = words_of(p, n, &longest);
    if (o->max_word_chars && longest > o->max_word_chars) {
        findings_removed(f, p, n);
        return FILTER_KEEPS;
    }
    if (from) str_putc(out, '\n');
    size_t begin = out->n;
    add_line(out, p, n, o->citations);
    const char *line = out->n > begin ? out->p + begin : "";
    size_t left = out->n - begin;
    bool stays = (!o->terminal || ends_well(line, left)) && words >= o->min_words;
    if (stays && o->lorem_ipsum && says(line, left, "lorem ipsum")) return LOREM;
    if (stays && o->javascript && says(line, left, "javascript")) stays = false;
    if (stays && o->curly && memchr(line, '{', left)) return CURLY;
    for (size_t i = 0; stays && o->policy && i < sizeof policies / sizeof *policies; i++)
        stays = !says(line, left, policies[i]);
    if (!stays) {
        if (n) findings_removed(f, p, n);
        out->n = from;
        return FILTER_KEEPS;
    }
    if (left < n) findings_removed(f, p, n);
    *n_sentences += sentences(line, left);
    return FILTER_KEEPS;
}

/* Without the white space that citations left at both ends. */
static void trim(struct str *s)
{
    size_t from = 0, space;
    if (!s->n) return;
    s->n = letters_trim(s->p, s->n);
    while (from < s->n && (space = letters_space(s->p + from, s->n - from)) > 0) from += space;
    memmove(s->p, s->p + from, s->n - from);
    s->n -= from;
    s->p[s->n] = 0;
}

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    const struct spans *l = document_lines(d);
    int64_t n = 0;
    str_clear(&d->spare);
    for (size_t i = 0; i < l->n; i++) {
        int rule = judge_line(o, d, f, span_text(d, &l->p[i]), l->p[i].n, &n);
        if (rule == FILTER_KEEPS) continue;
        f->value[rule] = 1;
        return rule;
    }
    f->value[LOREM] = f->value[CURLY] = 0;
    trim(&d->spare);
    if (finds(f, SENTENCES, (double)n, (double)o->min_sentences, INFINITY)) return SENTENCES;
    if (d->spare.n != d->text.n || memcmp(str_text(&d->spare), d->text.p, d->text.n) != 0) {
        if (!f->n_removed) findings_removed(f, "(white space)", 13);
        document_replace(d);
    }
    return FILTER_KEEPS;
}

const struct filter filter_c4 = {
    .kind = {.name = "c4",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "takes out lines that are no sentences; drops placeholders, code, what has too few sentences"},
    .source = "Raffel et al. 2020",
    FILTER_RULES_OF(rules),
    .judge = judge,
};
