/* SPDX-License-Identifier: Apache-2.0 */
/* hang_groups.c: two ranks are in one group when the functions of their stacks are the same, outside of the first one
 * that waits: below comm_wait a rank that polls is somewhere else at every look. */
#include "watch/hang_groups.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/mem.h"

enum { FILE_MOST = 16 << 20, DOING_MOST = 900 };

/* Functions that wait for others, and look at something else every time they are looked at. */
static const char *const waiting[] = {"comm_wait",     "comm_sync",     "comm_barrier", "comm_agree",
                                      "prefetch_next", "prefetch_wait", "team_run",     "crew_wait"};
enum { N_WAITING = sizeof waiting / sizeof *waiting };
static const char root[] = "trainer_rank"; /* what calls it is another thread's start on rank 0 than on others */

struct rank_stack {
    int rank;
    char doing[DOING_MOST];
    struct str key;   /* the functions that are compared, a line each */
    struct str shown; /* and the frames as they are shown */
    bool whole;       /* the root was there */
};

struct hang_ranks {
    struct rank_stack *rank;
    int n, room;
};

struct hang_ranks *hang_ranks_new(void) { return xcalloc(1, sizeof(struct hang_ranks)); }

void hang_ranks_free(struct hang_ranks *r)
{
    for (int i = 0; i < r->n; i++) str_free(&r->rank[i].key), str_free(&r->rank[i].shown);
    xfree(r->rank);
    xfree(r);
}

static struct rank_stack *rank_get(struct hang_ranks *r, int rank)
{
    for (int i = 0; i < r->n; i++)
        if (r->rank[i].rank == rank) return &r->rank[i];
    GROW(r->rank, r->n, r->room, 1);
    r->rank[r->n] = (struct rank_stack){.rank = rank};
    return &r->rank[r->n++];
}

/* "N: ..." at text: N, and *after the rest; -1: it is something else. */
static int rank_number(const char *text, const char **after)
{
    char *end;
    if (*text < '0' || *text > '9') return -1;
    long n = strtol(text, &end, 10);
    if (n > INT_MAX || end[0] != ':' || end[1] != ' ') return -1;
    *after = end + 2;
    return (int)n;
}

static bool is_name(const char *name, const char *frame, size_t n)
{
    return strlen(name) == n && !strncmp(frame, name, n);
}

/* A frame, from the outermost that waits outwards: what was seen before it is dropped. */
static void add_frame(struct rank_stack *s, const char *frame, size_t n)
{
    size_t name = 0;
    if (s->whole) return;
    while (name < n && frame[name] != ' ' && frame[name] != '+') name++;
    for (int i = 0; i < N_WAITING; i++)
        if (is_name(waiting[i], frame, name)) {
            str_clear(&s->key);
            str_clear(&s->shown);
        }
    s->whole |= is_name(root, frame, name);
    str_add(&s->key, frame, name);
    str_putc(&s->key, '\n');
    str_puts(&s->shown, HANG_FRAME);
    str_add(&s->shown, frame, n);
    str_putc(&s->shown, '\n');
}

void hang_ranks_add(struct hang_ranks *r, const char *text)
{
    int at = -1; /* the rank whose frames follow */
    for (const char *line = text, *next; *line; line = next) {
        size_t n = strcspn(line, "\n");
        const char *of, *after;
        next = line + n + (line[n] == '\n');
        if (str_starts(line, HANG_FRAME)) {
            if (at >= 0) add_frame(rank_get(r, at), line + strlen(HANG_FRAME), n - strlen(HANG_FRAME));
            continue;
        }
        at = -1;
        if (str_starts(line, HANG_RANK)) {
            int rank = rank_number(line + strlen(HANG_RANK), &after);
            if (rank < 0) continue;
            struct rank_stack *s = rank_get(r, rank);
            snprintf(s->doing, sizeof s->doing, "%.*s",
                     (int)(n - (size_t)(after - line) < DOING_MOST ? n - (size_t)(after - line) : DOING_MOST), after);
        } else if (str_starts(line, "thread ") && (of = memmem(line, n, "' of rank ", 10))) {
            at = rank_number(of + 10, &after);
            if (at < 0) continue;
            str_clear(&rank_get(r, at)->key);
            str_clear(&rank_get(r, at)->shown);
            rank_get(r, at)->whole = false;
        }
    }
}

