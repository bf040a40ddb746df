/* SPDX-License-Identifier: Apache-2.0 */
/* What runs in rounds: the instructions of a wave are one loop of the program (program/loops.c). */
#include "tape/lower_impl.h"

void lower_at_node(struct lower *l, int index)
{
    const struct node *d = index >= 0 ? &l->t->nodes[index] : NULL;
    int wave = d ? d->wave : -1;
    if (wave != l->wave) l->loop = wave >= 0 ? ++l->n_loops : 0;
    l->wave = wave;
    l->aside = d && d->aside;
}

bool lower_in_wave(const struct lower *l, int index)
{
    return l->t->nodes[index].wave >= 0 && !l->t->nodes[index].aside;
}

/* ---- where rounds may be cut ---- */
static struct depth_rule rule_of(const struct program *p, int wave)
{
    struct depth_rule rule = {0, 0};
    bool found = false;
    for (int i = 0; i < p->begin[PHASE_N]; i++) {
        const struct instr *x = &p->code[i];
        if ((x->op != OP_GROUPED && x->op != OP_GROUPED_SCALED) || x->kphase != KERNEL_BWD_W ||
            p->tape->nodes[x->node].wave != wave)
            continue;
        struct kernel_call c;
        instr_call(x, &c);
        struct depth_rule one = x->kernel->depth ? x->kernel->depth(&c) : (struct depth_rule){0, 0};
        CHECK(!found || (one.most == rule.most && one.step == rule.step),
              "products of one expert cut unlike each other");
        rule = one;
        found = true;
    }
    return rule;
}

/* Of a product whose scales follow from all rows that an expert has of one microbatch: how many ranks these are from.
 */
static int together_of(const struct program *p, int wave)
{
    int together = 0;
    for (int i = 0; i < p->begin[PHASE_N]; i++) {
        const struct instr *x = &p->code[i];
        if (x->op != OP_GROUPED_SCALED || p->tape->nodes[x->node].wave != wave) continue;
        const struct parts_attrs *parts = &at_grouped_scaled(&x->at)->parts;
        if (parts->sources) together = parts->together ? parts->together : 1;
    }
    return together;
}

void lower_depth_rules(struct program *p)
{
    for (int w = 0; w < p->tape->n_waves; w++) {
        const int together = together_of(p, w);
        struct depth_rule rule = together ? (struct depth_rule){0, 0} : rule_of(p, w);
        for (int i = 0; i < p->begin[PHASE_N]; i++) {
            struct instr *x = &p->code[i];
            if ((x->op != OP_DISPATCH && x->op != OP_COMBINE) || p->tape->nodes[x->node].wave != w) continue;
            edit_dispatch(&x->at)->slice = rule.most;
            edit_dispatch(&x->at)->slice_step = rule.step;
            edit_dispatch(&x->at)->together = together;
        }
    }
}
