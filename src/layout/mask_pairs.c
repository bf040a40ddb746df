/* SPDX-License-Identifier: Apache-2.0 */
/* Document by document: a document is a sequence of its own, whose first `before` tokens all of it sees. */
#include "layout/mask_pairs.h"

#include "layout/document_ids.h"

static int64_t up_to(int64_t n) { return n * (n + 1) / 2; }

static int64_t of_document(int64_t n, int64_t before, struct mask m)
{
    if (!m.causal) return n * n;
    if (m.window > 0 && m.window < n) return up_to(m.window) + (n - m.window) * m.window;
    return n * before + up_to(n - before);
}

int64_t mask_pairs(const int32_t *ids, int64_t seq, struct mask m)
{
    int64_t sum = 0;
    if (!ids) return of_document(seq, 0, m);
    for (int64_t i = 0, end; i < seq; i = end) {
        int64_t before = 0;
        for (end = i; end < seq; end++) {
            bool same = m.marked ? document_of_marked(ids[end]) == document_of_marked(ids[i]) : ids[end] == ids[i];
            if (!same) break;
            before += m.marked && document_in_prefix(ids[end]);
        }
        sum += of_document(end - i, before, m);
    }
    return sum;
}