static int by_group(const void *a, const void *b)
{
    const struct rank_stack *x = a, *y = b;
    int order = strcmp(str_text(&x->key), str_text(&y->key));
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

struct span {
    int first, n;
};

static int larger(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : (x->first > y->first) - (x->first < y->first);
}

/* "ranks 0-2, 5" */
static void print_names(const struct rank_stack *s, int n, struct str *out)
{
    str_puts(out, n > 1 ? "ranks " : "rank ");
    for (int i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && s[j].rank == s[j - 1].rank + 1;) j++;
        str_printf(out, "%s%d", i ? ", " : "", s[i].rank);
        if (j - i > 1) str_printf(out, "%s%d", j - i > 2 ? "-" : ", ", s[j - 1].rank);
    }
}

void hang_ranks_print(struct hang_ranks *r, struct str *out)
{
    struct span *group = xcalloc((size_t)r->n + 1, sizeof *group);
    int n = 0;
    if (r->n) qsort(r->rank, (size_t)r->n, sizeof *r->rank, by_group);
    for (int i = 0, j; i < r->n; i = j) {
        for (j = i + 1; j < r->n && !strcmp(str_text(&r->rank[i].key), str_text(&r->rank[j].key));) j++;
        group[n++] = (struct span){i, j - i};
    }
    if (n) qsort(group, (size_t)n, sizeof *group, larger);
    str_printf(out, "%d rank%s in %d place%s\n", r->n, r->n == 1 ? "" : "s", n, n == 1 ? "" : "s");
    for (int g = 0; g < n; g++) {
        const struct rank_stack *s = &r->rank[group[g].first];
        str_putc(out, '\n');
        print_names(s, group[g].n, out);
        str_putc(out, '\n');
        for (int i = 0; i < group[g].n; i++) /* once for all that say the same */
            if (i == 0 || strcmp(s[i].doing, s[i - 1].doing) != 0)
                str_printf(out, "  rank %d: %s\n", s[i].rank, s[i].doing);
        str_puts(out, s->shown.n ? str_text(&s->shown) : HANG_FRAME "(no stack)\n");
    }
    xfree(group);
}

/* The rank of a file's name, -1: it is another file. */
static int rank_of_name(const char *name)
{
    int rank = -1, end = 0;
    if (sscanf(name, "stacks-rank%9d.txt%n", &rank, &end) != 1 || !end || name[end]) return -1;
    return rank;
}

static double age_of(const char *path)
{
    struct stat s;
    return stat(path, &s) ? 0 : (double)s.st_mtim.tv_sec + 1e-9 * (double)s.st_mtim.tv_nsec;
}

bool hang_groups(const char *dir, double recent_s, struct str *out)
{
    struct hang_ranks *r = hang_ranks_new();
    char **names;
    double newest = 0;
    int n;
    if (fs_list(dir, &names, &n, NULL)) n = 0, names = NULL;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < n; i++) {
            if (rank_of_name(names[i]) < 0) continue;
            char *path = fs_join(dir, names[i]), *text = NULL;
            double when = age_of(path);
            size_t bytes;
            if (pass == 0 && when > newest) newest = when;
            if (pass == 1 && newest - when <= recent_s && !fs_read_all(path, FILE_MOST, &text, &bytes, NULL))
                hang_ranks_add(r, text);
            xfree(text);
            xfree(path);
        }
    if (names) fs_list_free(names, n);
    bool any = r->n > 0;
    if (any) hang_ranks_print(r, out);
    hang_ranks_free(r);
    return any;
}
