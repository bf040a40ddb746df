/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts' communicators and the data plane's: each refuses memory of the other, for every kind of operation, on a
 * device that cannot be touched and on one that only counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "child.h"
#include "comm/comm.h"
#include "device/device.h"

enum { N = 64, WAYS = 9 };

/* One operation of each kind on 2 * N floats of a world of one, so that nobody is waited for. */
static int64_t operation(struct comm *c, int way, float *p)
{
    int64_t counts[1] = {N};
    float *q = p ? p + N : NULL;
    switch (way) {
    case 0: return comm_broadcast(c, p, N, DT_F32, 0, "x");
    case 1: return comm_reduce(c, p, q, N, DT_F32, COMM_SUM, 0, "x");
    case 2: return comm_all_reduce(c, p, p, N, DT_F32, COMM_SUM, "x");
    case 3: return comm_reduce_scatter(c, p, q, N, DT_F32, COMM_SUM, "x");
    case 4: return comm_reduce_scatter_v(c, p, q, counts, DT_F32, COMM_SUM, "x");
    case 5: return comm_all_gather(c, p, q, N, DT_F32, "x");
    case 6: return comm_all_gather_v(c, p, q, counts, DT_F32, "x");
    case 7: return comm_all_to_all_v(c, p, q, counts, counts, DT_F32, "x");
    default: return comm_exchange(c, (struct comm_p2p[]){{true, 0, p, N, DT_F32}, {false, 0, q, N, DT_F32}}, 2, "x");
    }
}

enum kind { UNTOUCHABLE, COUNTS, KINDS };

struct setting {
    struct comm *world, *group;
    struct device *d;
    struct buffer b;
};

static int set_up(struct setting *s, enum kind kind, bool on_device, struct err *e)
{
    int ranks[1] = {0};
    int rc = kind == COUNTS ? comm_world_null(&s->world, 0, 1, NULL, e) : comm_world_local(&s->world, 1, NULL, e);
    if (!rc) rc = comm_split_list(&s->group, s->world, ranks, 1, "group", e);
    if (!rc) rc = kind == COUNTS ? device_null_new(&s->d, e) : device_untouchable_new(&s->d, 1, e);
    if (!rc) rc = buffer_new(&s->b, s->d, MEM_COMM, 2 * N * sizeof(float), e);
    if (!rc && on_device) comm_on(s->group, s->d);
    return rc;
}

struct tried {
    enum kind kind;
    bool on_device, host_memory;
    int way;
};

static int run_operation(void *arg)
{
    const struct tried *t = arg;
    struct setting s = {0};
    struct err e = {0};
    float host[2 * N] = {0};
    if (set_up(&s, t->kind, t->on_device, &e)) return CHILD_LOST;
    comm_wait(s.group, operation(s.group, t->way, t->host_memory ? host : s.b.p));
    return comm_status(s.group, &e) ? 1 : 0;
}

/* false: the operation ran; true: a CHECK ended the process. */
static bool refused(enum kind kind, bool on_device, bool host_memory, int way)
{
    struct tried t = {kind, on_device, host_memory, way};
    int end = child_end(run_operation, &t);
    if (end != -SIGABRT) assert_int_equal(end, 0);
    return end != 0;
}

static void test_planes_are_apart(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++)
        for (int way = 0; way < WAYS; way++) {
            assert_int_equal(refused((enum kind)kind, true, false, way), 0); /* a device's to the device's */
            assert_int_equal(refused((enum kind)kind, true, true, way), 1);  /* the host's to the device's */
            assert_int_equal(refused((enum kind)kind, false, true, way), 0); /* the host's to the hosts' */
            if (kind == UNTOUCHABLE) assert_int_equal(refused(UNTOUCHABLE, false, false, way), 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_planes_are_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
