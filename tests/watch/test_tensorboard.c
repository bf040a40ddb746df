/* SPDX-License-Identifier: Apache-2.0 */
/* Event files read back by a decoder of this test's own: framing, both checksums, every field. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "watch/tensorboard.h"
#include "scratch.h"

/* ---- the decoder ---- */

/* CRC-32C by long division over a polynomial with the highest term first: the definition, not the trick. */
static uint32_t crc32c(const unsigned char *p, size_t n)
{
    uint32_t rest = 0xffffffffu, out = 0;
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint32_t in = p[i] >> bit & 1, top = rest >> 31;
            rest = rest << 1 ^ (in ^ top ? 0x1edc6f41u : 0);
        }
    for (int i = 0; i < 32; i++) out |= (rest >> i & 1) << (31 - i); /* results are reported reflected */
    return ~out;
}

static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

static uint64_t fixed(const unsigned char *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

struct event {
    double wall_time;
    int64_t step;
    char version[32], tag[64];
    float value;
    int has_value, session_status;
};

struct span {
    const unsigned char *p, *end;
};

static uint64_t varint(struct span *s)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        assert_true(s->p < s->end);
        v |= (uint64_t)(*s->p & 0x7f) << shift;
        if (!(*s->p++ & 0x80)) return v;
    }
    fail_msg("a varint of more than ten bytes");
    return 0;
}

/* Reads one key and its value: *field and either a number or a span. */
static uint64_t item(struct span *s, uint64_t *field, struct span *bytes)
{
    uint64_t key = varint(s), n = 0;
    *field = key;
    switch (key & 7) {
    case 0: return varint(s);
    case 1: n = 8; break;
    case 5: n = 4; break;
    case 2: n = varint(s); break;
    default: fail_msg("wire type %d", (int)(key & 7));
    }
    assert_true(n <= (uint64_t)(s->end - s->p));
    *bytes = (struct span){s->p, s->p + n};
    s->p += n;
    return (key & 7) == 2 ? n : fixed(bytes->p, (int)n);
}

static void text(char *out, size_t room, struct span s)
{
    size_t n = (size_t)(s.end - s.p);
    assert_true(n < room);
    memcpy(out, s.p, n);
    out[n] = 0;
}

enum { KEY_DOUBLE_1 = 1 << 3 | 1, KEY_INT_1 = 1 << 3, KEY_INT_2 = 2 << 3, KEY_BYTES_1 = 1 << 3 | 2 };
enum { KEY_FLOAT_2 = 2 << 3 | 5, KEY_BYTES_3 = 3 << 3 | 2, KEY_BYTES_5 = 5 << 3 | 2, KEY_BYTES_7 = 7 << 3 | 2 };

static void decode_value(struct span s, struct event *ev)
{
    uint64_t key;
    struct span inside;
    while (s.p < s.end) {
        uint64_t v = item(&s, &key, &inside);
        uint32_t bits = (uint32_t)v;
        if (key == KEY_BYTES_1) text(ev->tag, sizeof ev->tag, inside);
        else if (key == KEY_FLOAT_2) memcpy(&ev->value, &bits, 4), ev->has_value++;
        else fail_msg("key %d in a summary's value", (int)key);
    }
}

static void decode_event(struct span s, struct event *ev)
{
    uint64_t key, inner_key;
    struct span inside, value;
    *ev = (struct event){0};
    while (s.p < s.end) {
        uint64_t v = item(&s, &key, &inside);
        if (key == KEY_DOUBLE_1) memcpy(&ev->wall_time, &v, 8);
        else if (key == KEY_INT_2) ev->step = (int64_t)v;
        else if (key == KEY_BYTES_3) text(ev->version, sizeof ev->version, inside);
        else if (key == KEY_BYTES_5 || key == KEY_BYTES_7) {
            uint64_t inner = item(&inside, &inner_key, &value);
            assert_true(inside.p == inside.end);
            if (key == KEY_BYTES_5) {
                assert_int_equal(inner_key, KEY_BYTES_1);
                decode_value(value, ev);
            } else {
                assert_int_equal(inner_key, KEY_INT_1);
                ev->session_status = (int)inner;
            }
        } else fail_msg("key %d in an event", (int)key);
    }
}

