/* SPDX-License-Identifier: Apache-2.0 */
/* golden.h: reads the golden files (tests/golden/README.md) in tests.
 *
 * A golden file is a safetensors file with F32 and I32 arrays only: 8 bytes of header length (little endian), a
 * JSON header {name: {dtype, shape, data_offsets}}, then the bytes. The reader is separate from src/checkpoint on
 * purpose: a mistake there cannot hide itself here. Arrays are borrowed from the file's bytes and stay valid until
 * golden_close. Includes: base only. Order: Local.
 */
#ifndef TUTTI_TESTS_GOLDEN_H
#define TUTTI_TESTS_GOLDEN_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"

struct golden {
    char *bytes;
    size_t n;
    struct json *header;
    const unsigned char *data; /* what data_offsets count from */
    int64_t data_bytes;
};

enum { GOLDEN_MAX_DIMS = 4 };

struct golden_array {
    const void *p; /* 4-byte aligned; float or int32_t */
    bool is_float;
    int n_dims;
    int64_t dim[GOLDEN_MAX_DIMS];
    int64_t n; /* elements */
};

static inline void golden_close(struct golden *g)
{
    if (g->header) json_free(g->header);
    xfree(g->bytes);
    *g = (struct golden){0};
}

static inline int golden_open(struct golden *g, const char *path, struct err *e)
{
    *g = (struct golden){0};
    int rc = fs_read_all(path, (size_t)1 << 30, &g->bytes, &g->n, e);
    if (rc != OK) return rc;
    uint64_t n = 0;
    for (size_t i = 0; i < 8 && i < g->n; i++) n |= (uint64_t)(unsigned char)g->bytes[i] << (8 * i);
    if (g->n < 8 || n > g->n - 8) {
        golden_close(g);
        return err_set(e, ERR_CORRUPT, "%s: the header does not fit in the file", path);
    }
    rc = json_parse(&g->header, g->bytes + 8, (size_t)n, path, e);
    if (rc != OK) {
        g->header = NULL;
        golden_close(g);
        return rc;
    }
    g->data = (unsigned char *)g->bytes + 8 + n;
    g->data_bytes = (int64_t)(g->n - 8 - n);
    return OK;
}

/* Looks an array up; ERR_REQUEST when there is none of that name, ERR_CORRUPT when its entry makes no sense. */
static inline int golden_find(const struct golden *g, const char *name, struct golden_array *out, struct err *e)
{
    *out = (struct golden_array){0};
    const struct json *v = json_get(g->header, name), *shape = json_get(v, "shape");
    if (!v) return err_set(e, ERR_REQUEST, "golden: no array named %s", name);
    const char *dtype = json_string(json_get(v, "dtype"), NULL, "");
    out->is_float = !strcmp(dtype, "F32"), out->n = 1, out->n_dims = (int)json_size(shape);
    if ((!out->is_float && strcmp(dtype, "I32")) || out->n_dims > GOLDEN_MAX_DIMS)
        return err_set(e, ERR_CORRUPT, "golden: %s: %s with %d dims is not stored here", name, dtype, out->n_dims);
    for (int d = 0; d < out->n_dims; d++) {
        out->dim[d] = json_int(json_at(shape, (size_t)d), -1);
        if (out->dim[d] < 1 || out->dim[d] > 1 << 20) return err_set(e, ERR_CORRUPT, "golden: %s: shape", name);
        out->n *= out->dim[d];
    }
    const struct json *offsets = json_get(v, "data_offsets");
    int64_t lo = json_int(json_at(offsets, 0), -1), hi = json_int(json_at(offsets, 1), -1);
    if (lo < 0 || lo % 4 || hi - lo != 4 * out->n || hi > g->data_bytes)
        return err_set(e, ERR_CORRUPT, "golden: %s: bytes %lld to %lld", name, (long long)lo, (long long)hi);
    out->p = g->data + lo;
    return OK;
}

/* The values of an array that must have n elements of that type; NULL when it has not. */
static inline const float *golden_f32(const struct golden *g, const char *name, int64_t n)
{
    struct golden_array a;
    return golden_find(g, name, &a, NULL) == OK && a.is_float && a.n == n ? a.p : NULL;
}

static inline const int32_t *golden_i32(const struct golden *g, const char *name, int64_t n)
{
    struct golden_array a;
    return golden_find(g, name, &a, NULL) == OK && !a.is_float && a.n == n ? a.p : NULL;
}

/* |got - want| / |want| in the Euclidean norm, in double; the absolute error where want is 0. */
static inline double golden_relative_error(const float *got, const float *want, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - want[i];
        diff += d * d;
        norm += (double)want[i] * want[i];
    }
    return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

#endif
