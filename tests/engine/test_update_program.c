/* SPDX-License-Identifier: Apache-2.0 */
/* suite: touches */
/* The update as a program (optim/update_program.h): the same bits as by calls; every row counts, so that one that is
 * left out, or one that changes what it reads and is run twice, leaves other weights, moments or averages, and so do
 * two neighbours that change places, where one writes what the other has, and nowhere else; rows stand over the store's
 * arrays and the step's words and nothing else, and print as what they are. */
#include "toy.h"

#include "base/hash.h"

enum { STEPS = 3 };

/* What a run leaves: all arrays of its store. */
static uint64_t left_by(const struct toy *t)
{
    struct hash64 h;
    hash64_init(&h);
    stream_sync(t->g->stream);
    for (int k = 0; k < t->g->store.n_arrays; k++) {
        const struct array *a = &t->g->store.array[k];
        if (array_is_here(a) && k != STORE_GRAD) hash64_add(&h, a->buf.p, a->buf.bytes);
    }
    return hash64_value(&h);
}

enum mutation { NONE, BY_CALLS, LEFT_OUT, TWICE, SWAPPED, MUTATIONS };

static bool overlap(const struct operand *a, const struct operand *b)
{
    if (a->place != OPERAND_SLOT || b->place != OPERAND_SLOT || a->slot != b->slot) return false;
    size_t n = (size_t)view_rows(&a->view) * (size_t)view_cols(&a->view) * dtype_bytes(a->view.dtype),
           m = (size_t)view_rows(&b->view) * (size_t)view_cols(&b->view) * dtype_bytes(b->view.dtype);
    return a->offset < b->offset + m && b->offset < a->offset + n;
}

/* Whether x writes what y reads or writes. */
static bool writes_of(const struct instr *x, const struct instr *y)
{
    bool any = false;
    for (int i = 0; i < x->n_in + x->n_out; i++) {
        bool out = i >= x->n_in;
        const struct operand *w = out ? &x->out[i - x->n_in] : &x->in[i];
        if (!out && !(op_row(x->op)->changes_in >> i & 1)) continue;
        for (int k = 0; k < y->n_in; k++) any |= overlap(w, &y->in[k]);
        for (int k = 0; k < y->n_out; k++) any |= overlap(w, &y->out[k]);
    }
    return any;
}

/* Of the last SWAPPED: whether places matter. */
static bool meet;

/* Row `row` of all units', counted on; *n: how many there are. False: it is not one that may not be so mutated. */
static bool mutate(struct engine *g, enum mutation m, int row, int *n)
{
    *n = 0;
    bool did = m == NONE;
    for (int u = 0; u < g->store.units.n; u++) {
        struct program *p = g->update[u];
        int rows = p->begin[PHASE_N], here = row - *n;
        *n += rows;
        if (m < LEFT_OUT || here < 0 || here >= rows) continue;
        if (m == SWAPPED) {
            if (here + 1 == rows) return false;
            const struct instr first = p->code[here];
            meet = writes_of(&first, &p->code[here + 1]) || writes_of(&p->code[here + 1], &first);
            p->code[here] = p->code[here + 1];
            p->code[here + 1] = first;
            p->code[here].until = here + 1;
            p->code[here + 1].until = here + 2;
            did = true;
            continue;
        }
        if (m == TWICE && !op_row(p->code[here].op)->changes_in) return false;
        int now = m == TWICE ? rows + 1 : rows - 1;
        struct instr *code = xcalloc((size_t)rows + 1, sizeof *code);
        memcpy(code, p->code, (size_t)(here + (m == TWICE)) * sizeof *code);
        memcpy(code + here + (m == TWICE), p->code + here + (m == LEFT_OUT),
               (size_t)(rows - here - (m == LEFT_OUT)) * sizeof *code);
        xfree(p->code);
        p->code = code;
        for (int ph = PHASE_F + 1; ph <= PHASE_N; ph++) p->begin[ph] = now;
        did = true;
    }
    if (m == BY_CALLS) {
        for (int u = 0; u < g->store.units.n; u++) program_free(g->update[u]);
        xfree(g->update);
        g->update = NULL;
    }
    return did || m == BY_CALLS;
}

