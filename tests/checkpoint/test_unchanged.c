/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps link */
/* Incremental saves: what stands still is linked, and every checkpoint is what was saved, whatever changes, whatever is
 * removed, over several ranks, and where the file system knows no links; a number of the whole state that no cut into
 * boxes changes. */
#include "state.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/str.h"
#include "checkpoint/manifest.h"
#include "checkpoint/published.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/unchanged.h"

static bool no_links;
int __real_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to);
int __wrap_link(const char *from, const char *to)
{
    if (no_links) errno = EPERM;
    return no_links ? -1 : __real_link(from, to);
}

/* Rank r of n holds the rows r, r + 1, ... of its share of every tensor; what has no rows is rank 0's. */
static int64_t part_of(struct ckpt_tensor *t, const int *version, int rank, int n_ranks)
{
    int64_t n = 0;
    for (int k = 0; k < N_KNOWN; k++) {
        struct region box = region_whole(&state_all[k].shape);
        if (!box.nd && rank) continue;
        if (box.nd) region_split(state_all[k].shape.n[0], rank, n_ranks, &box.lo[0], &box.hi[0]);
        t[n++] = known_tensor(k, version[k], box);
    }
    return n;
}

/* Saves tensor k in generation version[k]; *written: of all ranks. */
static void save(const char *root, int64_t step, const int *version, int n_ranks, int keep,
                 struct ckpt_written *written)
{
    struct err e;
    struct ckpt_info info = {.step = step, .tokens = 7, .seed = 7, .keep = keep, .incremental = true};
    *written = (struct ckpt_written){0};
    assert_ok(ckpt_save_begin(root, step, &e));
    for (int r = 0; r < n_ranks; r++) {
        struct ckpt_tensor t[N_KNOWN];
        struct ckpt_written w;
        int64_t n = part_of(t, version, r, n_ranks);
        assert_ok(ckpt_save_rank_since(root, step, r, t, n, &w, &e));
        for (int64_t i = 0; i < n; i++) xfree(t[i].p);
        written->written += w.written;
        written->linked += w.linked;
    }
    assert_ok(ckpt_save_publish(root, n_ranks, &info, &e));
}

static void no_problem(void *ctx, const char *text)
{
    (void)ctx;
    fail_msg("%s", text);
}

static void check(const char *path, const int *version)
{
    struct err e;
    struct ckpt *c;
    assert_ok(ckpt_open(&c, path, &e));
    assert_int_equal(ckpt_verify(c, no_problem, NULL), 0);
    for (int k = 0; k < N_KNOWN; k++) {
        struct ckpt_tensor wanted = known_whole(k, version[k]), got = known_whole(k, version[k] + 1);
        assert_ok(ckpt_load(c, &got, 1, &e));
        assert_memory_equal(got.p, wanted.p, (size_t)region_volume(&wanted.box) * dtype_bytes(wanted.dtype));
        xfree(wanted.p);
        xfree(got.p);
    }
    ckpt_close(c);
}

static char *path_of(const char *root, int64_t step, const char *file)
{
    char *dir = published_dir(root, step), *path = file ? fs_join(dir, file) : xstrdup(dir);
    xfree(dir);
    return path;
}

static int links_of(const char *root, int64_t step, const char *file)
{
    struct stat st;
    char *path = path_of(root, step, file);
    int n = stat(path, &st) ? 0 : (int)st.st_nlink;
    xfree(path);
    return n;
}

enum { N_FROZEN = 5 }; /* param and master stand still, the rest does not */
static const char still_name[] = "still-00000-1.safetensors";

static void step_of(int *version, int step)
{
    for (int k = 0; k < N_KNOWN; k++) version[k] = k < N_FROZEN ? 1 : step;
}

static void what_stands_still_is_linked(void **state)
{
    (void)state;
    char *root = scratch_new();
    int version[N_KNOWN];
    struct ckpt_written w[6];
    for (int step = 1; step <= 5; step++) {
        step_of(version, step);
        save(root, step, version, 1, step < 5 ? 0 : 2, &w[step]);
        char *path = path_of(root, step, NULL);
        check(path, version);
        xfree(path);
    }
    assert_int_equal(w[1].linked + w[2].linked,
                     0); /* the first has all in one file; the second writes what stands still */
    assert_true(w[3].linked > 0 && w[4].linked == w[3].linked && w[4].written == w[3].written);
    assert_int_equal(w[3].linked + w[3].written, w[2].written);
    assert_int_equal(links_of(root, 5, still_name), 2); /* of 4 and 5: keep removed the others, and no byte of these */
    assert_int_equal(links_of(root, 4, still_name), 2);
    assert_int_equal(links_of(root, 5, "boxes-00000.safetensors"), 1);
    step_of(version, 4);
    char *path = path_of(root, 4, NULL);
    check(path, version);
    xfree(path);
    scratch_free(root);
}