/* All events of a file; the count. */
static int decode_file(const char *path, struct event *out, int room)
{
    char *text;
    size_t bytes;
    struct err e = {0};
    if (fs_read_all(path, (size_t)1 << 30, &text, &bytes, &e) != OK) fail_msg("%s", e.text);
    const unsigned char *p = (const unsigned char *)text;
    int n = 0;
    for (size_t at = 0; at < bytes; n++) {
        assert_true(bytes - at >= 16 && n < room);
        uint64_t length = fixed(p + at, 8);
        assert_int_equal(fixed(p + at + 8, 4), masked(crc32c(p + at, 8)));
        assert_true(length <= bytes - at - 16);
        const unsigned char *data = p + at + 12;
        assert_int_equal(fixed(data + length, 4), masked(crc32c(data, length)));
        decode_event((struct span){data, data + length}, &out[n]);
        at += 16 + length;
    }
    xfree(text);
    return n;
}

/* ---- the tests ---- */

static int setup(void **state)
{
    char *dir = scratch_new();
    *state = fs_join(dir, "tensorboard"); /* tb_open makes this one */
    xfree(dir);
    return 0;
}

static int teardown(void **state)
{
    *strrchr(*state, '/') = 0;
    scratch_free(*state);
    return 0;
}

static void test_crc_vectors(void **state)
{
    (void)state; /* RFC 3720, appendix B.4, and the usual check value */
    unsigned char b[32] = {0};
    assert_int_equal(crc32c((const unsigned char *)"123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c(b, 32), 0x8a9136aau);
    memset(b, 0xff, 32);
    assert_int_equal(crc32c(b, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++) b[i] = (unsigned char)i;
    assert_int_equal(crc32c(b, 32), 0x46dd794eu);
}

static void test_values_come_back(void **state)
{
    static const struct {
        const char *tag;
        int64_t step;
        double value;
    } in[] = {
        {"train/loss", 0, 10.8249},
        {"train/loss", 1, 10.5},
        {"lr", 127, 3e-4},
        {"lr", 128, -0.0},
        {"Größe", 16384, 1e30},
        {"", (int64_t)1 << 40, 1e-42},
        {"nan", 3, NAN},
        {"inf", 3, -INFINITY},
        {"huge", 4, 1e300},
        {"minus", -1, 1},
    };
    enum { N = sizeof in / sizeof in[0] };
    struct tb *tb;
    struct err e = {0};
    struct event ev[N + 2];
    double before = clock_wall_s();
    assert_int_equal(tb_open(&tb, *state, &e), OK);
    for (int i = 0; i < N; i++) tb_scalar(tb, in[i].tag, in[i].step, in[i].value);
    assert_int_equal(tb_flush(tb, &e), OK);
    assert_int_equal(decode_file(tb_path(tb), ev, N + 2), N + 1);
    assert_string_equal(ev[0].version, "brain.Event:2");
    assert_int_equal(ev[0].has_value, 0);
    for (int i = 0; i < N; i++) {
        const struct event *v = &ev[i + 1];
        float want = (float)in[i].value;
        assert_string_equal(v->tag, in[i].tag);
        assert_int_equal(v->step, in[i].step);
        assert_int_equal(v->has_value, 1);
        assert_true(isnan(want) ? isnan(v->value) : memcmp(&v->value, &want, 4) == 0);
        assert_string_equal(v->version, "");
        assert_true(v->wall_time >= before && v->wall_time <= clock_wall_s());
    }
    assert_int_equal(tb_close(tb, &e), OK);
}

static void test_file_name(void **state)
{
    struct tb *tb;
    char host[256] = "", want[400];
    assert_int_equal(tb_open(&tb, *state, NULL), OK);
    const char *name = strrchr(tb_path(tb), '/') + 1;
    long long seconds;
    assert_int_equal(sscanf(name, "events.out.tfevents.%lld.", &seconds), 1);
    assert_true(fabs((double)seconds - clock_wall_s()) < 60);
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    snprintf(want, sizeof want, "events.out.tfevents.%lld.%s", seconds, host);
    assert_string_equal(name, want);
    tb_close(tb, NULL);
}

/* A resumed run leaves the earlier file as it was, and its own file sorts after it even within one second. */
static void test_resume_makes_a_new_file(void **state)
{
    struct tb *first, *second;
    struct event ev[8];
    assert_int_equal(tb_open(&first, *state, NULL), OK);
    tb_scalar(first, "loss", 1, 3);
    tb_scalar(first, "loss", 2, 2);
    char *path = xstrdup(tb_path(first));
    assert_int_equal(tb_close(first, NULL), OK);
    assert_int_equal(tb_open(&second, *state, NULL), OK);
    assert_true(strcmp(tb_path(second), path) > 0);
    tb_restart(second, 2);
    tb_scalar(second, "loss", 2, 1.5);
    tb_flush(second, NULL);
    assert_int_equal(decode_file(path, ev, 8), 3);
    assert_int_equal(decode_file(tb_path(second), ev, 8), 3);
    assert_int_equal(ev[1].session_status, 1);
    assert_int_equal(ev[1].step, 2);
    assert_int_equal(ev[2].session_status, 0);
    assert_true(ev[2].value == 1.5f);
    tb_close(second, NULL);
    xfree(path);
}

/* Long runs reach the disk without a flush, in order. */
static void test_many_events(void **state)
{
    enum { N = 5000 };
    struct tb *tb;
    struct event *ev = xcalloc(N + 1, sizeof *ev);
    assert_int_equal(tb_open(&tb, *state, NULL), OK);
    for (int i = 0; i < N; i++) tb_scalar(tb, "x", i, i * 0.25);
    assert_true(fs_size(tb_path(tb)) > N * 20);
    assert_int_equal(tb_flush(tb, NULL), OK);
    assert_int_equal(decode_file(tb_path(tb), ev, N + 1), N + 1);
    for (int i = 0; i < N; i++) assert_true(ev[i + 1].step == i && ev[i + 1].value == (float)(i * 0.25));
    tb_close(tb, NULL);
    xfree(ev);
}

static void test_no_directory(void **state)
{
    struct tb *tb = (void *)1;
    struct err e = {0};
    char path[500];
    snprintf(path, sizeof path, "%s-file", (char *)*state);
    assert_int_equal(fs_write_atomic(path, "x", 1, NULL), OK);
    assert_true(tb_open(&tb, path, &e) < 0); /* a file is in the way */
    assert_null(tb);
    assert_non_null(strstr(e.text, path));
}

/* The first failure stays: the file size limit stands in for a full disk. */
static void test_failure_is_sticky(void **state)
{
    struct tb *tb;
    struct err e = {0};
    struct rlimit old, small;
    assert_int_equal(tb_open(&tb, *state, NULL), OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 100;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 10; i++) tb_scalar(tb, "loss", i, 1);
    int rc = tb_flush(tb, &e);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(rc, ERR_IO);
    assert_non_null(strstr(e.text, tb_path(tb)));
    int64_t size = fs_size(tb_path(tb));
    tb_scalar(tb, "loss", 11, 1);
    e = (struct err){0};
    assert_int_equal(tb_flush(tb, &e), ERR_IO);
    assert_int_equal(fs_size(tb_path(tb)), size);
    assert_int_equal(tb_close(tb, &e), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc_vectors),
        cmocka_unit_test_setup_teardown(test_values_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_resume_makes_a_new_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_events, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failure_is_sticky, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
