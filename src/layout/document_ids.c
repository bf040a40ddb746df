/* SPDX-License-Identifier: Apache-2.0 */
/* From the front of each document: rows are its prefix up to the first that has a target. */
#include "layout/document_ids.h"

#include "base/err.h"

void document_mark(const int32_t *docs, const int32_t *targets, int64_t seq, int32_t *marked)
{
    bool prefix = true;
    for (int64_t i = 0; i < seq; i++) {
        int32_t id = docs ? docs[i] : 0;
        CHECK(id >= 0 && id < 1 << 30, "document %d", id);
        if (i && docs && docs[i] != docs[i - 1]) prefix = true;
        marked[i] = 2 * id + prefix;
        if (targets[i] >= 0) prefix = false;
    }
}
