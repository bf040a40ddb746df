/* SPDX-License-Identifier: Apache-2.0 */
/* remote.c: a table of pieces in memory, readers who want pieces, threads that fetch them.
 *
 * A reader that finds its piece neither in the table nor in the folder wants it: a slot is taken from what was read to
 * its end, else from what was used longest ago, and a thread fetches the piece that was wanted first. Pieces ahead of a
 * reader take only slots that are free or read to their end, so that reading ahead never takes from a reader. A failed
 * piece is an error of whoever reads it, and is wanted anew by who comes next.
 */
#include "remote/remote.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "remote/remote_impl.h"

struct remote_options remote_defaults(void)
{
    return (struct remote_options){
        .connections = 8,
        .tries = 6,
        .connect_s = 10,
        .stall_s = 30,
        .give_up_s = 300,
        .pause_s = 0.5,
        .piece = 1 << 20,
        .cache_limit = (int64_t)10 << 30,
    };
}

/* Each connection has a piece under way and one that waits to be read; two are for who reads here and there. */
static int slots_of(const struct remote_options *o) { return 2 * o->connections + 2; }

int64_t remote_bytes(const struct remote_options *o) { return slots_of(o) * o->piece; }

bool remote_is(const char *path) { return url_is(path); }

int remote_check(const char *url, struct err *e)
{
    struct url u;
    int code = url_parse(&u, url, e);
    url_free(&u);
    return code;
}

char *remote_shown(const char *url)
{
    struct url u;
    (void)url_parse(&u, url, NULL);
    char *shown = xstrdup(u.shown);
    url_free(&u);
    return shown;
}

bool remote_has_secrets(const char *text)
{
    char *hidden = remote_hidden(text);
    bool has = strcmp(hidden, text) != 0;
    xfree(hidden);
    return has;
}

char *remote_hidden(const char *text)
{
    struct str out = {0};
    const char *at;
    while ((at = strstr(text, "://"))) {
        const char *from = at, *end = at;
        while (from > text && from[-1] >= 'a' && from[-1] <= 'z') from--;
        while (*end && !strchr(" \t\r\n", *end) && (*end != '"' || end[-1] == '\\')) end++;
        char *url = xstrndup(from, (size_t)(end - from)), *shown = remote_is(url) ? remote_shown(url) : xstrdup(url);
        str_add(&out, text, (size_t)(from - text));
        str_puts(&out, shown);
        xfree(shown);
        xfree(url);
        text = end;
    }
    str_puts(&out, text);
    return out.p ? out.p : xstrdup("");
}

struct remote *remote_new(const struct remote_options *o)
{
    struct remote *r = xcalloc(1, sizeof *r);
    r->o = o ? *o : remote_defaults();
    CHECK(r->o.connections > 0 && r->o.tries > 0 && r->o.piece > 0 && r->o.piece % PIECE_BLOCK == 0,
          "options of remote");
    if (!r->o.list_most) r->o.list_most = 5000000;
    if (!r->o.copy_most) r->o.copy_most = (int64_t)5 << 30;
    if (r->o.cache_dir) r->cache_dir = xstrdup(r->o.cache_dir);
    uint64_t about[] = {(uint64_t)getpid(), (uint64_t)(1e9 * clock_wall_s()), (uint64_t)(uintptr_t)r};
    r->salt = hash64(about, sizeof about);
    r->n_slots = slots_of(&r->o);
    r->slot = xcalloc((size_t)r->n_slots, sizeof *r->slot);
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->front_lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    return r;
}

size_t remote_memory(const struct remote *r) { return to_size(remote_bytes(&r->o)); }

static bool is_under_way(const struct remote *r)
{
    for (int i = 0; i < r->n_slots; i++)
        if (r->slot[i].state == SLOT_WANTED || r->slot[i].state == SLOT_BUSY) return true;
    return false;
}

