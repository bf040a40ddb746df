/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of texts that are written on: the tower runs once, and every step takes its rows from memory. */
#include <string.h>

#include "base/mem.h"
#include "decode/decoding_impl.h"

/* Records the tower for n pictures, runs it on d->pictures.stream's behalf. */
static int run_tower(struct decoding *d, const float *pixels, int64_t n, struct err *e)
{
    struct model_config m = d->model;
    struct tape *tape = tape_new();
    struct program *program = NULL;
    struct buffer in = {0}, act = {0}, scratch = {0};
    struct step_info info = {0};
    int n_slots = slot_recipe(d->params.n, to_int(m.layers)) + 2;
    m.vision.images = n;
    model_record_pictures(tape, &m, &d->params, &d->par, d->dtype);
    int rc = tape_lower(&program, tape, &d->kernels, (struct lower_options){.training = false}, e);
    if (!rc) rc = buffer_new(&in, d->dev, MEM_DATA, to_size(model_pixels(&m)) * sizeof *pixels, e);
    if (!rc) rc = buffer_new(&act, d->dev, MEM_ACTIVATION, program->bytes[HOME_ACT], e);
    if (!rc) rc = buffer_new(&scratch, d->dev, MEM_SCRATCH, program->bytes[HOME_SCRATCH], e);
    if (!rc) {
        void **slot = xcalloc(to_size(n_slots), sizeof *slot);
        memcpy(slot, d->slot, to_size(slot_cache(d->params.n, 0)) * sizeof *slot);
        slot[SLOT_PIXELS] = in.p;
        slot[SLOT_LOGITS] = d->pictures.stream.p;
        device_from_host(d->stream, &in, 0, pixels, in.bytes);
        program_run(program, PHASE_F,
                    &(struct program_args){.stream = d->stream,
                                           .step = &info,
                                           .slot = slot,
                                           .act = act.p,
                                           .scratch = scratch.p});
        stream_sync(d->stream);
        xfree(slot);
    }
    program_free(program);
    tape_free(tape);
    buffer_free(&in);
    buffer_free(&act);
    buffer_free(&scratch);
    return rc;
}

int decoding_pictures(struct decoding *d, const float *pixels, int64_t n, struct err *e)
{
    bool begun = d->pictures.rows > 0;
    for (int i = 0; i < SIZES * SIZES; i++) begun |= d->sized[i / SIZES][i % SIZES].program != NULL;
    if (!model_looks(&d->model))
        return err_set(e, ERR_REQUEST, "this model sees no pictures (model.family: llava does)");
    if (d->ranks) return err_set(e, ERR_REQUEST, "texts with pictures are written on by one rank");
    if (begun) return err_set(e, ERR_REQUEST, "pictures come before the first text");
    int64_t rows = n * vision_places(&d->model.vision);
    int rc =
        buffer_new(&d->pictures.stream, d->dev, MEM_DATA, to_size(rows * d->model.hidden) * dtype_bytes(d->dtype), e);
    if (!rc) rc = buffer_new(&d->pictures.at, d->dev, MEM_DATA, to_size(d->room_rows) * sizeof(int32_t), e);
    if (!rc) rc = run_tower(d, pixels, n, e);
    if (rc) return rc;
    d->pictures.n = n;
    d->pictures.rows = rows;
    d->pictures.host = xcalloc(to_size(d->room_rows), sizeof(int32_t));
    d->slot[SLOT_PIXELS] = d->pictures.stream.p;
    d->slot[SLOT_PATCHES] = d->pictures.at.p;
    return OK;
}

/* The i-th token of patches in a text; -1 behind the last picture. */
static int32_t row_of(const struct decoding *d, int64_t i)
{
    const struct vision_config *v = &d->model.vision;
    int64_t patches = vision_patches(v);
    return i / patches < d->pictures.n ? (int32_t)(i / patches * vision_places(v) + v->class_place + i % patches) : -1;
}

void decoding_lay_patches(struct decoding *d, const struct decoding_part *part, int n_parts)
{
    int64_t at = 0, token = d->model.vision.token;
    for (int64_t i = 0; i < d->room_rows; i++) d->pictures.host[i] = -1;
    for (int p = 0; p < n_parts; p++) {
        const struct sequence *q = &d->seq[part[p].sequence];
        int64_t seen = 0;
        for (int64_t i = 0; i < q->fed; i++) seen += q->ids[i] == token;
        for (int64_t i = 0; i < part[p].n; i++, at++)
            if (part[p].ids[i] == token) d->pictures.host[at] = row_of(d, seen++);
    }
    device_from_host(d->stream, &d->pictures.at, 0, d->pictures.host, d->pictures.at.bytes);
}

void decoding_pictures_fini(struct decoding *d)
{
    buffer_free(&d->pictures.stream);
    buffer_free(&d->pictures.at);
    xfree(d->pictures.host);
}
