/* SPDX-License-Identifier: Apache-2.0 */
/* fold_portable.c: fold.h for any processor. */
#include "layout/dtype.h"

#define VBYTES 16
#define FOLD_TABLE fold_portable
#define FOLD_NAME "portable"
typedef float f16_vf __attribute__((vector_size(VBYTES)));
static f16_vf f16_load(const void *p)
{
    uint16_t h[VBYTES / 4];
    f16_vf v;
    memcpy(h, p, sizeof h);
    for (int i = 0; i < VBYTES / 4; i++) v[i] = f16_to_f32(h[i]);
    return v;
}
static void f16_store(void *p, f16_vf v)
{
    uint16_t h[VBYTES / 4];
    for (int i = 0; i < VBYTES / 4; i++) h[i] = f16_from_f32(v[i]);
    memcpy(p, h, sizeof h);
}
#include "comm/fold_body.h"
