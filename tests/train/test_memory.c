/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* Resident memory is what the ledger says: within 10 % of the ledger and the program, and a constant for the files
 * that a run maps, reads and writes. Alone in its process, so that the peak is this run's. */
#include "toy.h"

#include <stdlib.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/str.h"
#include "train/trainer.h"
#include "scratch.h"

enum { CONSTANT = 4 << 20 }; /* libraries, stacks, the writer's and the tokenizer's buffers */

static void test_resident_is_the_ledger(void **state)
{
    (void)state;
    if (TOY_SANITIZED) skip();
    char *dir = scratch_new(), text[64], data[96], run[96], metrics[96];
    struct str s = {0};
    struct err e = {0};
    struct trainer_result r;
    snprintf(text, sizeof text, "%s/text.txt", dir);
    for (int i = 0; i < 2000; i++) str_printf(&s, "%d bottles of beer on the wall, %d bottles of beer.\n", i, i);
    assert_int_equal(fs_write_atomic(text, str_text(&s), s.n, &e), OK);
    snprintf(data, sizeof data, "data.train=%s", text);
    snprintf(run, sizeof run, "run.dir=%s/run", dir);
    char *keys[] = {data,
                    run,
                    (char[]){"model.layers=4"},
                    (char[]){"model.hidden=256"},
                    (char[]){"model.heads=4"},
                    (char[]){"model.seq_len=256"},
                    (char[]){"batch.global=4"},
                    (char[]){"batch.micro=4"},
                    (char[]){"run.steps=3"},
                    (char[]){"checkpoint.every=1"},
                    (char[]){"run.threads=2"}};
    size_t before = mem_rss_peak(); /* the program before it has anything to do */
    if (trainer_run(NULL, keys, (int)(sizeof keys / sizeof *keys), 1, &r, &e)) fail_msg("%s", e.text);
    size_t peak = mem_rss_peak();
    snprintf(metrics, sizeof metrics, "%s/run/metrics.jsonl", dir);
    char *lines;
    size_t n;
    struct json *line;
    if (fs_read_all(metrics, 1 << 20, &lines, &n, &e)) fail_msg("%s", e.text);
    if (json_parse(&line, lines, (size_t)(strchr(lines, '\n') - lines), "metrics", &e)) fail_msg("%s", e.text);
    size_t ledger = (size_t)json_int(json_get(line, "peak_bytes"), 0);
    assert_true(ledger > 50 << 20);
    double bound = 1.1 * (double)(ledger + before) + CONSTANT;
    print_message("ledger %.1f MiB, program %.1f MiB, resident peak %.1f MiB\n", (double)ledger / (1 << 20),
                  (double)before / (1 << 20), (double)peak / (1 << 20));
    if ((double)peak > bound) fail_msg("resident peak %zu bytes, ledger %zu, before it %zu", peak, ledger, before);
    json_free(line);
    xfree(lines);
    str_free(&s);
    scratch_free(dir);
}

int main(void)
{
    setenv("LOG", "error", 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resident_is_the_ledger)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