void remote_place(struct remote *r, void *memory)
{
    pthread_mutex_lock(&r->lock);
    while (r->n_threads && is_under_way(r)) pthread_cond_wait(&r->changed, &r->lock);
    for (int i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slot[i];
        unsigned char *at = (unsigned char *)memory + (size_t)i * to_size(r->o.piece);
        CHECK(!s->readers, "somebody reads a piece");
        if (s->data && s->state == SLOT_READY) memcpy(at, s->data, s->n);
        if (!r->placed) xfree(s->data);
        s->data = at;
    }
    r->placed = true;
    pthread_mutex_unlock(&r->lock);
}

void remote_free(struct remote *r)
{
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_threads; i++) pthread_join(r->thread[i], NULL);
    for (int i = 0; i < r->n_slots; i++) {
        CHECK(!r->slot[i].o, "%s: is still open", r->slot[i].o->url.shown);
        if (!r->placed) xfree(r->slot[i].data);
    }
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->front_lock);
    pthread_cond_destroy(&r->changed);
    http_free(r->front);
    piece_cache_close(r->cache);
    s3_free(&r->s3);
    xfree(r->cache_dir);
    xfree(r->thread);
    xfree(r->slot);
    xfree(r);
}

/* Where programs keep what they can make anew; NULL: nothing says. */
static char *default_cache_dir(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache == '/') return fs_join(cache, "tutti/objects");
    return home && *home ? fs_join(home, ".cache/tutti/objects") : NULL;
}

static int start_cache(struct remote *r, struct err *e)
{
    if (!r->o.cache_limit || r->cache) return OK;
    bool chosen = r->cache_dir != NULL;
    if (!chosen) r->cache_dir = default_cache_dir();
    struct err why = {.text = "there is no $HOME"};
    int code = r->cache_dir ? piece_cache_open(&r->cache, r->cache_dir, r->o.cache_limit, &why) : ERR_REQUEST;
    if (code && chosen) return err_set(e, code, "%s", why.text);
    if (code) { /* nobody asked for this place */
        log_warn("data: what is fetched is not kept (%s); data.remote.cache_dir names a folder for it", why.text);
        r->o.cache_limit = 0;
    }
    return OK;
}

int remote_start(struct remote *r, bool s3, struct err *e)
{
    pthread_mutex_lock(&r->lock);
    int code = start_cache(r, e);
    if (!code && s3 && !r->s3_known) {
        code = s3_from_environment(&r->s3, e);
        if (code) s3_free(&r->s3);
        else r->s3_known = true;
    }
    pthread_mutex_unlock(&r->lock);
    return code;
}

void remote_count(struct remote *r, int64_t requests, int64_t failed, int64_t fetched, int64_t from_cache)
{
    pthread_mutex_lock(&r->lock);
    r->counts.requests += requests;
    r->counts.failed += failed;
    r->counts.fetched += fetched;
    r->counts.from_cache += from_cache;
    pthread_mutex_unlock(&r->lock);
}

struct remote_counts remote_counts(struct remote *r)
{
    pthread_mutex_lock(&r->lock);
    struct remote_counts c = r->counts;
    pthread_mutex_unlock(&r->lock);
    return c;
}

void remote_say(struct remote *r)
{
    struct remote_counts c = remote_counts(r);
    char fetched[32], kept[32];
    if (c.requests)
        log_info("data: fetched %s in %lld requests, %lld of them had to be made again; %s were here from before",
                 str_bytes(fetched, (double)c.fetched), (long long)c.requests, (long long)c.failed,
                 str_bytes(kept, (double)c.from_cache));
}

/* ---- threads ---- */

/* The lock is held. What was wanted first. */
static struct slot *next_wanted(struct remote *r)
{
    struct slot *first = NULL;
    for (int i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slot[i];
        if (s->state == SLOT_WANTED && (!first || s->used < first->used)) first = s;
    }
    return first;
}

