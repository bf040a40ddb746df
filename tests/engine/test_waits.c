/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* suite: wraps stream_sync device_peek */
/* How often the host waits for its device: once in a step and once in an evaluation, whatever the family, the order of
 * sums or the dtype. The linker puts counters before stream_sync and device_peek. */
#include "toy.h"

#include "device/device.h"

static struct { /* of the one rank here */
    int syncs, peeks;
} waits;

void __real_stream_sync(struct stream *s);
void __wrap_stream_sync(struct stream *s);
void __wrap_stream_sync(struct stream *s)
{
    waits.syncs++;
    __real_stream_sync(s);
}

const void *__real_device_peek(struct stream *s, const void *p, size_t bytes, void *room);
const void *__wrap_device_peek(struct stream *s, const void *p, size_t bytes, void *room);
const void *__wrap_device_peek(struct stream *s, const void *p, size_t bytes, void *room)
{
    waits.peeks++;
    return __real_device_peek(s, p, bytes, room);
}

static void waits_once(const struct engine_config *c)
{
    struct toy t;
    struct engine_report r;
    toy_open(&t, c);
    for (int64_t step = 0; step < 3; step++) {
        waits.syncs = waits.peeks = 0;
        assert_true(engine_step(t.g, &t.batch, step, 1e-3, &r));
        assert_int_equal(waits.syncs, 1);
        assert_int_equal(waits.peeks, 0);
        waits.syncs = 0;
        engine_evaluate(t.g, &t.batch, &r);
        assert_int_equal(waits.syncs, 1);
        assert_int_equal(waits.peeks, 0);
    }
    toy_close(&t);
}

static void test_one_wait(void **state)
{
    (void)state;
    static const enum model_family family[] = {MODEL_GPT2, MODEL_LLAMA, MODEL_MIXTRAL, MODEL_DEEPSEEK};
    for (size_t f = 0; f < sizeof family / sizeof *family; f++)
        for (int exact = 0; exact < 2; exact++)
            for (int narrow = 0; narrow < 2; narrow++) {
                struct engine_config c = toy_config(family[f], narrow ? DT_BF16 : DT_F32);
                c.model.moe.bias_speed = 0; /* a bias is moved by the host, from numbers that it has read */
                c.exact_order = exact;
                waits_once(&c);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_wait)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
