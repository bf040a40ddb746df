/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: what is read, what is refused and why, which rule stands for an operation, and what select makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "comm/impl.h"

static const char text[] = "# op where ranks bytes algorithms\n"
                           "all_reduce hosts 4 4K gather,direct   # small ones\n"
                           "all_reduce hosts 4 1M halving,chain\n"
                           "  all_reduce\thosts 16 any two_level\n"
                           "\n"
                           "all_reduce host 2 any native,direct\n"
                           "all_gather hosts 2 any ring\n"
                           "broadcast hosts 3 65536 tree";

static const char *first(const struct rule *r) { return r ? algorithms[r->choice[0]].name : "none"; }

static void finds_the_rule(void **state)
{
    (void)state;
    struct table t;
    struct err e = {0};
    assert_int_equal(table_parse(&t, text, &e), OK);
    assert_int_equal(t.n, 6);
    assert_string_equal(first(table_find(&t, COMM_ALL_REDUCE, true, 3, 8)), "none"); /* fewer ranks than any rule */
    assert_string_equal(first(table_find(&t, COMM_ALL_REDUCE, true, 4, 0)), "gather");
    assert_string_equal(first(table_find(&t, COMM_ALL_REDUCE, true, 4, 4096)), "gather");
    assert_string_equal(first(table_find(&t, COMM_ALL_REDUCE, true, 15, 4097)), "halving");
    assert_string_equal(first(table_find(&t, COMM_ALL_REDUCE, true, 15, (1 << 20) + 1)), "none"); /* larger than any */
    assert_string_equal(first(table_find(&t, COMM_ALL_REDUCE, true, 16, 8)), "two_level");
    assert_string_equal(first(table_find(&t, COMM_ALL_REDUCE, true, 1000, INT64_MAX)), "two_level");
    assert_string_equal(first(table_find(&t, COMM_ALL_REDUCE, false, 2, 1 << 30)), "native");
    assert_string_equal(first(table_find(&t, COMM_REDUCE, true, 8, 8)), "none");
    assert_string_equal(first(table_find(&t, COMM_BROADCAST, true, 3, 65536)), "tree");
    table_fini(&t);
}

static void refuses_with_the_line(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"all_reduce hosts 4 4K", "line 1: wanted 'op where ranks bytes algorithms'"},
        {"all_reduce hosts 4 4K ring x", "line 1: wanted 'op where"},
        {"\n#\nexchange hosts 4 4K ring", "line 3: the operation"},
        {"all_reduce there 4 4K ring", "line 1: where: wanted host or hosts"},
        {"all_reduce hosts 1 4K ring", "line 1: ranks"},
        {"all_reduce hosts 99999999999999999999 4K ring", "line 1: ranks"},
        {"all_reduce hosts -2 4K ring", "line 1: ranks"},
        {"all_reduce hosts 4 4T ring", "line 1: bytes"},
        {"all_reduce hosts 4 K ring", "line 1: bytes"},
        {"all_reduce hosts 4 9999999999G ring", "line 1: bytes"},
        {"all_reduce hosts 4 4K rings", "line 1: algorithms"},
        {"all_reduce hosts 4 4K ring,", "line 1: algorithms"},
        {"all_reduce hosts 4 4K ring,,tree", "line 1: algorithms"},
        {"all_reduce hosts 4 4K ring,ring,ring,ring,ring,ring,ring,ring,ring", "line 1: algorithms"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct table t;
        struct err e = {0};
        assert_int_equal(table_parse(&t, bad[i][0], &e), ERR_REQUEST);
        assert_null(t.rules);
        if (!strstr(e.text, bad[i][1])) fail_msg("'%s' says '%s', wanted '%s'", bad[i][0], e.text, bad[i][1]);
    }
}

/* What 4 (or `ranks`) ranks, two a host unless told otherwise, take for a sum of n elements. */
static void assert_choice(const struct comm_config *cfg, int ranks, enum dtype t, enum comm_red red, int64_t n,
                          const char *want)
{
    struct comm *c;
    struct err e = {0};
    assert_int_equal(comm_world_null(&c, 0, ranks, cfg, &e), OK);
    assert_string_equal(comm_choice(c, COMM_ALL_REDUCE, n, t, red), want);
    comm_free(c);
}

static void choice_keeps_bits(void **state)
{
    (void)state;
    static const char rules[] =
        "all_reduce hosts 2 1K halving,gather\nall_reduce hosts 2 any halving\nall_reduce host 2 any ring\n";
    struct comm_config hosts = {.ranks_per_host = 1, .table = rules}, any = hosts, host = {.table = rules};
    any.any_order = true;
    assert_choice(&hosts, 4, DT_F32, COMM_SUM, 16, "gather");   /* halving adds in another order */
    assert_choice(&hosts, 4, DT_F32, COMM_SUM, 1024, "direct"); /* nothing listed keeps the order */
    assert_choice(&hosts, 4, DT_F32, COMM_MAX, 1024, "halving");
    assert_choice(&hosts, 4, DT_I64, COMM_SUM, 16, "halving");
    assert_choice(&hosts, 2, DT_F32, COMM_SUM, 1024, "halving"); /* two numbers have one sum */
    assert_choice(&any, 4, DT_BF16, COMM_AVG, 1024, "halving");
    assert_choice(&host, 2, DT_F32, COMM_SUM, 1024, "ring");
    assert_choice(&host, 4, DT_F32, COMM_SUM, 1024, "direct");
}

static void configs_are_checked(void **state)
{
    (void)state;
    struct comm *c;
    struct err e = {0};
    assert_int_equal(comm_world_null(&c, 0, 2, &(struct comm_config){.table = "\nsum hosts 2 any ring"}, &e),
                     ERR_REQUEST);
    assert_non_null(strstr(e.text, "comm.table: line 2"));
    assert_int_equal(comm_config_check(&(struct comm_config){.algorithm = "rink"}, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "did you mean 'ring'"));
    assert_int_equal(comm_config_check(NULL, &e), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_rule),
        cmocka_unit_test(refuses_with_the_line),
        cmocka_unit_test(choice_keeps_bits),
        cmocka_unit_test(configs_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
