/* SPDX-License-Identifier: Apache-2.0 */
/* A list of connections under one mutex, and a thread that walks it ten times a second. Rejected: the library's own
 * limit for an address, which also counts those that have a key, and its time-out, which any byte begins anew. */
#include "http/http_places.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/mem.h"

enum { SPARE = 8, LEAST_RATE = 16384 }; /* bytes a second that an answer is taken in, at least */
#define LOOK_S 0.1
#define GRACE_S 1.0 /* a proper client's head is there by then, and was read */

struct place {
    struct http_places *of;
    struct place *next, **at;
    int socket;
    unsigned char address[16];
    double since_s, due_s; /* due_s 0: no clock runs */
    bool may, cut;
};
struct http_places {
    int most, request_s;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below, and of every place */
    pthread_cond_t over_changed;
    struct place *first;
    bool over;
};

/* ---- the thread that looks ---- */

static void cut(struct place *x)
{
    x->cut = true;
    shutdown(x->socket, SHUT_RDWR);
}

static int by_address_and_age(const void *a, const void *b)
{
    const struct place *x = *(struct place *const *)a, *y = *(struct place *const *)b;
    int order = memcmp(x->address, y->address, sizeof x->address);
    return order ? order : (x->since_s > y->since_s) - (x->since_s < y->since_s);
}

/* Those who have not shown that they may ask, of one address after the other, the oldest of each first. */
static struct place **strangers(const struct http_places *p, int *n)
{
    struct place **s = NULL;
    int room = 0;
    *n = 0;
    for (struct place *x = p->first; x; x = x->next) {
        if (x->may || x->cut) continue;
        GROW(s, *n, room, 1);
        s[(*n)++] = x;
    }
    if (*n) qsort(s, (size_t)*n, sizeof *s, by_address_and_age);
    return s;
}

/* Of the address with the most of those left in s the oldest, where it is old enough. s[i] NULL: is cut. */
static struct place **who_goes(struct place **s, int n, double now, int *of_address)
{
    struct place **goes = NULL;
    *of_address = 0;
    for (int i = 0, end; i < n; i = end) {
        int left = 0;
        struct place **oldest = NULL;
        for (end = i; end < n && (!s[end] || !s[i] || !memcmp(s[i]->address, s[end]->address, 16)); end++) {
            if (!s[end]) continue;
            if (!oldest) oldest = &s[end], i = end;
            left++;
        }
        if (oldest && left > *of_address && now - (*oldest)->since_s >= GRACE_S) goes = oldest, *of_address = left;
    }
    return goes;
}

static void look(struct http_places *p)
{
    double now = clock_now_s();
    int all = 0, n, left, of_address;
    for (struct place *x = p->first; x; x = x->next) {
        if (x->due_s > 0 && now > x->due_s && !x->cut) cut(x);
        all += !x->cut;
    }
    struct place **s = strangers(p, &n), **goes;
    left = n;
    while ((left > p->most / 4 || all >= p->most) && (goes = who_goes(s, n, now, &of_address))) {
        if (left <= p->most / 2 && of_address <= p->most / 4 + 1 && all < p->most) break;
        cut(*goes);
        *goes = NULL;
        left--, all--;
    }
    xfree(s);
}

static void *watch(void *ctx)
{
    struct http_places *p = ctx;
    pthread_mutex_lock(&p->lock);
    while (!p->over) {
        look(p);
        cond_wait_s(&p->over_changed, &p->lock, LOOK_S);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- what becomes of a connection ---- */

static void address_of(struct MHD_Connection *c, unsigned char out[16])
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = i ? i->client_addr : NULL;
    memset(out, 0, 16);
    if (a && a->sa_family == AF_INET) memcpy(out, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    if (a && a->sa_family == AF_INET6) /* one host has all that begin with the same 64 bits */
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 8);
}

void http_places_connection(void *places, struct MHD_Connection *c, void **of, enum MHD_ConnectionNotificationCode what)
{
    struct http_places *p = places;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        struct place *x = *of;
        if (!x) return;
        pthread_mutex_lock(&p->lock); /* the socket is closed after this call, so none is shut that is another's */
        *x->at = x->next;
        if (x->next) x->next->at = x->at;
        pthread_mutex_unlock(&p->lock);
        *of = NULL;
        xfree(x);
        return;
    }
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct place *x = xcalloc(1, sizeof *x);
    double now = clock_now_s();
    *x = (struct place){.of = p, .socket = i ? i->connect_fd : -1, .since_s = now, .due_s = now + p->request_s};
    address_of(c, x->address);
    pthread_mutex_lock(&p->lock);
    x->next = p->first;
    x->at = &p->first;
    if (x->next) x->next->at = &x->next;
    p->first = x;
    pthread_mutex_unlock(&p->lock);
    *of = x;
}

static struct place *place_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return i ? i->socket_context : NULL;
}

static void set_due(struct MHD_Connection *c, double in_s)
{
    struct place *x = place_of(c);
    if (!x) return;
    pthread_mutex_lock(&x->of->lock);
    x->due_s = in_s > 0 ? clock_now_s() + in_s : 0;
    pthread_mutex_unlock(&x->of->lock);
}

void http_places_may(struct MHD_Connection *c)
{
    struct place *x = place_of(c);
    if (!x) return;
    pthread_mutex_lock(&x->of->lock);
    x->may = true;
    pthread_mutex_unlock(&x->of->lock);
}

void http_places_asked(struct MHD_Connection *c) { set_due(c, 0); }

void http_places_answers(struct MHD_Connection *c, size_t bytes)
{
    const struct place *x = place_of(c);
    if (x) set_due(c, x->of->request_s + (double)bytes / LEAST_RATE);
}

void http_places_again(struct MHD_Connection *c)
{
    const struct place *x = place_of(c);
    if (x) set_due(c, x->of->request_s);
}

/* ---- create ---- */

unsigned http_places_limit(const struct http_places *p) { return (unsigned)p->most + SPARE; }

int http_places_open(struct http_places **out, int most, int request_s, struct err *e)
{
    struct http_places *p = xcalloc(1, sizeof *p);
    *out = NULL;
    p->most = most;
    p->request_s = request_s;
    pthread_mutex_init(&p->lock, NULL);
    cond_init(&p->over_changed);
    int failed = pthread_create(&p->thread, NULL, watch, p);
    if (!failed) {
        *out = p;
        return OK;
    }
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->over_changed);
    xfree(p);
    return err_errno(e, ERR_MEMORY, failed, "a thread of the server cannot be started");
}

void http_places_close(struct http_places *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->over = true;
    pthread_cond_signal(&p->over_changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    CHECK(!p->first, "a server is closed, and a connection has its place still");
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->over_changed);
    xfree(p);
}
