/* SPDX-License-Identifier: Apache-2.0 */
/* convert.c: copy and convert.
 *
 * Boxes are walked in runs that are consecutive on both sides (layout/region.h), so a whole tensor or a band of
 * rows is one run. Equal types are memcpy; bf16 and fp32 both ways, which every checkpoint needs, are loops the
 * compiler vectorises; the rest goes through double, a chunk that stays in L1 at a time: two loops per type instead
 * of one per pair. Values come from files and have no alignment, hence memcpy for each.
 */
#include "checkpoint/convert.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define CHUNK 512

bool convertible(enum dtype from, enum dtype to)
{
    return from == to || (dtype_info(from)->is_float && dtype_info(to)->is_float);
}

/* p[0 .. n) of type t as doubles. One loop per type, so that each is a straight one. */
static void load(double *x, const unsigned char *p, enum dtype t, int64_t n)
{
    uint16_t h;
    float f;
    switch (t) {
    case DT_F64: memcpy(x, p, to_size(n) * 8); break;
    case DT_F32:
        for (int64_t i = 0; i < n; i++) memcpy(&f, p + 4 * i, 4), x[i] = f;
        break;
    case DT_BF16:
        for (int64_t i = 0; i < n; i++) memcpy(&h, p + 2 * i, 2), x[i] = bf16_to_f32(h);
        break;
    case DT_F16:
        for (int64_t i = 0; i < n; i++) memcpy(&h, p + 2 * i, 2), x[i] = f16_to_f32(h);
        break;
    default: CHECK(0, "no conversion from %s", dtype_name(t));
    }
}

static void store(unsigned char *p, enum dtype t, const double *x, int64_t n)
{
    uint16_t h;
    float f;
    switch (t) {
    case DT_F64: memcpy(p, x, to_size(n) * 8); break;
    case DT_F32:
        for (int64_t i = 0; i < n; i++) f = (float)x[i], memcpy(p + 4 * i, &f, 4);
        break;
    case DT_BF16:
        for (int64_t i = 0; i < n; i++) h = bf16_from_f32((float)x[i]), memcpy(p + 2 * i, &h, 2);
        break;
    case DT_F16:
        for (int64_t i = 0; i < n; i++) h = f16_from_f32((float)x[i]), memcpy(p + 2 * i, &h, 2);
        break;
    default: CHECK(0, "no conversion to %s", dtype_name(t));
    }
}

static void widen_bf16(unsigned char *dst, const unsigned char *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        bf16 h;
        memcpy(&h, src + 2 * i, 2);
        float f = bf16_to_f32(h);
        memcpy(dst + 4 * i, &f, 4);
    }
}

static void narrow_bf16(unsigned char *dst, const unsigned char *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float f;
        memcpy(&f, src + 4 * i, 4);
        bf16 h = bf16_from_f32(f);
        memcpy(dst + 2 * i, &h, 2);
    }
}

void convert(void *dst, enum dtype dt, const void *src, enum dtype st, int64_t n)
{
    CHECK(convertible(st, dt), "no conversion from %s to %s", dtype_name(st), dtype_name(dt));
    unsigned char *d = dst;
    const unsigned char *s = src;
    size_t db = dtype_bytes(dt), sb = dtype_bytes(st);
    if (n <= 0) return;
    if (dt == st) memcpy(d, s, to_size(n) * db);
    else if (dt == DT_F32 && st == DT_BF16) widen_bf16(d, s, n);
    else if (dt == DT_BF16 && st == DT_F32) narrow_bf16(d, s, n);
    else
        for (int64_t at = 0; at < n; at += CHUNK) {
            double x[CHUNK];
            int64_t k = n - at < CHUNK ? n - at : CHUNK;
            load(x, s + to_size(at) * sb, st, k);
            store(d + to_size(at) * db, dt, x, k);
        }
}

void convert_box(void *dst, enum dtype dt, const struct region *to, const void *src, enum dtype st,
                 const struct region *from, const struct region *part)
{
    struct region_run run;
    for (bool more = region_run_first(&run, part, from, to); more; more = region_run_next(&run))
        convert((unsigned char *)dst + to_size(run.b) * dtype_bytes(dt), dt,
                (const unsigned char *)src + to_size(run.a) * dtype_bytes(st), st, run.n);
}

#define TILE 32

void convert_transposed(void *dst, enum dtype dt, int64_t dst_stride, const void *src, enum dtype st,
                        int64_t src_stride, int64_t rows, int64_t cols)
{
    unsigned char tile[TILE * TILE * 8]; /* converted, still in the source's order: both sides stay in cache */
    size_t db = dtype_bytes(dt), sb = dtype_bytes(st);
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)
        for (int64_t c0 = 0; c0 < cols; c0 += TILE) {
            int64_t nr = rows - r0 < TILE ? rows - r0 : TILE, nc = cols - c0 < TILE ? cols - c0 : TILE;
            for (int64_t r = 0; r < nr; r++)
                convert(tile + to_size(r * nc) * db, dt,
                        (const unsigned char *)src + to_size((r0 + r) * src_stride + c0) * sb, st, nc);
            for (int64_t c = 0; c < nc; c++)
                for (int64_t r = 0; r < nr; r++)
                    memcpy((unsigned char *)dst + to_size((c0 + c) * dst_stride + r0 + r) * db,
                           tile + to_size(r * nc + c) * db, db);
        }
}
