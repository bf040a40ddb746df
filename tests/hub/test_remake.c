/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints made from checkpoints: the same state in any number of files, and the mean of known weights. */
#include "checkpoint/state.h"

#include <fcntl.h>
#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

#include "hub/remake.h"
#include "sanitized.h"

static const char model[] =
    "{\"model\": {\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_act\": \"silu\", "
    "\"hidden_size\": 12, \"intermediate_size\": 20, \"max_position_embeddings\": 32, \"num_attention_heads\": 3, "
    "\"num_hidden_layers\": %d, \"num_key_value_heads\": 1, \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, "
    "\"tie_word_embeddings\": false, \"vocab_size\": 13, \"attention_bias\": false, \"torch_dtype\": \"bfloat16\"}, "
    "\"position\": 77}";

static void save_state(const char *root, int64_t step, int version, int layers)
{
    struct err e;
    char extra[sizeof model + 16];
    snprintf(extra, sizeof extra, model, layers);
    struct ckpt_attachment beside[] = {{.name = "config.yaml", .p = "a: 1\n", .bytes = 5},
                                       {.name = "empty.json", .p = ""}};
    struct ckpt_info info =
        {.step = step, .tokens = 10 * step, .seed = 3, .extra = extra, .attachments = beside, .n_attachments = 2};
    struct ckpt_tensor *t = state_new(version);
    assert_ok(ckpt_save(root, &info, t, N_KNOWN, &e));
    state_free(t, N_KNOWN);
}

static int resharded(const char *from, const char *to, int files, struct err *e)
{
    struct weights *w = NULL;
    int code = weights_open(&w, from, e);
    if (!code) code = remake_reshard(w, to, files, e);
    weights_close(w);
    return code;
}

static int files_of(const char *dir)
{
    struct err e;
    char **names;
    int n, found = 0;
    assert_ok(fs_list(dir, &names, &n, &e));
    for (int i = 0; i < n; i++) found += strstr(names[i], ".safetensors") != NULL;
    fs_list_free(names, n);
    return found;
}

static void count_problem(void *ctx, const char *text)
{
    (void)text;
    ++*(int *)ctx;
}

/* Into 1 to 40 files and from those into one again: every value, every attachment, what the run said, and the one file
 * is, byte for byte, what one rank had written. */
static void any_number_of_files(void **unused)
{
    (void)unused;
    struct err e;
    char *root = scratch_new(), *first = fs_join(root, "first"), *from = fs_join(first, "step-00000004");
    save_state(first, 4, 2, 2);
    for (int files = 1; files <= 40; files += files < 8 ? 1 : 16) {
        char *out = fs_join(root, "out"), *back = fs_join(root, "back"), *made = fs_join(out, "step-00000004"), *text;
        struct ckpt *c;
        size_t n;
        assert_ok(resharded(from, out, files, &e));
        assert_int_equal(files_of(made), files);
        state_check(made, 2);
        assert_ok(ckpt_open(&c, made, &e));
        int problems = 0;
        assert_int_equal(ckpt_verify(c, count_problem, &problems), 0);
        assert_int_equal(ckpt_tokens(c), 40);
        assert_int_equal(ckpt_seed(c), 3);
        assert_int_equal(json_int(json_get(ckpt_extra(c), "position"), 0), 77);
        assert_ok(ckpt_attachment(c, "config.yaml", &text, &n, &e));
        assert_string_equal(text, "a: 1\n");
        xfree(text);
        assert_int_equal(ckpt_n_attachments(c), 2);
        assert_string_equal(ckpt_attachment_name(c, 1), "empty.json");
        assert_ok(resharded(made, back, 1, &e));
        ckpt_close(c);
        char *a = fs_join(from, "boxes-00000.safetensors"), *b = fs_join(back, "step-00000004/boxes-00000.safetensors");
        char *x, *y;
        size_t nx, ny;
        assert_ok(fs_read_all(a, 1 << 20, &x, &nx, &e));
        assert_ok(fs_read_all(b, 1 << 20, &y, &ny, &e));
        assert_int_equal(nx, ny);
        assert_memory_equal(x, y, nx);
        xfree(x);
        xfree(y);
        xfree(a);
        xfree(b);
        assert_ok(fs_remove_tree(out, &e));
        assert_ok(fs_remove_tree(back, &e));
        xfree(out);
        xfree(back);
        xfree(made);
    }
    xfree(from);
    xfree(first);
    scratch_free(root);
}

