/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* suite: wraps mem_pages_new pthread_create */
/* A machine that is short of threads or of memory: of a whole training run, the n-th thread is refused, then the n-th
 * request for pages, for every n that the run gets to. Every time the run ends with an error that names what was wanted
 * and what to lower, never with an abort or a hang; when nothing is refused any more it trains. What sums beside the
 * thread that writes a checkpoint is not needed: without it the run trains all the same. The linker puts this file
 * before both calls (--wrap). */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/mem.h"
#include "train/trainer.h"
#include "scratch.h"

static struct {
    atomic_int threads, pages; /* until the one that is refused; negative: none is */
} left;

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
void *__real_mem_pages_new(size_t bytes);
void *__wrap_mem_pages_new(size_t bytes);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    return atomic_fetch_sub(&left.threads, 1) == 0 ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}

void *__wrap_mem_pages_new(size_t bytes)
{
    return atomic_fetch_sub(&left.pages, 1) == 0 ? NULL : __real_mem_pages_new(bytes);
}

static int train(const char *dir, int ranks, struct err *e)
{
    char data[300], out[300];
    snprintf(data, sizeof data, "data.train=%s/text.txt", dir);
    snprintf(out, sizeof out, "run.dir=%s/run", dir);
    char *keys[] = {data,
                    out,
                    "model.layers=1",
                    "model.hidden=16",
                    "model.heads=2",
                    "model.ffn=16",
                    "model.seq_len=8",
                    "batch.global=2",
                    "batch.micro=1",
                    "run.steps=1",
                    "run.threads=2",
                    "run.tensorboard=false",
                    "checkpoint.resume=never",
                    "comm.timeout_s=3600",
                    "comm.progress=thread",
                    "checkpoint.every=0"};
    struct trainer_result r;
    *e = (struct err){0};
    return trainer_run(NULL, keys, (int)(sizeof keys / sizeof *keys), ranks, &r, e);
}

enum { SUMMING = 2 }; /* threads of a rank that sum beside its writing */

static void one_kind(atomic_int *which, int ranks, const char *const says[3])
{
    char *dir = scratch_new();
    char path[64], text[4096];
    struct err e = {0};
    memset(text, 'x', sizeof text);
    snprintf(path, sizeof path, "%s/text.txt", dir);
    assert_int_equal(fs_write_atomic(path, text, sizeof text, &e), OK);
    int n = 0, trained = 0, rc;
    for (;; n++) {
        assert_true(n < 500);
        atomic_store(&left.threads, -1);
        atomic_store(&left.pages, -1);
        atomic_store(which, n);
        rc = train(dir, ranks, &e);
        if (atomic_load(which) >= 0) break; /* the run asked for fewer */
        if (rc == OK && ++trained <= SUMMING * ranks) continue;
        bool told = false;
        for (int i = 0; i < 3 && says[i]; i++) told |= strstr(e.text, says[i]) != NULL;
        if (rc == OK || !told)
            fail_msg("request %d of %d ranks refused: %s, '%s'", n, ranks, rc ? "error" : "trained", e.text);
        assert_int_equal(err_exit_status(rc), 1);
    }
    if (rc) fail_msg("nothing was refused: %s", e.text);
    print_message("  %d ranks: %d requests, each refused once\n", ranks, n);
    assert_true(n >= 2 * ranks);
    scratch_free(dir);
}

static void test_threads(void **state)
{
    (void)state;
    static const char *const says[3] = {"could not be started: Resource temporarily unavailable",
                                        "cannot watch for signals: Resource", "no thread that writes stacks: Resource"};
    one_kind(&left.threads, 1, says);
    one_kind(&left.threads, 2, says);
}

static void test_pages(void **state)
{
    (void)state;
    static const char *const says[3] = {"wanted ", "no memory for ", "no page for a team of 2 threads"};
    one_kind(&left.pages, 1, says);
    one_kind(&left.pages, 2, says);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads), cmocka_unit_test(test_pages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
