/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that are not here: hwloc's synthetic form, what lstopo stored of one, and files that are no machine. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/topology.h"
#include "scratch.h"

static struct topology read_ok(const char *from)
{
    struct topology t;
    struct err e;
    if (topology_read(&t, from, &e)) fail_msg("%s: %s", from ? from : "here", e.text);
    return t;
}

static void cores_threads_nodes(void **unused)
{
    (void)unused;
    struct topology t = read_ok("synthetic: package:2 numa:1 core:4 pu:2");
    assert_int_equal(t.n, 8);
    assert_int_equal(t.n_nodes, 2);
    assert_int_equal(t.n_packages, 2);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(t.core[i].n, 2);
        assert_int_equal(t.core[i].pu[0], 2 * i);
        assert_int_equal(t.core[i].pu[1], 2 * i + 1);
        assert_int_equal(t.core[i].node, i / 4);
        assert_int_equal(t.core[i].package, i / 4);
    }
    struct cores all, some = {0};
    topology_cores(&t, &all);
    assert_int_equal(cores_count(&all), 16);
    /* one hardware thread of core 1, both of core 6; the rest is gone, and node 0 is still node 0 */
    cores_add(&some, 3);
    cores_add(&some, 12);
    cores_add(&some, 13);
    cores_add(&some, 99);
    topology_within(&t, &some);
    assert_int_equal(t.n, 2);
    assert_int_equal(t.core[0].n, 1);
    assert_int_equal(t.core[0].pu[0], 3);
    assert_int_equal(t.core[1].n, 2);
    assert_int_equal(t.core[1].node, 1);
    assert_int_equal(t.n_nodes, 2);
    topology_free(&t);
}

/* Two packages of four memory nodes of two cores each; the system numbers them in turn: 0, 8, 1, 9, ... Neighbours in
 * the list are neighbours in the machine. */
static void a_stored_machine(void **unused)
{
    (void)unused;
    char path[512];
    snprintf(path, sizeof path, "%s/base/topologies/interleaved.xml", TEST_DIR);
    struct topology t = read_ok(path);
    assert_int_equal(t.n, 16);
    assert_int_equal(t.n_nodes, 8);
    assert_int_equal(t.n_packages, 2);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(t.core[i].pu[0], i % 2 * 8 + i / 2);
        assert_int_equal(t.core[i].node, i / 2);
    }
    topology_free(&t);
}

static void this_machine(void **unused)
{
    (void)unused;
    struct topology t = read_ok(NULL);
    struct cores mine, all;
    assert_true(cores_of(0, &mine));
    topology_cores(&t, &all);
    assert_int_equal(cores_common(&mine, &all, NULL), cores_count(&mine)); /* what we may use is there */
    topology_free(&t);
}

static void refused(const char *from, const char *says)
{
    struct topology t;
    struct err e;
    assert_int_equal(topology_read(&t, from, &e), ERR_REQUEST);
    if (!strstr(e.text, says)) fail_msg("'%s' is not in: %s", says, e.text);
    assert_null(t.core);
}

static void what_is_no_machine(void **unused)
{
    (void)unused;
    struct err e;
    char *dir = scratch_new(), *file = fs_join(dir, "x.xml"), *good = NULL, path[512];
    size_t n;
    refused("synthetic:", "describes no machine");
    refused("synthetic:core:0", "describes no machine");
    refused("synthetic:numbers:7", "describes no machine");
    refused(dir, "is no topology");
    refused("/nowhere/at/all.xml", "no such file");
    snprintf(path, sizeof path, "%s/base/topologies/interleaved.xml", TEST_DIR);
    assert_int_equal(fs_read_all(path, 1 << 20, &good, &n, &e), OK);
    /* Cut anywhere, or with one character changed: a machine with cores, or an error. */
    for (size_t at = 0; at < n; at += 499) {
        struct topology t;
        assert_int_equal(fs_write_atomic(file, good, at, &e), OK);
        int code = topology_read(&t, file, &e);
        assert_true(code == ERR_REQUEST || (code == OK && t.n > 0));
        topology_free(&t);
        char was = good[at];
        good[at] = '9';
        assert_int_equal(fs_write_atomic(file, good, n, &e), OK);
        code = topology_read(&t, file, &e);
        assert_true(code == ERR_REQUEST || (code == OK && t.n > 0));
        topology_free(&t);
        good[at] = was;
    }
    xfree(good);
    xfree(file);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_threads_nodes),
        cmocka_unit_test(a_stored_machine),
        cmocka_unit_test(this_machine),
        cmocka_unit_test(what_is_no_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
