/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_megatron.c: any bytes as PREFIX.idx beside a .bin of as many bytes as the first says: a token file, or words
 * that name one of the two. */
#include "fuzz_source.h"

#include "data/megatron.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2 || n > 4096) return 0;
    char bin[80], idx[80], prefix[80], out[90];
    static const uint8_t zeros[256];
    struct tokenizer *t;
    struct megatron_result r;
    struct err e = {0};
    fuzz_put(bin, "m.bin", zeros, data[0]);
    fuzz_put(idx, "m.idx", data + 1, n - 1);
    snprintf(prefix, sizeof prefix, "%.*s", (int)strlen(idx) - 4, idx);
    snprintf(out, sizeof out, "%s.tok", prefix);
    CHECK(!tokenizer_open(&t, "byte", &e), "no tokenizer: %s", e.text);
    int code = megatron_import(t, prefix, out, NULL, &r, &e);
    CHECK(!code || strstr(e.text, prefix), "an error without its file: %s", e.text);
    CHECK(code || r.tokens <= data[0] + (int64_t)n, "%lld tokens of %d bytes", (long long)r.tokens, data[0]);
    tokenizer_free(t);
    unlink(bin);
    unlink(idx);
    unlink(out);
    return 0;
}