/* The files are of about the same size: none holds more than its share and a row of the widest tensor. */
static void files_are_even(void **unused)
{
    (void)unused;
    struct err e;
    char *root = scratch_new(), *first = fs_join(root, "first"), *out = fs_join(root, "out");
    struct ckpt *c;
    int64_t all = 0, most = 0;
    save_state(first, 4, 2, 2);
    assert_ok(ckpt_open(&c, first, &e));
    for (int64_t i = 0; i < ckpt_count(c); i++) {
        struct ckpt_entry t = ckpt_at(c, i);
        all += shape_numel(&t.shape) * (int64_t)dtype_bytes(t.dtype);
    }
    assert_ok(resharded(first, out, 4, &e));
    ckpt_close(c);
    assert_ok(ckpt_open(&c, out, &e));
    for (int k = 0; k < 4; k++) {
        char base[32];
        snprintf(base, sizeof base, "boxes-%05d.safetensors", k);
        char *name = fs_join(ckpt_path(c), base);
        int fd = open(name, O_RDONLY);
        uint64_t head;
        assert_int_equal(read(fd, &head, 8), 8);
        close(fd);
        int64_t data = fs_size(name) - 8 - (int64_t)head;
        most = data > most ? data : most;
        xfree(name);
    }
    ckpt_close(c);
    assert_true(most <= all / 4 + 6 * 10 * 4 + 8);
    xfree(first);
    xfree(out);
    scratch_free(root);
}

/* A byte that is not what was written: an error that names the tensor, and nothing is there afterwards. */
static void damage_is_not_copied(void **unused)
{
    (void)unused;
    struct err e;
    char *root = scratch_new(), *first = fs_join(root, "first"), *out = fs_join(root, "out");
    char *file = fs_join(first, "step-00000004/boxes-00000.safetensors");
    save_state(first, 4, 2, 2);
    int64_t size = fs_size(file);
    int fd = open(file, O_RDWR);
    for (int64_t at = size - 2000; at < size; at += 97) {
        char was, now;
        struct ckpt *c;
        assert_int_equal(pread(fd, &was, 1, at), 1);
        now = (char)(was ^ 8);
        assert_int_equal(pwrite(fd, &now, 1, at), 1);
        assert_ok(ckpt_open(&c, first, &e));
        assert_int_equal(resharded(first, out, 3, &e), ERR_CORRUPT);
        assert_non_null(strstr(e.text, "checksum"));
        assert_non_null(strstr(e.text, "was not saved"));
        ckpt_close(c);
        struct ckpt_listing *list;
        int n;
        assert_ok(ckpt_list(out, &list, &n, &e));
        assert_int_equal(n, 0);
        ckpt_list_free(list, n);
        assert_int_equal(pwrite(fd, &was, 1, at), 1);
    }
    close(fd);
    struct ckpt *c;
    assert_ok(ckpt_open(&c, first, &e));
    assert_ok(ckpt_save_begin(out, 4, &e)); /* what a killed call leaves */
    assert_ok(resharded(first, out, 3, &e));
    state_check(out, 2);
    assert_int_equal(resharded(first, out, 3, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "not empty"));
    ckpt_close(c);
    xfree(file);
    xfree(first);
    xfree(out);
    scratch_free(root);
}

/* -- the mean ------------------------------------------------------------------------------------------------- */

static struct weights *opened(const char *path)
{
    struct err e;
    struct weights *w;
    assert_ok(weights_open(&w, path, &e));
    return w;
}

/* Known values are small integers, so a mean in double is exact before it is rounded to the tensor's type. */
static void mean_of_known_weights(void **unused)
{
    (void)unused;
    struct err e;
    char *root = scratch_new(), *out = fs_join(root, "out");
    const double share[3] = {0.5, 0.125, 0.375};
    struct weights *w[3];
    for (int k = 0; k < 3; k++) {
        char name[8];
        snprintf(name, sizeof name, "%d", k);
        char *dir = fs_join(root, name);
        save_state(dir, 5 + k, 1 + 2 * k, 2);
        w[k] = opened(dir);
        xfree(dir);
    }
    assert_ok(remake_average(w, share, 3, out, &e));
    for (int k = 0; k < 3; k++) weights_close(w[k]);
    struct ckpt *c;
    assert_ok(ckpt_open(&c, out, &e));
    assert_int_equal(ckpt_step(c), 7);
    assert_int_equal(ckpt_count(c), 5);
    for (int k = 0; k < 5; k++) {
        const struct known *s = &state_all[k];
        /* A parameter's values are its master's where there is one: those have other values in this made-up state. */
        int of = k < 2 ? k + 3 : k;
        int64_t i = ckpt_find(c, s->group, s->name), n = shape_numel(&s->shape);
        struct region whole = region_whole(&s->shape);
        double *got = xmalloc(to_size(n) * sizeof *got);
        assert_true(i >= 0);
        assert_ok(ckpt_read(c, i, &whole, DT_F64, got, &e));
        for (int64_t j = 0; j < n; j++) {
            double want = 0, rounded;
            unsigned char stored[8];
            for (int v = 0; v < 3; v++) want += share[v] * known_value(of, 1 + 2 * v, j);
            convert(stored, s->dtype, &want, DT_F64, 1);
            convert(&rounded, DT_F64, stored, s->dtype, 1);
            if (got[j] != rounded)
                fail_msg("%s/%s[%lld] is %g, not %g", s->group, s->name, (long long)j, got[j], rounded);
        }
        xfree(got);
    }
    ckpt_close(c);
    xfree(out);
    scratch_free(root);
}

