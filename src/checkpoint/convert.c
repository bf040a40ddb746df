/* convert.c: copy and convert.
 *
 * Boxes are walked in runs that are consecutive on both sides (layout/region.h), so a whole tensor or a band of
 * rows is one run. Equal types are memcpy; bf16 and fp32 both ways, which every checkpoint needs, are loops the
 * compiler vectorises; the rest goes through double, element by element. Values come from files and have no
 * alignment, hence memcpy for each.
 */
#include "checkpoint/convert.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"

bool convertible(enum dtype from, enum dtype to)
{
    return from == to || (dtype_info(from)->is_float && dtype_info(to)->is_float);
}

static double load_element(const unsigned char *p, enum dtype t)
{
    union { float f; double d; uint16_t h; } v;
    memcpy(&v, p, dtype_bytes(t));
    switch (t) {
    case DT_F32: return v.f;
    case DT_F64: return v.d;
    case DT_BF16: return bf16_to_f32(v.h);
    case DT_F16: return f16_to_f32(v.h);
    default: CHECK(0, "no conversion from %s", dtype_name(t));
    }
}

static void store_element(unsigned char *p, enum dtype t, double x)
{
    union { float f; double d; uint16_t h; } v;
    switch (t) {
    case DT_F32: v.f = (float)x; break;
    case DT_F64: v.d = x; break;
    case DT_BF16: v.h = bf16_from_f32((float)x); break;
    case DT_F16: v.h = f16_from_f32((float)x); break;
    default: CHECK(0, "no conversion to %s", dtype_name(t));
    }
    memcpy(p, &v, dtype_bytes(t));
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
    if (dt == st)
        memcpy(d, s, to_size(n) * db);
    else if (dt == DT_F32 && st == DT_BF16)
        widen_bf16(d, s, n);
    else if (dt == DT_BF16 && st == DT_F32)
        narrow_bf16(d, s, n);
    else
        for (int64_t i = 0; i < n; i++) store_element(d + to_size(i) * db, dt, load_element(s + to_size(i) * sb, st));
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
