/* SPDX-License-Identifier: Apache-2.0 */
/* A table of algorithms: whatever the text, it is read or refused; what is read can be asked. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "comm/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct table t;
    struct err e = {0};
    char *text = xmalloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    if (!table_parse(&t, text, &e)) {
        for (int i = 0; i < t.n; i++) {
            const struct rule *r = &t.rules[i];
            const struct rule *found = table_find(&t, r->op, r->hosts, r->ranks, r->bytes);
            CHECK(found && found->ranks == r->ranks && found->bytes == r->bytes && r->n_choices >= 1, "rule %d is lost",
                  i);
        }
        table_fini(&t);
    } else CHECK(!t.rules && e.text[0], "refused without a word");
    xfree(text);
    return 0;
}