/* A frozen tensor changes: its file is not linked, what stays still gets a new one. */
static void what_changes_later_is_written(void **state)
{
    (void)state;
    char *root = scratch_new();
    int version[N_KNOWN];
    struct ckpt_written w;
    for (int step = 1; step <= 6; step++) {
        step_of(version, step);
        version[1] = step < 4 ? 1 : 2;
        save(root, step, version, 1, 0, &w);
        check(root, version);
        assert_int_equal(w.linked > 0, step == 3 || step >= 5);
    }
    assert_int_equal(links_of(root, 6, still_name), 0);
    assert_true(links_of(root, 6, "still-00000-2.safetensors") > 1);
    scratch_free(root);
}

/* Any tensor of three ranks may change at any save, steps are saved twice, the oldest go: all that are left are right.
 */
static void any_history(void **state)
{
    (void)state;
    struct dice d = {.seed = 5};
    for (int story = 0; story < 3; story++) {
        char *root = scratch_new();
        int version[N_KNOWN] = {0}, at[41][N_KNOWN], linked = 0;
        bool there[41] = {false};
        int ranks = 3;
        for (int save_no = 0; save_no < 14; save_no++) {
            int step = 1 + (int)roll(&d, 9);
            if (roll(&d, 8) == 0) ranks = 1 + (int)roll(&d, 3);
            for (int k = 0; k < N_KNOWN; k++) version[k] += roll(&d, story % 3 ? 6 : 2) == 0;
            struct ckpt_written w;
            save(root, step, version, ranks, 4, &w);
            linked += w.linked > 0;
            memcpy(at[step], version, sizeof version);
            there[step] = true;
            for (int s = 1; s <= 9; s++) {
                char *path = path_of(root, s, NULL);
                if (there[s] && fs_exists(path)) check(path, at[s]);
                xfree(path);
            }
        }
        assert_true(linked > 0 || story % 3 == 0);
        scratch_free(root);
    }
}

static void where_no_links_are(void **state)
{
    (void)state;
    char *root = scratch_new();
    int version[N_KNOWN];
    struct ckpt_written w;
    no_links = true;
    for (int step = 1; step <= 4; step++) {
        step_of(version, step);
        save(root, step, version, 1, 2, &w);
        check(root, version);
        assert_int_equal(w.linked, 0);
    }
    no_links = false;
    scratch_free(root);
}

static void collect(void *ctx, const char *text) { str_printf(ctx, "%s\n", text); }

/* Flips a byte of a linked file: its size and header are as they were, so it is linked on, and found by name. */
static void damage_is_named_in_all(void **state)
{
    (void)state;
    char *root = scratch_new(), *path, byte;
    int version[N_KNOWN];
    struct err e;
    struct ckpt_written w;
    for (int step = 1; step <= 3; step++) {
        step_of(version, step);
        save(root, step, version, 1, 0, &w);
    }
    path = path_of(root, 3, still_name);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, -1, SEEK_END);
    byte = (char)(fgetc(f) ^ 1);
    fseek(f, -1, SEEK_END);
    fputc(byte, f);
    fclose(f);
    xfree(path);
    for (int step = 2; step <= 3; step++) {
        struct ckpt *c;
        struct str said = {0};
        path = path_of(root, step, NULL);
        assert_ok(ckpt_open(&c, path, &e));
        assert_int_equal(ckpt_verify(c, collect, &said), 1);
        assert_non_null(strstr(said.p, still_name));
        assert_non_null(strstr(said.p, step == 2 ? "is in step-00000003" : "is in step-00000002"));
        ckpt_close(c);
        str_free(&said);
        char *first = path_of(root, 1, NULL);
        assert_true(!ckpt_shared(path, first, still_name));
        xfree(first);
        xfree(path);
    }
    step_of(version, 1);
    path = path_of(root, 1, NULL);
    check(path, version);
    xfree(path);
    /* Cut short, it is not linked any more: the state in memory is written. */
    path = path_of(root, 3, still_name);
    assert_int_equal(truncate(path, 5000), 0);
    xfree(path);
    path = path_of(root, 2, NULL);
    assert_ok(fs_remove_tree(path, &e));
    xfree(path);
    step_of(version, 4);
    save(root, 4, version, 1, 0, &w);
    assert_int_equal(w.linked, 0);
    check(root, version);
    scratch_free(root);
}

