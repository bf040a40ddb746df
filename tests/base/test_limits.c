/* SPDX-License-Identifier: Apache-2.0 */
/* limits.h on made-up machines: which limit is the tightest, and that figures which cannot be read are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/limits.h"
#include "scratch.h"

static char *root;

static void put(const char *path, const char *text)
{
    char full[256], dir[256];
    struct err e = {0};
    snprintf(full, sizeof full, "%s%s", root, path);
    snprintf(dir, sizeof dir, "%s", full);
    *strrchr(dir, '/') = 0;
    if (fs_mkdirs(dir, &e) || fs_write_atomic(full, text, strlen(text), &e)) fail_msg("%s", e.text);
}

static void check(size_t bytes, const char *says)
{
    struct limit l;
    assert_true(limit_memory_in(root, &l));
    if (l.bytes != bytes || !strstr(l.what, says))
        fail_msg("%zu bytes by %s; wanted %zu by %s", l.bytes, l.what, bytes, says);
}

#define GIB ((size_t)1 << 30)

static void test_the_tightest(void **state)
{
    (void)state;
    struct limit l;
    root = scratch_new();
    bool told = limit_memory_in(root, &l); /* of an empty machine only ulimits are known */
    assert_true(told == limit_addresses(&l));
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n");
    check(8 * GIB, "MemAvailable");
    put("/proc/self/cgroup", "0::/job/part\n");
    check(8 * GIB, "MemAvailable");
    put("/sys/fs/cgroup/job/part/memory.max", "max\n");
    put("/sys/fs/cgroup/job/memory.max", "4294967296\n"); /* above ours */
    put("/sys/fs/cgroup/job/memory.current", "3221225472\n");
    check(1 * GIB, "cgroup /job ");
    put("/sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 1073741824\nactive_file 7\n"); /* can be dropped */
    check(2 * GIB, "cgroup /job ");
    put("/sys/fs/cgroup/job/part/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/job/part/memory.current", "1073741825\n"); /* over it already */
    check(0, "cgroup /job/part ");
}

static void test_version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "7:cpu,cpuacct:/elsewhere\n6:memory:/docker/abc\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* none */
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n");
    check(8 * GIB, "MemAvailable");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741829\n");
    check(1 * GIB, "cgroup / ");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "nonsense\n");
    check(8 * GIB, "MemAvailable");
    scratch_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_tightest), cmocka_unit_test(test_version_1)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
