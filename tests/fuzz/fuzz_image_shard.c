/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_image_shard.c: any bytes as a shard of pictures, the first choosing where labels are: samples that lie in it, or
 * words that name it. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "data/image_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const labels[] = {"cls,json[label],txt", "json[a][0]", "txt", "json[label]"};
    if (n < 2 || n > 65536) return 0;
    int fd = memfd_create("fuzz", 0);
    CHECK(fd >= 0 && write(fd, data + 1, n - 1) == (ssize_t)n - 1, "no file to write to");
    struct blob *blob;
    struct err e = {0};
    CHECK(!blob_of_descriptor(&blob, "the shard", fd, &e), "%s", e.text);
    struct image_scan_options o = {.label = labels[data[0] % 4],
                                   .image = data[0] & 4 ? "png,jpg" : NULL,
                                   .classes = 10};
    struct image_scan *s;
    int got = image_scan_open(&s, blob, &o, &e);
    for (int k = 0; !got && k < 1000; k++) {
        struct image_found f;
        int found = image_scan_next(s, &f, &e);
        if (found > 0)
            CHECK(f.bytes >= 0 && f.offset >= 0 && f.label >= 0 && f.label < 10 && f.key[0], "a sample that is none");
        if (found < 0) CHECK(strstr(e.text, "the shard"), "an error without its place: %s", e.text);
        if (!found || (found < 0 && !image_scan_goes_on(s))) break;
    }
    if (!got) image_scan_close(s);
    blob_close(blob);
    return 0;
}