static void *fetch_pieces(void *arg)
{
    struct remote *r = arg;
    struct http *h = http_new();
    thread_name_set("fetch");
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct slot *s = next_wanted(r);
        if (!s) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        s->state = SLOT_BUSY;
        pthread_mutex_unlock(&r->lock);
        struct err e = {.code = OK};
        if (!s->data) s->data = xmalloc(to_size(r->o.piece));
        int code = fetch_piece(h, s->o, s->piece, s->data, &e);
        pthread_mutex_lock(&r->lock);
        s->state = code ? SLOT_FAILED : SLOT_READY;
        s->error = e;
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    http_free(h);
    return NULL;
}

/* The lock is held. One thread is enough to go on with. */
static int start_threads(struct remote *r, struct err *e)
{
    if (r->n_threads) return OK;
    int failed = 0;
    r->thread = xcalloc((size_t)r->o.connections, sizeof *r->thread);
    while (!failed && r->n_threads < r->o.connections) {
        failed = pthread_create(&r->thread[r->n_threads], NULL, fetch_pieces, r);
        r->n_threads += !failed;
    }
    if (r->n_threads) return OK;
    xfree(r->thread);
    r->thread = NULL;
    char limits[160];
    limit_threads_text(limits);
    return err_set(e, ERR_MEMORY, "no thread that fetches pieces could be started: %s (%s)", strerror(failed), limits);
}

/* ---- pieces ---- */

size_t piece_bytes(const struct object *o, int64_t piece)
{
    int64_t at = piece * o->r->o.piece, left = o->about.bytes - at;
    return to_size(left < o->r->o.piece ? left : o->r->o.piece);
}

/* The lock is held, here and below. */
static struct slot *find(const struct object *o, int64_t piece)
{
    struct remote *r = o->r;
    for (int i = 0; i < r->n_slots; i++)
        if (r->slot[i].o == o && r->slot[i].piece == piece) return &r->slot[i];
    return NULL;
}

/* A slot for another piece: of those that nobody uses one that is free, else one that was read to its end, else the one
 * used longest ago, unless it is only for reading ahead. */
static struct slot *spare(struct remote *r, bool ahead)
{
    struct slot *best = NULL;
    int best_rank = 0;
    for (int i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slot[i];
        if (s->readers || s->state == SLOT_BUSY || s->state == SLOT_WANTED) continue;
        int rank = s->state == SLOT_FREE ? 3 : s->done || s->state == SLOT_FAILED ? 2 : 1;
        if (ahead && rank == 1) continue;
        if (!best || rank > best_rank || (rank == best_rank && s->used < best->used)) {
            best = s;
            best_rank = rank;
        }
    }
    return best;
}

static void want(struct slot *s, struct object *o, int64_t piece)
{
    *s = (struct slot){.state = SLOT_WANTED,
                       .o = o,
                       .piece = piece,
                       .n = piece_bytes(o, piece),
                       .data = s->data,
                       .used = ++o->r->clock};
    pthread_cond_broadcast(&o->r->changed);
}

static void forget(struct slot *s) { *s = (struct slot){.data = s->data}; }

static void want_ahead(struct object *o, int64_t from, int64_t to)
{
    int64_t all = (o->about.bytes + o->r->o.piece - 1) / o->r->o.piece;
    for (int64_t p = from; p < to && p < all; p++) {
        if (find(o, p)) continue;
        struct slot *s = spare(o->r, true);
        if (!s) return;
        want(s, o, p);
    }
}

/* Where a slot is found or comes free: the piece in it, with this reader counted. */
static struct slot *slot_for(struct object *o, int64_t piece)
{
    struct slot *s;
    while (!(s = find(o, piece)) && !(s = spare(o->r, false))) pthread_cond_wait(&o->r->changed, &o->r->lock);
    if (s->o != o || s->piece != piece || s->state == SLOT_FREE) want(s, o, piece);
    s->readers++;
    return s;
}

