/* SPDX-License-Identifier: Apache-2.0 */
#include "source/csv_rows.h"

/* Behind the closing quote at p[at]: the end of the field, or something that belongs to none. */
static bool ends_field(const char *p, size_t at, size_t n, char mark)
{
    return at + 1 == n || p[at + 1] == mark || p[at + 1] == '\n' || p[at + 1] == '\r';
}

size_t csv_record(struct csv_scan *s, const char *p, size_t n, bool at_end, char mark)
{
    for (; s->at < n; s->at++) {
        char c = p[s->at];
        s->lines += c == '\n';
        if (c == '"' && (s->inside || !s->in_field)) {
            if (s->inside && s->at + 1 == n && !at_end) return 0; /* whether it is doubled the next byte will tell */
            bool doubled = s->inside && s->at + 1 < n && p[s->at + 1] == '"';
            if (s->inside && !doubled && !s->stray && !ends_field(p, s->at, n, mark)) {
                s->stray = true;
                s->stray_line = s->lines;
            }
            if (doubled) s->at++;
            else s->inside = !s->inside;
            s->in_field = true;
        } else if (!s->inside && c == '\n') {
            return s->at + 1;
        } else if (!s->inside) {
            s->in_field = c != mark;
        }
    }
    return at_end ? n : 0;
}

static size_t without_line_end(const char *p, size_t n)
{
    if (n && p[n - 1] == '\n') n--;
    if (n && p[n - 1] == '\r') n--;
    return n;
}

/* The end of the field that begins at p[at): its mark's place, or n. Its bytes without quotes go to `out` where it is
 * given, which may be p + at. */
static size_t field_end(const char *p, size_t at, size_t n, char mark, char *out, size_t *length)
{
    size_t w = 0;
    if (at < n && p[at] == '"') {
        for (at++; at < n; at++) {
            if (p[at] == '"' && !(at + 1 < n && p[at + 1] == '"')) {
                at++;
                break;
            }
            at += p[at] == '"';
            if (out) out[w] = p[at];
            w++;
        }
    }
    for (; at < n && p[at] != mark; at++, w++)
        if (out) out[w] = p[at];
    *length = w;
    return at;
}

int csv_columns(const char *p, size_t n, char mark)
{
    size_t length;
    int columns = 1;
    n = without_line_end(p, n);
    for (size_t at = 0; (at = field_end(p, at, n, mark, NULL, &length)) < n; at++) columns++;
    return columns;
}

char *csv_field(char *p, size_t n, char mark, int column, size_t *length)
{
    size_t at = 0;
    n = without_line_end(p, n);
    for (int i = 0; i < column; i++) {
        at = field_end(p, at, n, mark, NULL, length);
        if (at++ == n) return NULL;
    }
    (void)field_end(p, at, n, mark, p + at, length);
    return p + at;
}

bool csv_take(const char *p, size_t n, char mark, size_t *at, char *out, size_t *length)
{
    n = without_line_end(p, n);
    if (*at > n) return false;
    *at = field_end(p, *at, n, mark, out, length) + 1;
    return true;
}
