/* SPDX-License-Identifier: Apache-2.0 */
/* Training's forward pass on a decoding's weights, as a first stage of a pipeline has it: embedding and layers, with
 * all that backward needs. What feeding a prompt is measured against. */
#include "decode/decoding_impl.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { RUNS = 4 };

struct forward {
    struct tape *tape;
    struct program *program;
    struct buffer act, scratch, out, data;
};

static void forward_fini(struct forward *f)
{
    program_free(f->program);
    tape_free(f->tape);
    buffer_free(&f->act);
    buffer_free(&f->scratch);
    buffer_free(&f->out);
    buffer_free(&f->data);
}

static int forward_init(struct forward *f, struct decoding *d, int64_t n, struct err *e)
{
    const struct model_stage stage = {0, to_int(d->model.layers), true, false};
    struct model_shape shape = {.mode = MODEL_TRAIN, .dtype = d->dtype, .batch = 1, .seq = n, .stage = &stage};
    struct model_config causal = d->model; /* there is no batch that says what is a prompt */
    causal.attn.prefix = false;
    *f = (struct forward){.tape = tape_new()};
    model_record(f->tape, &causal, &d->params, &d->par, &shape);
    int rc = tape_lower(&f->program, f->tape, &d->kernels, (struct lower_options){.training = true}, e);
    if (!rc) rc = buffer_new(&f->act, d->dev, MEM_ACTIVATION, f->program->bytes[HOME_ACT], e);
    if (!rc) rc = buffer_new(&f->scratch, d->dev, MEM_SCRATCH, f->program->bytes[HOME_SCRATCH], e);
    if (!rc) rc = buffer_new(&f->data, d->dev, MEM_DATA, to_size(3 * n) * sizeof(int32_t), e);
    if (!rc) rc = buffer_new(&f->out, d->dev, MEM_COMM, to_size(n * d->model.hidden) * dtype_bytes(d->dtype), e);
    return rc;
}

int decoding_forward_s(struct decoding *d, int64_t n, double *s, struct err *e)
{
    struct forward f;
    CHECK(!d->ranks && !store_packs(&d->store), "measured on one rank, with whole weights");
    if (d->model.moe.experts) return err_set(e, ERR_REQUEST, "model.moe.experts: this measures models without experts");
    if (model_looks(&d->model))
        return err_set(e, ERR_REQUEST, "model.family: llava: this measures models without pictures in their texts");
    if (decoding_reads(d)) return err_set(e, ERR_REQUEST, "model.family: t5: this measures models of one stream");
    int rc = forward_init(&f, d, n, e), n_slots = slot_recipe(d->params.n, to_int(d->model.layers)) + 2;
    void **slot = xcalloc(to_size(n_slots), sizeof *slot);
    int32_t *host = xcalloc(to_size(3 * n), sizeof *host), *data = f.data.p;
    struct step_info info = {0};
    const bool one = team_size(d->stream->team) == 1;
    for (int64_t i = 0; i < n; i++) {
        host[i] = (int32_t)((i * 7919) % d->model.vocab);
        host[n + i] = (int32_t)i;
    }
    *s = 1e30;
    if (!rc) {
        memcpy(slot, d->slot, to_size(slot_cache(d->params.n, 0)) * sizeof *slot);
        slot[SLOT_TOKENS] = data;
        slot[SLOT_POSITIONS] = data + n;
        slot[SLOT_DOCS] = slot[SLOT_INDEX] = data + 2 * n;
        slot[SLOT_TARGETS] = data;
        slot[SLOT_STAGE_OUT] = f.out.p;
        device_from_host(d->stream, &f.data, 0, host, f.data.bytes);
        stream_sync(d->stream);
    }
    for (int i = 0; !rc && i < RUNS; i++) {
        double from = one ? clock_thread_s() : clock_now_s(), took;
        program_run(f.program, PHASE_F,
                    &(struct program_args){.stream = d->stream,
                                           .step = &info,
                                           .slot = slot,
                                           .act = f.act.p,
                                           .scratch = f.scratch.p});
        stream_sync(d->stream);
        took = (one ? clock_thread_s() : clock_now_s()) - from;
        if (i && took < *s) *s = took;
    }
    xfree(slot);
    xfree(host);
    forward_fini(&f);
    return rc;
}
