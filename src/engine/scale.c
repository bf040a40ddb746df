/* SPDX-License-Identifier: Apache-2.0 */
/* Halved and doubled only, so that scaling never rounds a gradient that fp16 can hold. */
#include "engine/scale.h"

#include <math.h>

void loss_scale_init(struct loss_scale *s, const struct loss_scale_config *c)
{
    *s = (struct loss_scale){.now = c->first > 0 ? c->first : 1};
}

bool loss_scale_after(struct loss_scale *s, const struct loss_scale_config *c, bool finite)
{
    if (finite) {
        bool grows = ++s->good >= c->grow_every && s->now < LOSS_SCALE_MOST;
        if (grows) s->now *= 2;
        if (grows) s->good = 0;
        return true;
    }
    s->good = 0;
    s->skipped++;
    if (s->now / 2 < c->least) return false;
    s->now /= 2;
    return true;
}

void loss_scale_put(const struct loss_scale *s, struct json_out *o)
{
    json_begin_object(o, "loss_scale");
    json_put_real(o, "now", s->now);
    json_put_int(o, "good", s->good);
    json_put_int(o, "skipped", s->skipped);
    json_end_object(o);
}

int loss_scale_take(struct loss_scale *s, const struct json *extra)
{
    const struct json *x = extra ? json_get(extra, "loss_scale") : NULL;
    struct loss_scale was = {json_real(json_get(x, "now"), 0), json_int(json_get(x, "good"), -1),
                             json_int(json_get(x, "skipped"), -1)};
    int power;
    bool good =
        was.now > 0 && was.now <= LOSS_SCALE_MOST && frexp(was.now, &power) == 0.5 && was.good >= 0 && was.skipped >= 0;
    if (good) *s = was;
    return good ? 0 : -1;
}