/* A byte that a disk changed under a linked file is found within STILL_TURNS saves, whichever it is, and written again
 * from memory. */
static void damage_is_mended_in_turns(void **state)
{
    (void)state;
    for (int box = 0; box < N_FROZEN; box += 2) {
        char *root = scratch_new(), *path;
        int version[N_KNOWN], links = 0;
        struct ckpt_written w;
        struct err e;
        struct ckpt *c;
        for (int step = 1; step <= 3; step++) {
            step_of(version, step);
            save(root, step, version, 1, 2, &w);
        }
        path = path_of(root, 3, still_name);
        struct safetensors *s;
        assert_ok(safetensors_open(&s, path, &e));
        assert_int_equal(safetensors_count(s), N_FROZEN);
        int64_t at = safetensors_at(s, box)->at;
        safetensors_close(s);
        FILE *f = fopen(path, "r+");
        assert_non_null(f);
        fseek(f, at, SEEK_SET);
        char byte = (char)(fgetc(f) ^ 8);
        fseek(f, at, SEEK_SET);
        fputc(byte, f);
        fclose(f);
        xfree(path);
        for (int step = 4; step < 4 + STILL_TURNS; step++) {
            step_of(version, step);
            save(root, step, version, 1, 2, &w);
            links += w.linked > 0;
        }
        assert_int_equal(links, STILL_TURNS - 1); /* once it was written */
        assert_ok(ckpt_open(&c, root, &e));
        assert_int_equal(ckpt_verify(c, no_problem, NULL), 0);
        ckpt_close(c);
        check(root, version);
        scratch_free(root);
    }
}

/* Boxes begin where a page does, or at a multiple of the power of two that divides their bytes: what is read and
 * written in whole pages stays so, and stripes of a parallel file system (megabytes) are not split for nothing. */
static void boxes_begin_aligned(void **state)
{
    (void)state;
    static const int64_t sizes[] = {3 << 20, 4096, 12288, 4100, 7, 1 << 16, 5000, 2};
    enum { N = sizeof sizes / sizeof *sizes };
    char *root = scratch_new();
    struct err e;
    struct ckpt_tensor t[N];
    char name[N][8];
    for (int i = 0; i < N; i++) {
        struct shape shape = {1, {sizes[i]}};
        snprintf(name[i], sizeof name[i], "t%d", i);
        t[i] = (struct ckpt_tensor){.group = "m",
                                    .name = name[i],
                                    .dtype = DT_U8,
                                    .shape = shape,
                                    .box = region_whole(&shape),
                                    .p = xcalloc((size_t)sizes[i], 1)};
    }
    struct ckpt_info info = {.step = 1};
    assert_ok(ckpt_save(root, &info, t, N, &e));
    char *path = path_of(root, 1, "boxes-00000.safetensors");
    struct safetensors *s;
    assert_ok(safetensors_open(&s, path, &e));
    assert_int_equal(safetensors_count(s), N);
    int64_t least = INT64_MAX;
    for (int i = 0; i < N; i++) {
        const struct safetensors_entry *x = safetensors_at(s, i);
        int64_t align = (int64_t)x->bytes & -(int64_t)x->bytes;
        if (align > 4096) align = 4096;
        if (x->at % align) fail_msg("%s of %zu bytes begins at %lld", x->name, x->bytes, (long long)x->at);
        if (x->at < least) least = x->at;
    }
    assert_int_equal(least % 4096, 0);
    safetensors_close(s);
    for (int i = 0; i < N; i++) xfree(t[i].p);
    xfree(path);
    scratch_free(root);
}

/* The header of a file of the same size is another: not linked. */
static void a_foreign_file_is_not_linked(void **state)
{
    (void)state;
    char *root = scratch_new(), *path;
    int version[N_KNOWN];
    struct ckpt_written w;
    for (int step = 1; step <= 3; step++) {
        step_of(version, step);
        save(root, step, version, 1, 0, &w);
    }
    path = path_of(root, 3, still_name);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, 8, SEEK_SET);
    char head[4096], *name;
    assert_int_equal(fread(head, 1, 4000, f), 4000);
    head[4000] = 0;
    assert_non_null(name = strstr(head, "embed"));
    fseek(f, 8 + (name - head), SEEK_SET);
    fputc('E', f);
    fclose(f);
    xfree(path);
    step_of(version, 4);
    save(root, 4, version, 1, 0, &w);
    assert_int_equal(w.linked, 0);
    check(root, version);
    scratch_free(root);
}

