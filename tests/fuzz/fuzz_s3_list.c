/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_s3_list.c: any bytes as an answer to ListObjectsV2 or ListMultipartUploads: an error, or a list whose entries
 * are whole; and what is got out of an answer that is an error. */
#include <string.h>

#include "base/mem.h"
#include "remote/s3.h"
#include "remote/s3_list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct s3_list l = {0};
    struct s3_uploads u = {0};
    struct err e = {0};
    char *copy = xmalloc(n + 1); /* exactly as long as it is: a byte read behind it is seen */
    memcpy(copy, data, n);
    int code = s3_list_add(&l, copy, n, "fuzz", &e);
    CHECK(!code || e.text[0], "an error without words");
    for (int64_t i = 0; i < l.n; i++)
        CHECK(l.entry[i].key && l.entry[i].etag && l.entry[i].bytes >= 0, "entry %lld", (long long)i);
    e.text[0] = 0;
    code = s3_uploads_read(&u, copy, n, "fuzz", &e);
    CHECK(!code || e.text[0], "an error without words");
    for (int64_t i = 0; i < u.n; i++) CHECK(u.upload[i].key && *u.upload[i].id, "upload %lld", (long long)i);
    s3_uploads_free(&u);
    copy[n] = 0;
    char *text = s3_element(copy, "Message");
    CHECK(!text || strlen(text) <= n, "more words than there were");
    xfree(text);
    xfree(copy);
    s3_list_free(&l);
    return 0;
}