/* 0: the mutation is none. */
static uint64_t run(const struct engine_config *c, enum mutation m, int row, int *n)
{
    struct toy t;
    struct engine_report r;
    uint64_t left = 0;
    toy_open(&t, c);
    if (mutate(t.g, m, row, n)) {
        for (int s = 0; s < STEPS; s++) assert_true(engine_step(t.g, &t.batch, s, 1e-2, &r));
        left = left_by(&t);
    }
    toy_close(&t);
    return left;
}

static void vary(struct engine_config *c, int v)
{
    switch (v) {
    case 0: return;
    case 1: c->optim.ema = 0.5; return;
    case 2: c->optim.moments = MOMENTS_BF16; return;
    case 3:
        c->optim.moments = MOMENTS_8BIT;
        c->optim.block = 16;
        return;
    case 4: c->grad_dtype = DT_BF16; return;
    case 5:
        c->dtype = DT_BF16;
        c->no_master = true;
        return;
    case 6:
        c->optim.kind = OPTIM_SGD;
        c->optim.momentum = 0.9;
        return;
    case 7: c->optim.kind = OPTIM_LION; return;
    default: c->dtype = DT_BF16;
    }
}

static void test_every_row_counts(void **state)
{
    (void)state;
    int tried[MUTATIONS] = {0}, meets = 0;
    static const char *const how[] = {[LEFT_OUT] = "left out", [TWICE] = "twice", [SWAPPED] = "before its time"};
    for (int v = 0; v < 9; v++) {
        struct engine_config c = toy_config(MODEL_LLAMA, DT_F32);
        int n, rows;
        vary(&c, v);
        const uint64_t want = run(&c, NONE, 0, &rows);
        assert_true(rows > 0 && run(&c, BY_CALLS, 0, &n) == want);
        for (int m = LEFT_OUT; m < MUTATIONS; m++)
            for (int row = 0; row < rows; row++) {
                uint64_t left = run(&c, (enum mutation)m, row, &n);
                bool same = m == SWAPPED && left && !meet;
                if (!same && left == want)
                    fail_msg("variant %d: row %d of %d %s, and nothing differs", v, row, rows, how[m]);
                if (same && left != want) fail_msg("variant %d: rows %d and %d share nothing", v, row, row + 1);
                tried[m] += left != 0;
                meets += m == SWAPPED && left && meet;
            }
    }
    print_message("  %d rows left out, %d twice, %d neighbours swapped, of which %d meet\n", tried[LEFT_OUT],
                  tried[TWICE], tried[SWAPPED], meets);
    assert_true(tried[LEFT_OUT] > 30 && tried[TWICE] > 20 && tried[SWAPPED] > 30 && meets > 10);
}

static void test_rows_print(void **state)
{
    (void)state;
    struct engine_config c = toy_config(MODEL_LLAMA, DT_F32);
    struct toy t;
    struct str text = {0};
    c.optim.ema = 0.5;
    toy_open(&t, &c);
    for (int u = 0; u < t.g->store.units.n; u++) {
        const struct program *p = t.g->update[u];
        program_check(p);
        program_print(p, &text);
        for (int k = 0; k < p->begin[PHASE_N]; k++) {
            const struct instr *i = &p->code[k];
            assert_true(i->kernel && i->family && i->op >= OP_FIRST_ARRAY);
            for (int j = 0; j < i->n_in; j++)
                assert_true(i->in[j].place != OPERAND_SLOT || t.g->update_slot[i->in[j].slot]);
        }
    }
    assert_contains(str_text(&text), "adamw");
    assert_contains(str_text(&text), "average");
    assert_contains(str_text(&text), "slot0");
    str_free(&text);
    toy_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_counts),
        cmocka_unit_test(test_rows_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
