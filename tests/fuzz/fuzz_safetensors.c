/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_safetensors.c: any bytes as a safetensors file: refused with the file's name, or every tensor lies inside. */
#include <string.h>

#include "base/mem.h"
#include "checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct safetensors *s;
    struct err e = {0};
    if (safetensors_open_memory(&s, data, n, "fuzz.safetensors", &e)) {
        CHECK(strstr(e.text, "fuzz.safetensors"), "an error without its place: %s", e.text);
        return 0;
    }
    size_t header, sum;
    safetensors_header(s, 0, &header);
    sum = header;
    for (int64_t i = 0; i < safetensors_count(s); i++) {
        const struct safetensors_entry *t = safetensors_at(s, i);
        CHECK(t->at >= (int64_t)header && t->bytes <= n - (size_t)t->at, "%s lies outside", t->name);
        unsigned char *bytes = xmalloc(t->bytes + 1);
        CHECK(!safetensors_read(s, t, 0, t->bytes, bytes, &e) && !memcmp(bytes, data + t->at, t->bytes),
              "%s: other bytes", t->name);
        xfree(bytes);
        CHECK(safetensors_find(s, t->name) == t, "%s is not found", t->name);
        sum += t->bytes;
    }
    CHECK(sum == n, "%zu bytes of %zu belong to no tensor", n - sum, n);
    safetensors_metadata(s, "format");
    safetensors_close(s);
    return 0;
}
