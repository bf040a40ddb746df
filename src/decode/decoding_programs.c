/* SPDX-License-Identifier: Apache-2.0 */
/* The model as programs: recorded for 1, 2, 4, ... rows, of which 1, 2, 4, ... are wanted, each at its first use and
 * kept. */
#include "decode/decoding_impl.h"

static int size_up(int64_t n) /* the power of 2 */
{
    int k = 0;
    while ((int64_t)1 << k < n) k++;
    return k;
}

int64_t decoding_filled(int64_t rows) { return (int64_t)1 << size_up(rows); }

static int record(struct decoding *d, struct sized *z, int64_t rows, int64_t wanted, struct err *e)
{
    z->tape = tape_new();
    model_record_decode(z->tape, &d->model, &d->params, &d->par,
                        &(struct decode_shape){.dtype = d->dtype,
                                               .tokens = rows,
                                               .wanted = wanted,
                                               .stage = &d->part,
                                               .cache_rows = d->cache.page * d->cache.pages,
                                               .sequences = d->cache.sequences,
                                               .most = d->cache.most,
                                               .pictures = d->pictures.rows});
    int rc =
        tape_lower(&z->program, z->tape, &d->kernels, (struct lower_options){.collective_scratch = par_run_scratch}, e);
    if (rc) {
        tape_free(z->tape);
        *z = (struct sized){0};
    }
    return rc;
}

int decoding_program(struct decoding *d, int64_t rows, int64_t wanted, struct program **out, struct err *e)
{
    struct sized *z = &d->sized[size_up(rows)][size_up(wanted)];
    int rc = z->program ? OK : record(d, z, decoding_filled(rows), decoding_filled(wanted), e);
    if (rc) return rc;
    *out = z->program;
    rc = decoding_grow(d, &d->scratch, MEM_SCRATCH, z->program->bytes[HOME_SCRATCH], e);
    return rc ? rc : decoding_logits_room(d, decoding_filled(wanted), e);
}

int decoding_program_of_all(struct decoding *d, int64_t rows, int64_t wanted, struct program **out, struct err *e)
{
    struct sized *z = &d->sized[size_up(rows)][size_up(wanted)];
    int rc = decoding_program(d, rows, wanted, out, e);
    if (!d->ranks || z->agreed) return rc;
    rc = comm_agree(d->ranks->ranks.model, rc, e);
    z->agreed = !rc;
    return rc;
}

void decoding_programs_free(struct decoding *d)
{
    for (int i = 0; i < SIZES * SIZES; i++) {
        program_free(d->sized[i / SIZES][i % SIZES].program);
        tape_free(d->sized[i / SIZES][i % SIZES].tape);
    }
}
