/* SPDX-License-Identifier: Apache-2.0 */
/* A program as text: what `tutti explain CONFIG tape` shows behind the tape. */
#include <stdio.h>

#include "program/program.h"

static void print_operand(const struct program *p, const struct operand *o, struct str *out)
{
    if (o->place == OPERAND_SLOT) str_printf(out, "slot%d", o->slot);
    else if (o->place >= 0 && p->places[o->place].slot >= 0) str_printf(out, "slot%d", p->places[o->place].slot);
    else if (o->place >= 0)
        str_printf(out, "%s@%zu", home_name(p->places[o->place].home), p->places[o->place].offset + o->offset);
}

static void print_operands(const struct program *p, const struct operand *o, int n, const char *label, struct str *out)
{
    bool any = false;
    for (int k = 0; k < n; k++) {
        if (o[k].place == OPERAND_NONE) continue;
        str_puts(out, any ? "," : label);
        any = true;
        print_operand(p, &o[k], out);
    }
}

void program_print(const struct program *p, struct str *out)
{
    char flops[32], bytes[32];
    static const char *const phase[PHASE_N] = {"F forward", "B backward (inputs)", "W backward (weights)"};
    static const char *const kphase[KERNEL_N_PHASES] = {"fwd", "bwd_in", "bwd_w"};
    for (int ph = 0; ph < PHASE_N; ph++) {
        if (p->begin[ph] == p->begin[ph + 1]) continue;
        str_printf(out, "%s: %d instructions, %s\n", phase[ph], p->begin[ph + 1] - p->begin[ph],
                   str_flops(flops, p->flops[ph]));
        for (int k = p->begin[ph]; k < p->begin[ph + 1]; k++) {
            const struct instr *i = &p->code[k];
            char name[96];
            int n = snprintf(name, sizeof name, "%s", i->what);
            if (i->run) snprintf(name + n, sizeof name - (size_t)n, " %d/%d", i->piece + 1, i->pieces);
            str_printf(out, "%5d %-10s %-6s%s %-28s %10s %9s ", k, op_row(i->op)->name, kphase[i->kphase],
                       i->again              ? "*"
                       : i->refill           ? "+"
                       : i->loop && !i->once ? "o"
                                             : " ",
                       name, str_flops(flops, i->flops), str_bytes(bytes, instr_bytes(i)));
            print_operands(p, i->in, i->n_in, " in ", out);
            print_operands(p, i->out, i->n_out, " out ", out);
            print_operands(p, i->dout, i->n_out, " dout ", out);
            print_operands(p, i->din, i->n_in, " din ", out);
            if (i->when == WHEN_FALLEN) str_puts(out, " when its layer falls back");
            if (i->until > k + 1) str_printf(out, " travels until %d", i->until);
            str_putc(out, '\n');
        }
    }
    str_printf(out, "bytes per microbatch: act %zu, wgrad %zu; shared scratch %zu", p->bytes[HOME_ACT],
               p->bytes[HOME_WGRAD], p->bytes[HOME_SCRATCH]);
    if (p->bytes[HOME_AWAY]) str_printf(out, "; away %zu", p->bytes[HOME_AWAY]);
    str_putc(out, '\n');
}