/* A tensor of several pieces of the writer, which end within its rows. */
static void pieces_that_end_in_rows(void **unused)
{
    (void)unused;
    enum { ROWS = 3, COLUMNS = 1100003 };
    struct err e;
    char *root = scratch_new(), *first = fs_join(root, "first"), *out = fs_join(root, "out"),
         *mean = fs_join(root, "mean");
    char extra[sizeof model + 16];
    float *x = xmalloc(ROWS * COLUMNS * sizeof *x), *y = xmalloc(ROWS * COLUMNS * sizeof *y);
    for (int i = 0; i < ROWS * COLUMNS; i++) x[i] = (float)i;
    snprintf(extra, sizeof extra, model, 2);
    struct ckpt_tensor t = {.group = "param", .name = "wide", .dtype = DT_F32, .shape = {2, {ROWS, COLUMNS}}, .p = x};
    t.box = region_whole(&t.shape);
    struct ckpt_info info = {.step = 1, .extra = extra};
    assert_ok(ckpt_save(first, &info, &t, 1, &e));
    assert_ok(resharded(first, out, 2, &e));
    struct weights *w[2] = {opened(first), opened(out)};
    assert_ok(remake_average(w, (const double[2]){0.25, 0.75}, 2, mean, &e));
    weights_close(w[0]);
    weights_close(w[1]);
    for (int k = 0; k < 2; k++) {
        struct ckpt *c;
        assert_ok(ckpt_open(&c, k ? mean : out, &e));
        assert_ok(ckpt_read(c, 0, &t.box, DT_F32, y, &e));
        assert_memory_equal(x, y, ROWS * COLUMNS * sizeof *x);
        ckpt_close(c);
    }
    xfree(x);
    xfree(y);
    xfree(first);
    xfree(out);
    xfree(mean);
    scratch_free(root);
}

static void other_models_are_refused(void **unused)
{
    (void)unused;
    struct err e;
    char *root = scratch_new(), *a = fs_join(root, "a"), *b = fs_join(root, "b"), *out = fs_join(root, "out");
    const double half[2] = {0.5, 0.5};
    save_state(a, 5, 1, 2);
    save_state(b, 6, 2, 3);
    struct weights *w[2] = {opened(a), opened(b)};
    assert_int_equal(remake_average(w, half, 2, out, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "not of one model"));
    assert_false(fs_exists(out));
    weights_close(w[0]);
    weights_close(w[1]);
    xfree(a);
    xfree(b);
    xfree(out);
    scratch_free(root);
}

enum { ROWS = 32768, COLUMNS = 1024 }; /* 128 MiB of fp32 */

static int made_up(void *ctx, int64_t offset, size_t bytes, void *dst, struct err *e)
{
    uint32_t *out = dst;
    (void)ctx, (void)e;
    for (size_t i = 0; i < bytes / 4; i++)
        out[i] = (uint32_t)((offset / 4 + (int64_t)i) * 2654435761) >> 9 | 0x3f000000;
    return OK;
}

static int64_t address_space(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lld", &pages), 1);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

/* A model that does not fit into the memory there is: what may be mapped beside what is already is less than it. */
static void larger_than_memory(void **unused)
{
    (void)unused;
    static const struct ckpt_access source = {.to_host = made_up};
    struct err e;
    struct ckpt *c;
    struct shape shape = {2, {ROWS, COLUMNS}};
    struct ckpt_tensor t = {.group = "master",
                            .name = "large",
                            .dtype = DT_F32,
                            .shape = shape,
                            .box = region_whole(&shape),
                            .access = &source};
    struct ckpt_info info = {.step = 1};
    struct rlimit before, few;
    uint64_t state[2];
    char *root = scratch_new(), *from = fs_join(root, "from"), *to = fs_join(root, "to");
    assert_ok(fs_mkdirs(from, &e));
    assert_ok(ckpt_save(from, &info, &t, 1, &e));
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)address_space() + (80 << 20), .rlim_max = before.rlim_max};
    if (!SANITIZED) assert_int_equal(setrlimit(RLIMIT_AS, &few), 0); /* they map terabytes */
    assert_ok(resharded(from, to, 3, &e));
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    for (int i = 0; i < 2; i++) {
        assert_ok(ckpt_open(&c, i ? to : from, &e));
        assert_true(ckpt_state(c, &state[i]));
        ckpt_close(c);
    }
    assert_true(state[0] == state[1]);
    xfree(to);
    xfree(from);
    scratch_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(larger_than_memory),       cmocka_unit_test(any_number_of_files),
        cmocka_unit_test(files_are_even),           cmocka_unit_test(damage_is_not_copied),
        cmocka_unit_test(mean_of_known_weights),    cmocka_unit_test(pieces_that_end_in_rows),
        cmocka_unit_test(other_models_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
