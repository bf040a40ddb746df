/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule, as text or as a table: whatever is in the file, it is read or refused; what is read can be checked, and
 * what passes the check can be simulated and is read back from its text. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "schedule/schedule.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct schedule *s, *again;
    struct err e = {0};
    if (size > 4096) return 0;
    char *text = xmalloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    if (!schedule_parse(&s, text, "fuzz", &e)) {
        bool small = (int64_t)s->n_stages * s->n_microbatches <= 4096 && s->n_ranks <= 64;
        if (small && !schedule_check(s, NULL, &e)) {
            struct schedule_timeline t;
            struct str out = {0};
            schedule_simulate(s, &(struct schedule_cost){1, 1, 1, 0.5, NULL, NULL, 0}, &t);
            schedule_timeline_fini(&t);
            schedule_print(s, &out);
            CHECK(!schedule_parse(&again, str_text(&out), "again", &e) && schedule_equal(s, again),
                  "does not come back: %s", e.text);
            schedule_free(again);
            str_free(&out);
        }
        schedule_free(s);
    }
    xfree(text);
    return 0;
}