/* Bytes [in, in + n) of the piece, which is wanted if it is not there. The lock is held, but while bytes are copied. */
static int read_slot(struct object *o, int64_t piece, size_t in, size_t n, void *out, int64_t ahead_to, struct err *e)
{
    struct remote *r = o->r;
    int code = start_threads(r, e);
    if (code) return code;
    double from = clock_now_s();
    struct slot *s = slot_for(o, piece);
    want_ahead(o, piece + 1, ahead_to);
    while (s->state != SLOT_READY && s->state != SLOT_FAILED) pthread_cond_wait(&r->changed, &r->lock);
    r->counts.waited_s += clock_now_s() - from;
    if (s->state == SLOT_FAILED) {
        code = err_set(e, s->error.code, "%s", s->error.text);
    } else {
        pthread_mutex_unlock(&r->lock);
        memcpy(out, s->data + in, n);
        pthread_mutex_lock(&r->lock);
        s->used = ++r->clock;
        s->done |= in + n == s->n;
    }
    s->readers--;
    if (code && !s->readers) forget(s);
    pthread_cond_broadcast(&r->changed);
    return code;
}

/* Part of one piece; pieces before ahead_to are going to be read, too. */
static int read_piece(struct object *o, int64_t piece, size_t in, size_t n, void *out, int64_t ahead_to, struct err *e)
{
    struct remote *r = o->r;
    pthread_mutex_lock(&r->lock);
    if (!find(o, piece) && r->cache) { /* a few blocks of a piece in the folder need no slot */
        pthread_mutex_unlock(&r->lock);
        struct piece_key k = fetch_key(o, piece);
        if (piece_cache_read(r->cache, &k, piece_bytes(o, piece), in, n, out)) {
            remote_count(r, 0, 0, 0, (int64_t)n);
            return OK;
        }
        pthread_mutex_lock(&r->lock);
    }
    int code = read_slot(o, piece, in, n, out, ahead_to, e);
    pthread_mutex_unlock(&r->lock);
    return code;
}

/* How far ahead: to the end of this read, and as far as there are connections where it goes on from the last one. */
static int64_t ahead_of(struct object *o, int64_t at, int64_t end)
{
    int64_t to = (end + o->r->o.piece - 1) / o->r->o.piece;
    pthread_mutex_lock(&o->r->lock);
    if (at == o->next) to += o->r->o.connections;
    o->next = end;
    pthread_mutex_unlock(&o->r->lock);
    return o->about.whole ? 0 : to;
}

int object_read(struct object *o, int64_t at, size_t n, void *out, struct err *e)
{
    CHECK(at >= 0 && at <= o->about.bytes && (int64_t)n <= o->about.bytes - at, "%s: bytes [%lld, +%zu) of %lld",
          o->url.shown, (long long)at, n, (long long)o->about.bytes);
    int64_t end = at + (int64_t)n, ahead_to = n ? ahead_of(o, at, end) : 0;
    int code = OK;
    for (int64_t lo = at; lo < end && !code;) {
        int64_t piece = lo / o->r->o.piece, in = lo % o->r->o.piece, here = o->r->o.piece - in;
        if (here > end - lo) here = end - lo;
        code = read_piece(o, piece, to_size(in), to_size(here), out, ahead_to, e);
        if (!code) code = etag_add(o, lo, to_size(here), out, e);
        out = (char *)out + here;
        lo += here;
    }
    return code;
}

void object_close(struct object *o)
{
    if (!o) return;
    struct remote *r = o->r;
    atomic_store(&o->closing, true);
    pthread_mutex_lock(&r->lock);
    for (int i = 0; i < r->n_slots; i++) {
        struct slot *s = &r->slot[i];
        if (s->o != o) continue;
        CHECK(!s->readers, "%s: is closed while it is read", o->url.shown);
        while (s->state == SLOT_BUSY) pthread_cond_wait(&r->changed, &r->lock);
        forget(s);
    }
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_destroy(&o->whole);
    etag_end(o);
    url_free(&o->url);
    xfree(o);
}
