/* SPDX-License-Identifier: Apache-2.0 */
/* wordset.c: open addressing by the checksum of a word. */
#include "curate/wordset.h"

#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"

const struct conf_row wordset_rows[] = {
    {.path = "word", .type = CONF_STRING, .offset = offsetof(struct wordset_item, word), .doc = "a word"},
    {.path = NULL},
};

void wordset_add(struct wordset *s, const char *p, size_t n)
{
    if (!n) return;
    GROW(s->word, s->n, s->room, 1);
    s->word[s->n++] = xstrndup(p, n);
    if (n > s->longest) s->longest = n;
}

static size_t slot_of(const struct wordset *s, const char *p, size_t n)
{
    for (size_t i = (size_t)hash64(p, n) & s->mask;; i = (i + 1) & s->mask) {
        if (!s->slot[i]) return i;
        const char *w = s->word[s->slot[i] - 1];
        if (strlen(w) == n && !memcmp(w, p, n)) return i;
    }
}

void wordset_settle(struct wordset *s)
{
    size_t room = 16;
    while (room < 2 * (size_t)s->n) room *= 2;
    xfree(s->slot);
    s->slot = xcalloc(room, sizeof *s->slot);
    s->mask = room - 1;
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        size_t at = slot_of(s, s->word[i], strlen(s->word[i]));
        if (s->slot[at]) {
            xfree(s->word[i]);
            continue;
        }
        s->word[n] = s->word[i];
        s->slot[at] = ++n;
    }
    s->n = n;
}

int wordset_find(const struct wordset *s, const char *p, size_t n)
{
    if (n > s->longest || !n) return -1;
    return s->slot[slot_of(s, p, n)] - 1;
}

uint64_t wordset_key(const struct wordset *s)
{
    struct hash64 h;
    hash64_init(&h);
    for (int i = 0; i < s->n; i++) hash64_add(&h, s->word[i], strlen(s->word[i]) + 1);
    return hash64_value(&h);
}

void wordset_fini(struct wordset *s)
{
    for (int i = 0; i < s->n; i++) xfree(s->word[i]);
    xfree(s->word);
    xfree(s->slot);
    *s = (struct wordset){0};
}

void wordset_add_list(struct wordset *s, const struct conf_list *l)
{
    const struct wordset_item *item = l->items;
    for (int i = 0; i < l->n; i++) wordset_add(s, item[i].word, strlen(item[i].word));
}

int wordset_add_file(struct wordset *s, const char *path, const char *where, struct err *e)
{
    enum { MOST = 256 << 20 };
    char *text;
    size_t n;
    int code = fs_read_all(path, MOST, &text, &n, e);
    if (code) {
        err_prefix(e, "%s", where);
        return code;
    }
    for (size_t at = 0; at < n;) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t end = newline ? (size_t)(newline - text) : n, from = at, to = end;
        while (from < to && strchr(" \t\r", text[from])) from++;
        while (to > from && strchr(" \t\r", text[to - 1])) to--;
        if (to > from && text[from] != '#') wordset_add(s, text + from, to - from);
        at = end + 1;
    }
    xfree(text);
    return OK;
}
