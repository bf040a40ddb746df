/* SPDX-License-Identifier: Apache-2.0 */
/* One rank after another on the null device; what is needed of it is copied before it goes. */
#include "explain/layout_books.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "layout/sequence.h"
#include "engine/stages.h"

void library_init(struct library *l, const struct config *c, int n_ranks)
{
    *l = (struct library){.c = c, .n = n_ranks, .n_workers = n_ranks - to_int(c->parallel.servers)};
}

void library_free(struct library *l)
{
    for (int i = 0; i < l->n_books; i++) {
        xfree(l->book[i]->p);
        xfree(l->book[i]->piece);
        xfree(l->book[i]);
    }
    xfree(l->book);
    xfree(l->on_pipe);
    *l = (struct library){0};
}

int64_t book_kept(const struct book *b, int param, int64_t *lo)
{
    *lo = b->state_whole ? 0 : b->piece[param].lo;
    return !b->keeps ? 0 : b->state_whole ? b->p[param].held : b->piece[param].n;
}

/* What the stages of every pipeline rank are made of, once. */
static void note_stages(struct library *l, const struct engine *g)
{
    if (l->on_pipe || !g->when) return;
    int *stage = xcalloc(to_size(g->when->n_stages), sizeof *stage);
    l->on_pipe = xcalloc(to_size(g->when->n_ranks), sizeof *l->on_pipe);
    for (int r = 0; r < g->when->n_ranks; r++)
        for (int i = 0, n = stages_on(g->when, r, stage); i < n; i++) {
            const struct model_stage *s = &g->parts[stage[i]];
            struct stage_kind *k = &l->on_pipe[r];
            k->embeds += s->embeds;
            k->heads += s->heads;
            for (int layer = s->first; layer < s->end; layer++)
                *(model_layer_is_moe(&g->cfg.model, layer) ? &k->moe : &k->dense) += 1;
        }
    xfree(stage);
}

static void count(struct book *b, const struct library *l)
{
    int64_t lo;
    for (int i = 0; i < l->n_params; i++) {
        b->held += b->computes ? (double)b->p[i].held : 0;
        b->kept += (double)book_kept(b, i, &lo);
    }
    if (b->server >= 0) return;
    config_part(l->c, b->part, &b->first_seq, &b->n_seqs);
    b->positions = context_rows(l->c->model.seq_len, to_int(l->c->parallel.cp), b->at[AXIS_CP], 1);
}

static struct book *copy_book(struct library *l, int rank, const struct engine *g, const struct ranks *r)
{
    struct book *b = xcalloc(1, sizeof *b);
    size_t n = (size_t)g->params.n;
    l->n_params = g->params.n;
    l->mesh = r->mesh;
    *b = (struct book){.rank = rank,
                       .part = r->part,
                       .server = r->server,
                       .param_whole = store_param_is_whole(&g->store),
                       .state_whole = store_state_is_whole(&g->store),
                       .computes = r->server < 0,
                       .keeps = r->server >= 0 || !r->n_servers};
    b->p = xmalloc(n * sizeof *b->p);
    b->piece = xmalloc(n * sizeof *b->piece);
    memcpy(b->p, g->params.p, n * sizeof *b->p);
    memcpy(b->piece, g->store.units.piece, n * sizeof *b->piece);
    for (int a = 0; a < AXIS_N; a++) b->at[a] = r->server < 0 ? mesh_coord(&r->mesh, (enum axis)a, rank) : 0;
    count(b, l);
    note_stages(l, g);
    GROW(l->book, l->n_books, l->room, 1);
    return l->book[l->n_books++] = b;
}

int library_get(struct library *l, int rank, const struct book **out, struct err *e)
{
    for (int i = 0; i < l->n_books; i++)
        if (l->book[i]->rank == rank) {
            *out = l->book[i];
            return OK;
        }
    struct site s;
    int rc = site_open(&s, &(struct site_config){.config = l->c, .kind = SITE_PAPER, .rank = rank, .n = l->n}, e);
    if (rc) return rc;
    *out = copy_book(l, rank, s.engine, &s.ranks);
    site_close(&s);
    return OK;
}

/* ---- who is alike -------------------------------------------------------------------------------------------- */

static bool near(double a, double b) { return fabs(a - b) <= 0.01 * fmax(fabs(a), fabs(b)); }

/* Ranks first + c * stride for c in [lo, hi]: marks where they change, looking between only where the ends differ, or
 * at `each`. */
static int halve(struct library *l, int first, int stride, int lo, int hi, bool each, bool *unlike, struct err *e)
{
    const struct book *a, *b;
    int rc = library_get(l, first + lo * stride, &a, e);
    if (!rc) rc = library_get(l, first + hi * stride, &b, e);
    if (rc) return rc;
    bool same = near(a->held, b->held) && near(a->kept, b->kept) && near((double)a->n_seqs, (double)b->n_seqs) &&
                near((double)a->positions, (double)b->positions);
    if ((same && !each) || lo == hi) return OK;
    if (hi == lo + 1) {
        unlike[hi] |= !same;
        return OK;
    }
    int mid = lo + (hi - lo) / 2;
    rc = halve(l, first, stride, lo, mid, each, unlike, e);
    return rc ? rc : halve(l, first, stride, mid, hi, each, unlike, e);
}

/* Ranks of ep take turns along the axes that they are folded from: so do the larger parts. */
static bool uneven_experts(const struct config *c)
{
    int64_t experts = c->model.moe.experts, ep = c->parallel.ep, etp = c->parallel.etp;
    return experts && ((ep > 1 && experts % ep) || (etp < c->parallel.tp && c->model.moe.ffn % etp));
}

int library_unlike(struct library *l, enum axis a, bool *unlike, struct err *e)
{
    const struct book *any;
    int rc = library_get(l, 0, &any, e), size = l->mesh.size[a], stride = l->mesh.stride[a];
    if (rc || size == 1) return rc;
    if (a == AXIS_PP) {
        for (int c = 1; c < size; c++) unlike[c] = memcmp(&l->on_pipe[c], &l->on_pipe[c - 1], sizeof *l->on_pipe) != 0;
        return OK;
    }
    bool each = a == AXIS_TP || uneven_experts(l->c);
    /* with the other coordinates all first and all last: embedding and head, the largest and the smallest part */
    rc = halve(l, 0, stride, 0, size - 1, each, unlike, e);
    return rc ? rc : halve(l, l->n_workers - 1 - (size - 1) * stride, stride, 0, size - 1, each, unlike, e);
}

int library_unlike_servers(struct library *l, bool *unlike, struct err *e)
{
    return halve(l, l->n_workers, 1, 0, l->n - l->n_workers - 1, false, unlike, e);
}