/* Of a tensor of several chunks the last byte changes: nothing of it stands still. Through an access, too. */
static int from_memory(void *ctx, int64_t offset, size_t bytes, void *dst, struct err *e)
{
    (void)e;
    memcpy(dst, (char *)ctx + offset, bytes);
    return OK;
}

static void the_last_chunk_counts(void **state)
{
    (void)state;
    enum { BYTES = 9 << 20 };
    static const struct ckpt_access access = {.to_host = from_memory};
    struct err e;
    struct shape shape = {1, {BYTES}};
    unsigned char *p = xcalloc(BYTES, 1), *got = xmalloc(BYTES);
    for (int away = 0; away < 2; away++) {
        char *root = scratch_new();
        for (int step = 1; step <= 4; step++) {
            struct ckpt_tensor t = {"m", "large", DT_U8, shape, region_whole(&shape), p, NULL, NULL};
            struct ckpt_info info = {.step = step};
            struct ckpt_written w;
            struct ckpt *c;
            if (away) t.p = NULL, t.access = &access, t.ctx = p;
            if (step == 4) p[BYTES - 1] ^= 1;
            assert_ok(ckpt_save_begin(root, step, &e));
            assert_ok(ckpt_save_rank_since(root, step, 0, &t, 1, &w, &e));
            assert_ok(ckpt_save_publish(root, 1, &info, &e));
            assert_int_equal(w.linked > BYTES, step == 3);
            assert_ok(ckpt_open(&c, root, &e));
            t.p = got, t.access = NULL;
            assert_ok(ckpt_load(c, &t, 1, &e));
            assert_memory_equal(got, p, BYTES);
            assert_int_equal(ckpt_verify(c, no_problem, NULL), 0);
            ckpt_close(c);
        }
        scratch_free(root);
    }
    xfree(got);
    xfree(p);
}

static uint64_t state_of(const char *root, uint64_t *of_tensor)
{
    struct err e;
    struct ckpt *c;
    uint64_t all;
    assert_ok(ckpt_open(&c, root, &e));
    assert_true(ckpt_state(c, &all));
    for (int k = 0; k < N_KNOWN; k++)
        assert_true(ckpt_tensor_state(c, ckpt_find(c, state_all[k].group, state_all[k].name), &of_tensor[k]));
    ckpt_close(c);
    return all;
}

/* One number for the state, the same over any number of ranks; each tensor's changes with it alone. */
static void one_number_for_every_layout(void **state)
{
    (void)state;
    uint64_t first = 0, of_first[N_KNOWN], of[N_KNOWN];
    struct ckpt_written w;
    int version[N_KNOWN] = {0};
    for (int ranks = 1; ranks <= 4; ranks++) {
        char *root = scratch_new();
        save(root, 3, version, ranks, 0, &w);
        uint64_t all = state_of(root, of);
        if (ranks == 1) first = all, memcpy(of_first, of, sizeof of);
        assert_true(all == first && !memcmp(of, of_first, sizeof of));
        scratch_free(root);
    }
    for (int changed = 0; changed < N_KNOWN; changed++) {
        char *root = scratch_new();
        version[changed]++;
        save(root, 3, version, 2, 0, &w);
        assert_true(state_of(root, of) != first);
        for (int k = 0; k < N_KNOWN; k++) assert_int_equal(of[k] == of_first[k], k != changed);
        version[changed]--;
        scratch_free(root);
    }
    char *root = scratch_new();
    save(root, 4, version, 2, 0, &w); /* the same values at another step are another state */
    assert_true(state_of(root, of) != first && !memcmp(of, of_first, sizeof of));
    scratch_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_stands_still_is_linked),
        cmocka_unit_test(what_changes_later_is_written),
        cmocka_unit_test(any_history),
        cmocka_unit_test(where_no_links_are),
        cmocka_unit_test(damage_is_named_in_all),
        cmocka_unit_test(damage_is_mended_in_turns),
        cmocka_unit_test(boxes_begin_aligned),
        cmocka_unit_test(a_foreign_file_is_not_linked),
        cmocka_unit_test(one_number_for_every_layout),
        cmocka_unit_test(the_last_chunk_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
