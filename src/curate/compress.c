/* SPDX-License-Identifier: Apache-2.0 */
/* compress.c: see compress.h. A frame of half a MiB each, compressed where it was made, costs some percent of size and
 * makes compression as parallel as the filters. */
#include "curate/compress.h"

#include <zstd.h>

#include "base/mem.h"

struct compressor {
    ZSTD_CCtx *context;
};

struct compressor *compressor_new(int level)
{
    struct compressor *c = xcalloc(1, sizeof *c);
    c->context = ZSTD_createCCtx();
    CHECK(c->context, "no memory for zstd");
    ZSTD_CCtx_setParameter(c->context, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(c->context, ZSTD_c_checksumFlag, 1);
    return c;
}

void compressor_free(struct compressor *c)
{
    if (!c) return;
    ZSTD_freeCCtx(c->context);
    xfree(c);
}

int compressor_add(struct compressor *c, const void *p, size_t n, struct str *out, struct err *e)
{
    size_t most = ZSTD_compressBound(n);
    GROW(out->p, out->n, out->room, most + 1);
    size_t got = ZSTD_compress2(c->context, out->p + out->n, most, p, n);
    if (ZSTD_isError(got)) return err_set(e, ERR_IO, "zstd cannot compress %zu bytes: %s", n, ZSTD_getErrorName(got));
    out->n += got;
    out->p[out->n] = 0;
    return OK;
}
