/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* suite: wraps engine_step ckpt_save_publish ckpt_save_rank tile_rate_registers */
/* Checkpoints in memory: a job that is killed at any moment goes on from the step before, whichever host loses its
 * memory, with the bits of a run that nobody disturbed; what is damaged, of another run or another's is refused by
 * name, and the run goes on from what is left. The linker puts this file before the trainer's calls (--wrap), where it
 * kills the process. */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>

#include "child.h"
#include "engine/engine.h"
#include "keep/memckpt.h"
#include "runs.h"
#include "told_rate.h"
#include "sanitized.h"

enum { RANKS = 3, STEPS = 8 };

/* ---- killed at a chosen call ---- */
static struct {
    const char *where;
    int64_t step;
    atomic_int calls;
    int nth;
} plan;

static void strike(const char *where)
{
    if (plan.where && !strcmp(plan.where, where) && atomic_fetch_add(&plan.calls, 1) + 1 == plan.nth) raise(SIGKILL);
}

bool __real_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r);
bool __wrap_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r);
bool __wrap_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r)
{
    if (step == plan.step) strike("step");
    if (step == plan.step && plan.where && !strcmp(plan.where, "full")) raise(SIGKILL);
    return __real_engine_step(g, b, step, lr, r);
}

int __real_ckpt_save_publish(const char *root, int n_ranks, const struct ckpt_info *info, struct err *e);
int __wrap_ckpt_save_publish(const char *root, int n_ranks, const struct ckpt_info *info, struct err *e);
int __wrap_ckpt_save_publish(const char *root, int n_ranks, const struct ckpt_info *info, struct err *e)
{
    if (info->parted && info->step == plan.step) strike("publish");
    int rc = __real_ckpt_save_publish(root, n_ranks, info, e);
    if (info->parted && info->step == plan.step) strike("published");
    return rc;
}

int __real_ckpt_save_rank(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n,
                          struct err *e);
int __wrap_ckpt_save_rank(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n,
                          struct err *e);
int __wrap_ckpt_save_rank(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n,
                          struct err *e)
{
    if (step == plan.step) strike("write");
    int rc = __real_ckpt_save_rank(root, step, rank, t, n, e);
    if (step == plan.step && rank == 1 && plan.where && !strcmp(plan.where, "full"))
        return err_set(e, ERR_IO, "boxes-00001.safetensors: no space left");
    return rc;
}

/* ---- runs ---- */
#define LAYOUT "parallel.dp_replicate=1", "parallel.dp_shard=3", "parallel.zero=2", "batch.global=6", "model.layers=1"

struct request {
    const struct folder *f;
    const char *name;
    int here; /* ranks of a host */
    char memory[160], hosts[64];
};

static int train_memory(struct request *q, int ranks, const char *const *more, struct trainer_result *r, struct err *e)
{
    const char *keys[32];
    int n = 0;
    snprintf(q->hosts, sizeof q->hosts, "comm.ranks_per_host=%d", q->here);
    keys[n++] = q->memory;
    keys[n++] = q->hosts;
    for (int i = 0; more && more[i]; i++) keys[n++] = more[i];
    keys[n] = NULL;
    return train_ranks(q->f, q->name, ranks, keys, r, e);
}

static int body(void *arg)
{
    struct trainer_result r;
    struct err e;
    return train_memory(arg, RANKS, KEYS("checkpoint.memory_every=1", "checkpoint.every=0", LAYOUT), &r, &e) ? 1 : 0;
}

static char *memory_of(const struct request *q) { return fs_join(q->f->dir, "memory"); }

static struct request request(const struct folder *f, const char *name)
{
    struct request q = {.f = f, .name = name, .here = 1};
    struct err e;
    char *dir = memory_of(&q);
    assert_int_equal(fs_remove_tree(dir, &e), OK);
    assert_int_equal(mkdir(dir, 0700), 0);
    snprintf(q.memory, sizeof q.memory, "checkpoint.memory_dir=%s", dir);
    xfree(dir);
    return q;
}

/* The run is killed there; what it left is in memory. */
static void killed(struct request *q, const char *where, int64_t step, int nth)
{
    plan.where = where;
    plan.step = step;
    plan.nth = nth;
    atomic_store(&plan.calls, 0);
    assert_int_equal(child_end(body, q), -SIGKILL);
    plan.where = NULL;
}

static void shell(const char *how, ...)
{
    char line[600];
    va_list args;
    va_start(args, how);
    vsnprintf(line, sizeof line, how, args);
    va_end(args);
    if (system(line)) fail_msg("%s", line); /* NOLINT: a test's own folder */
}

/* What a run killed after step 6 left behind, again and again: killed once. */
static struct request dead(const struct folder *f, const char *name)
{
    struct request q = request(f, name);
    char *kept = fs_join(f->dir, "kept"), *run = fs_join(f->dir, name);
    if (!fs_is_dir(kept)) {
        killed(&q, "step", 6, 1);
        shell("mkdir %s && cp -a %s %s/run && cp -a %s/memory %s/memory", kept, run, kept, f->dir, kept);
    }
    forget_run(f, name);
    shell("cp -a %s/run %s && rm -rf %s/memory && cp -a %s/memory %s/memory", kept, run, f->dir, kept, f->dir);
    xfree(run);
    xfree(kept);
    return q;
}

static struct trainer_result go_on(struct request *q)
{
    struct trainer_result r;
    struct err e;
    if (train_memory(q, RANKS, KEYS("checkpoint.memory_every=1", "checkpoint.every=0", LAYOUT), &r, &e))
        fail_msg("%s: %s", q->name, e.text);
    assert_int_equal(r.steps, STEPS);
    return r;
}

/* The only directory of a run in memory, or NULL. xfree it. */
static char *the_run(const struct request *q)
{
    char **names, *above = memory_of(q), *path = NULL;
    int n;
    struct err e;
    assert_int_equal(fs_list(above, &names, &n, &e), OK);
    assert_true(n <= 1);
    if (n) path = fs_join(above, names[0]);
    fs_list_free(names, n);
    xfree(above);
    return path;
}

static char *host_dir(const struct request *q, int host)
{
    char name[32], *run = the_run(q);
    assert_non_null(run);
    snprintf(name, sizeof name, "host-%d", host);
    char *path = fs_join(run, name);
    xfree(run);
    return path;
}

static void lose(const struct request *q, int host)
{
    struct err e;
    char *path = host_dir(q, host);
    assert_true(fs_is_dir(path));
    assert_int_equal(fs_remove_tree(path, &e), OK);
    xfree(path);
}

static void same_end(const struct folder *f, const char *name) { same_boxes_of(f, "reference", name, STEPS, RANKS); }

static void nothing_left(const struct request *q)
{
    char *run = the_run(q);
    assert_null(run);
}

static void reference(const struct folder *f)
{
    struct trainer_result r;
    struct err e;
    if (train_ranks(f, "reference", RANKS, KEYS("checkpoint.every=0", LAYOUT), &r, &e)) fail_msg("%s", e.text);
}

/* ---- tests ---- */
static void partners_are_on_other_hosts(void **state)
{
    (void)state;
    enum { N = 9 };
    static const int hosts[][N] = {{0, 0, 0, 1, 1, 1, 2, 2, 2},
                                   {0, 1, 2, 0, 1, 2, 0, 1, 2},
                                   {0, 0, 0, 0, 0, 1, 1, 2, 3}};
    int partner[N], kept[N];
    for (size_t k = 0; k < sizeof hosts / sizeof *hosts; k++) {
        memset(kept, 0, sizeof kept);
        memckpt_partners(hosts[k], N, partner);
        for (int r = 0; r < N; r++) {
            assert_in_range(partner[r], 0, N - 1);
            assert_int_not_equal(hosts[k][partner[r]], hosts[k][r]);
            kept[partner[r]]++;
        }
        if (k < 2) /* hosts alike: nobody keeps more than one copy */
            for (int r = 0; r < N; r++) assert_int_equal(kept[r], 1);
    }
    static const int alone[N];
    memckpt_partners(alone, N, partner);
    for (int r = 0; r < N; r++) assert_int_equal(partner[r], -1);
    assert_int_equal(memckpt_bytes(100, 1), 200);
    assert_int_equal(memckpt_bytes(100, 3), 400);
}

static void any_host_may_be_lost(void **state)
{
    struct folder *f = *state;
    for (int lost = -1; lost<RANKS; lost += CASE_STRIDE> 1 ? 2 : 1) {
        struct request q = dead(f, "dead");
        if (lost >= 0) lose(&q, lost);
        struct trainer_result r = go_on(&q);
        assert_in_range(r.first_step, 5, 6); /* steps 0 to 5 are done; of the last one some hosts may lack the end */
        same_end(f, "dead");
        nothing_left(&q);
        forget_run(f, "dead");
    }
}

/* Arrays that wait on disk are read by each rank for itself: a host that lost its files gets those. */
static void offloaded_state_survives_a_host(void **state)
{
    struct folder *f = *state;
    char away[200];
    snprintf(away, sizeof away, "memory.offload_to=%s", f->dir);
    for (int lost = 0; lost < RANKS; lost += 2) {
        struct request q = dead(f, "dead");
        struct trainer_result r;
        struct err e;
        lose(&q, lost);
        if (train_memory(&q, RANKS,
                         KEYS("checkpoint.memory_every=1", "checkpoint.every=0", "memory.offload=[optimizer]", away,
                              LAYOUT),
                         &r, &e))
            fail_msg("%s", e.text);
        assert_in_range(r.first_step, 5, 6);
        same_end(f, "dead");
        nothing_left(&q);
        forget_run(f, "dead");
    }
}

static void two_hosts_lost_is_said(void **state)
{
    struct folder *f = *state;
    struct request q = dead(f, "dead");
    lose(&q, 1);
    lose(&q, 2);
    struct trainer_result r = go_on(&q);
    assert_int_equal(r.first_step, 0); /* nothing on disk */
    same_end(f, "dead");
    forget_run(f, "dead");
}

/* A crash between any two of the hosts' publications leaves one step whole, also when a host is lost with it. */
static void killed_while_saving(void **state)
{
    struct folder *f = *state;
    static const char *const where[] = {"write", "publish", "published"};
    for (size_t k = 0; k < sizeof where / sizeof *where; k++)
        for (int nth = 1; nth <= RANKS; nth += CASE_STRIDE > 1 ? RANKS : 1) {
            if (k == 0 && nth > 1) continue;
            struct request q = request(f, "saving");
            killed(&q, where[k], 5, nth);
            if (nth % 2) lose(&q, nth - 1);
            struct trainer_result r = go_on(&q);
            assert_in_range(r.first_step, 4, 5);
            if (k == 0) assert_int_equal(r.first_step, 4);
            if (k == 2 && nth == RANKS) assert_int_equal(r.first_step, 5); /* all hosts have it: the older one waits */
            same_end(f, "saving");
            nothing_left(&q);
            forget_run(f, "saving");
        }
}

/* Changes byte `at` (from the end where negative) of a file of the first so many hosts that have it. */
static void flip(const struct request *q, const char *file, long at, int hosts)
{
    for (int h = 0; h < hosts; h++) {
        char path[400], *host = host_dir(q, h);
        DIR *d = opendir(host);
        assert_non_null(d);
        for (struct dirent *x; (x = readdir(d));) {
            if (strncmp(x->d_name, "step-", 5)) continue;
            snprintf(path, sizeof path, "%s/%s/%s", host, x->d_name, file);
            int fd = open(path, O_RDWR);
            if (fd < 0) continue;
            unsigned char c;
            off_t to = lseek(fd, at, at < 0 ? SEEK_END : SEEK_SET);
            assert_int_equal(pread(fd, &c, 1, to), 1);
            c ^= 4;
            assert_int_equal(pwrite(fd, &c, 1, to), 1);
            close(fd);
        }
        closedir(d);
        xfree(host);
    }
}

static void damage_is_not_loaded(void **state)
{
    struct folder *f = *state;
    static const struct {
        const char *file;
        long at;
    } rows[] = {{"boxes-00002.safetensors", -3},
                {"boxes-00000.safetensors", 20},
                {"manifest.json", 40},
                {"manifest.json", -20},
                {"config.yaml", 9},
                {"run.id", 0}};
    for (size_t i = 0; i<sizeof rows / sizeof *rows; i += CASE_STRIDE> 1 ? 3 : 1) {
        struct request q = dead(f, "dead");
        flip(&q, rows[i].file, rows[i].at, RANKS);
        struct trainer_result r = go_on(&q);
        assert_int_equal(r.first_step, 0);
        same_end(f, "dead");
        nothing_left(&q);
        forget_run(f, "dead");
    }
}

/* One copy of each file is enough. */
static void the_other_copy_is_used(void **state)
{
    struct folder *f = *state;
    struct request q = dead(f, "dead");
    flip(&q, "boxes-00000.safetensors", -3, 1);
    flip(&q, "manifest.json", 40, 1);
    flip(&q, "boxes-00001.safetensors", 30, 2);
    struct trainer_result r = go_on(&q);
    assert_in_range(r.first_step, 5, 6);
    same_end(f, "dead");
    nothing_left(&q);
    forget_run(f, "dead");
}

/* A host that was away comes back with a copy of that very step which this run made before it began anew, of other
 * weights: it is whole, and of the run, and not taken for the one that the other hosts have. */
static int slower(void *arg)
{
    struct trainer_result r;
    struct err e;
    return train_memory(arg, RANKS,
                        KEYS("checkpoint.memory_every=1", "checkpoint.every=0", "optimizer.lr=0.001", LAYOUT), &r, &e)
               ? 1
               : 0;
}

static void an_old_copy_is_not_taken(void **state)
{
    struct folder *f = *state;
    struct request q = request(f, "old");
    plan.where = "step";
    plan.step = 6;
    plan.nth = 1;
    atomic_store(&plan.calls, 0);
    assert_int_equal(child_end(slower, &q), -SIGKILL);
    char *run = the_run(&q);
    shell("cp -a %s/host-1 %s/away && rm -rf %s/host-*/step-* %s/host-*/latest", run, f->dir, run, run);
    killed(&q, "step", 6, 1); /* from the beginning, as the reference was made */
    shell("test -d %s/host-1/step-00000006 && rm -rf %s/host-1 && mv %s/away %s/host-1", run, run, f->dir, run);
    shell("test -d %s/host-1/step-00000006", run);
    assert_in_range(go_on(&q).first_step, 5, 6);
    same_end(f, "old");
    nothing_left(&q);
    xfree(run);
    forget_run(f, "old");
}

/* The newest on disk is chosen where memory has none as new. */
static void disk_is_next(void **state)
{
    struct folder *f = *state;
    struct request q = request(f, "disk");
    struct trainer_result r;
    struct err e;
    if (train_memory(&q, RANKS, KEYS("checkpoint.memory_every=2", "checkpoint.every=0", "run.steps=5", LAYOUT), &r, &e))
        fail_msg("%s", e.text);
    nothing_left(&q);
    killed(&q, "step", 7, 1); /* goes on from disk at 5, dies with 7 in memory */
    lose(&q, 0);
    lose(&q, 1);
    r = go_on(&q);
    assert_int_equal(r.first_step, 5);
    forget_run(f, "disk");
}

/* Memory has an older step than the disk: it is not gone back to. */
#define SELDOM "checkpoint.memory_every=3", "checkpoint.every=4", "optimizer.schedule.name=constant", LAYOUT
static int seldom(void *arg)
{
    struct trainer_result r;
    struct err e;
    return train_memory(arg, RANKS, KEYS(SELDOM), &r, &e) ? 1 : 0;
}

static void older_memory_is_left(void **state)
{
    struct folder *f = *state;
    struct request q = request(f, "seldom");
    struct trainer_result r;
    struct err e;
    plan.where = "step";
    plan.step = 5; /* 3 is in memory, 4 on disk */
    plan.nth = 1;
    atomic_store(&plan.calls, 0);
    assert_int_equal(child_end(seldom, &q), -SIGKILL);
    plan.where = NULL;
    if (train_memory(&q, RANKS, KEYS(SELDOM), &r, &e)) fail_msg("%s", e.text);
    assert_int_equal(r.first_step, 4);
    nothing_left(&q);
    forget_run(f, "seldom");
}

/* Two ranks share a host and compare its files in turns: what one of them finds damaged the other does not read. */
static void damage_is_known_to_the_host(void **state)
{
    struct folder *f = *state;
    struct request q = request(f, "shared");
    q.here = 2;
    killed(&q, "step", 6, 1);
    flip(&q, "boxes-00000.safetensors", -3, 1);
    flip(&q, "boxes-00001.safetensors", -3, 1);
    assert_in_range(go_on(&q).first_step, 5, 6);
    same_end(f, "shared");
    nothing_left(&q);
    forget_run(f, "shared");
}

/* Another layout, other hosts: boxes are routed as from a checkpoint, and what lies on a host that is no more is not
 * there. */
static void another_layout_reads_it(void **state)
{
    struct folder *f = *state;
    static const char *const layout[] =
        {"parallel.tp=2", "batch.global=6", "model.layers=1", "checkpoint.every=0", "checkpoint.memory_every=3", NULL};
    for (int here = 1; here <= 3; here += 2) {
        struct request q = request(f, "other");
        struct trainer_result r;
        struct err e;
        q.here = here;
        killed(&q, "step", 6, 1);
        /* Of three hosts two are left, with all files between them; three ranks of one host are two ranks of it now. */
        if (train_memory(&q, 2, layout, &r, &e)) fail_msg("%s", e.text);
        assert_in_range(r.first_step, 5, 6);
        assert_int_equal(r.steps, STEPS);
        forget_run(f, "other");
    }
}

static void what_is_not_ours_is_refused(void **state)
{
    struct folder *f = *state;
    struct trainer_result r;
    struct err e;
    struct request q = dead(f, "dead");
    char *run = the_run(&q);
    assert_int_equal(chmod(run, 0755), 0);
    assert_int_equal(train_memory(&q, RANKS, KEYS("checkpoint.memory_every=1", LAYOUT), &r, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, run));
    assert_non_null(strstr(e.text, "mode 755"));
    assert_int_equal(chmod(run, 0700), 0);
    /* Another name of the run: the earlier one's memory is removed, and the run begins afresh. */
    char *id = fs_join(f->dir, "dead/id");
    assert_int_equal(fs_write_atomic(id, "0123456789abcdeX\n", 17, &e), OK);
    assert_int_equal(train_memory(&q, RANKS, KEYS("checkpoint.memory_every=1", LAYOUT), &r, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "dead/id"));
    assert_int_equal(fs_write_atomic(id, "0123456789abcdef\n", 17, &e), OK);
    r = go_on(&q);
    assert_int_equal(r.first_step, 0);
    same_end(f, "dead");
    nothing_left(&q);
    xfree(id);
    xfree(run);
    forget_run(f, "dead");
}

/* A person chose what the run goes on from: what is in memory is of no use to it any more. */
static void a_choice_forgets_memory(void **state)
{
    struct folder *f = *state;
    struct trainer_result r;
    struct err e;
    struct request q = dead(f, "dead");
    if (train_memory(&q, RANKS, KEYS("checkpoint.memory_every=1", "checkpoint.resume=never", LAYOUT), &r, &e))
        fail_msg("%s", e.text);
    assert_int_equal(r.first_step, 0);
    nothing_left(&q);
    forget_run(f, "dead");
}

/* A key was changed that the state cannot follow: the run stops, as it does at a checkpoint on disk, and nothing is
 * lost by that. */
static void a_changed_key_stops_it(void **state)
{
    struct folder *f = *state;
    struct trainer_result r;
    struct err e;
    struct request q = dead(f, "dead");
    assert_int_equal(train_memory(&q, RANKS,
                                  KEYS("checkpoint.memory_every=1", "checkpoint.every=0", LAYOUT, "run.seed=77"), &r,
                                  &e),
                     ERR_REQUEST);
    assert_non_null(strstr(e.text, "run.seed"));
    assert_non_null(strstr(e.text, "in memory"));
    r = go_on(&q);
    assert_in_range(r.first_step, 5, 6);
    same_end(f, "dead");
    forget_run(f, "dead");
}

/* What lies where this run's memory would, of a run with another ID, is not taken for its own. */
static void of_another_run(void **state)
{
    struct folder *f = *state;
    struct err e;
    struct request q = dead(f, "dead");
    char *run = the_run(&q), *path = fs_join(f->dir, "dead/id"), *id;
    size_t n;
    assert_int_equal(fs_read_all(path, 100, &id, &n, &e), OK);
    id[16] = 0;
    char *to = xstrdup(run), *at = strstr(to, id);
    assert_non_null(at);
    memcpy(at, "0123456789abcdef", 16);
    assert_int_equal(rename(run, to), 0);
    assert_int_equal(fs_write_atomic(path, "0123456789abcdef\n", 17, &e), OK);
    struct trainer_result r = go_on(&q);
    assert_int_equal(r.first_step, 0);
    same_end(f, "dead");
    xfree(to);
    xfree(id);
    xfree(path);
    xfree(run);
    forget_run(f, "dead");
}

/* ---- two runs below one path ---- */
static void move_box(const struct folder *f, const char *from, const char *to)
{
    char *a = fs_join(f->dir, from), *b = fs_join(f->dir, to);
    assert_int_equal(rename(a, b), 0);
    xfree(b);
    xfree(a);
}

/* Containers have folders of their own below the same path, and one memory: each run goes on from its own state, and
 * neither removes the other's, whichever starts or ends while the other one is down. */
static void containers_share_memory(void **state)
{
    struct folder *f = *state;
    struct request q = request(f, "box/run");
    killed(&q, "step", 6, 1); /* one of them */
    move_box(f, "box", "box_1");
    killed(&q, "step", 4, 1); /* the other one begins at 0, or it would not come by step 4 */
    move_box(f, "box", "box_2");
    move_box(f, "box_1", "box");
    assert_in_range(go_on(&q).first_step, 5, 6);
    same_end(f, "box/run");
    forget_run(f, "box");
    move_box(f, "box_2", "box");
    assert_in_range(go_on(&q).first_step, 3, 4);
    same_end(f, "box/run");
    nothing_left(&q);
    forget_run(f, "box");
}

/* Each save has a line with the number of its state, which is that of a run that kept none: the last one's is the
 * checkpoint's on disk. */
static void states_are_told(void **state)
{
    struct folder *f = *state;
    struct request q = request(f, "told");
    struct trainer_result r;
    struct err e;
    char kept[17] = "", saved[17] = "";
    int64_t n_kept = 0;
    size_t n;
    if (train_memory(&q, RANKS, KEYS("checkpoint.memory_every=2", "checkpoint.every=0", LAYOUT), &r, &e))
        fail_msg("%s", e.text);
    char *text = read_file(f, "told", "metrics.jsonl", &n);
    for (char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
        struct json *line;
        assert_int_equal(json_parse(&line, p, (size_t)(end - p), "metrics.jsonl", &e), OK);
        const struct json *k = json_get(line, "kept"), *s = json_get(line, "saved");
        if (k) {
            assert_int_equal(json_int(json_get(k, "step"), -1), 2 * ++n_kept);
            assert_int_equal(json_int(json_get(line, "step"), -1), 2 * n_kept);
            snprintf(kept, sizeof kept, "%s", json_string(json_get(k, "state"), NULL, ""));
        }
        if (s) snprintf(saved, sizeof saved, "%s", json_string(json_get(s, "state"), NULL, ""));
        json_free(line);
    }
    xfree(text);
    assert_int_equal(n_kept, STEPS / 2);
    assert_int_equal(strlen(kept), 16);
    assert_string_equal(kept, saved);
    forget_run(f, "told");
}

/* Elsewhere there is nothing to go on from: where it was is said once, and again to who asks for no memory at all. */
static void moved_memory_is_said(void **state)
{
    struct folder *f = *state;
    struct err e;
    struct request q = dead(f, "dead");
    char other[160], *was = the_run(&q), *said;
    int rc;
    snprintf(other, sizeof other, "checkpoint.memory_dir=%s/other", f->dir);
    shell("mkdir %s/other", f->dir);
    for (int again = 0; again < 2; again++) {
        said =
            train_heard(f, "dead", RANKS,
                        KEYS("checkpoint.memory_every=1", "checkpoint.every=0", "run.steps=2", other, LAYOUT), &rc, &e);
        bool names = strstr(said, was) && strstr(said, "checkpoint.memory_dir is another one now");
        if (rc || names != !again) fail_msg("%d: %s", again, rc ? e.text : said);
        xfree(said);
    }
    forget_run(f, "dead");
    struct request unused = dead(f, "dead");
    said = train_heard(f, "dead", RANKS, KEYS("checkpoint.every=0", "run.steps=2", LAYOUT), &rc, &e);
    if (rc || !strstr(said, was) || !strstr(said, "checkpoint.memory_every is 0"))
        fail_msg("%s %s", rc ? e.text : "", said);
    xfree(said);
    assert_true(fs_is_dir(was));
    xfree(was);
    forget_run(f, "dead");
    request(f, unused.name);
}

/* No room on one host: nobody has that step, and no host keeps a piece of it; the step before is gone on from. */
static void half_a_save_goes(void **state)
{
    struct folder *f = *state;
    struct request q = request(f, "full");
    killed(&q, "full", 6, 1);
    for (int host = 0; host < RANKS; host++) {
        char *dir = host_dir(&q, host), **names;
        int n;
        struct err e;
        assert_int_equal(fs_list(dir, &names, &n, &e), OK);
        for (int i = 0; i < n; i++)
            if (strcmp(names[i], "step-00000005") && strcmp(names[i], "latest") && strcmp(names[i], "lock"))
                fail_msg("host %d keeps %s", host, names[i]);
        assert_true(n >= 1);
        fs_list_free(names, n);
        xfree(dir);
    }
    assert_int_equal(go_on(&q).first_step, 5);
    forget_run(f, "full");
}

static void no_room_is_borne(void **state)
{
    struct folder *f = *state;
    struct trainer_result r;
    struct err e;
    struct request q = request(f, "place");
    char key[200];
    snprintf(key, sizeof key, "checkpoint.memory_dir=%s/none", f->dir);
    assert_int_equal(train_ranks(f, "place", RANKS, KEYS("checkpoint.memory_every=1", key, LAYOUT), &r, &e),
                     ERR_REQUEST);
    assert_non_null(strstr(e.text, "checkpoint.memory_dir"));
    forget_run(f, "place");
    assert_int_equal(train_memory(&q, RANKS, KEYS("checkpoint.memory_every=1", "parallel.servers=1", "batch.global=6"),
                                  &r, &e),
                     ERR_REQUEST);
    if (!strstr(e.text, "checkpoint.memory_every")) fail_msg("%s", e.text);
}

static int set_up(void **state)
{
    static struct folder f;
    folder_open(&f);
    reference(&f);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    folder_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partners_are_on_other_hosts),
        cmocka_unit_test(any_host_may_be_lost),
        cmocka_unit_test(offloaded_state_survives_a_host),
        cmocka_unit_test(two_hosts_lost_is_said),
        cmocka_unit_test(killed_while_saving),
        cmocka_unit_test(damage_is_not_loaded),
        cmocka_unit_test(the_other_copy_is_used),
        cmocka_unit_test(an_old_copy_is_not_taken),
        cmocka_unit_test(disk_is_next),
        cmocka_unit_test(older_memory_is_left),
        cmocka_unit_test(damage_is_known_to_the_host),
        cmocka_unit_test(another_layout_reads_it),
        cmocka_unit_test(what_is_not_ours_is_refused),
        cmocka_unit_test(a_choice_forgets_memory),
        cmocka_unit_test(a_changed_key_stops_it),
        cmocka_unit_test(of_another_run),
        cmocka_unit_test(containers_share_memory),
        cmocka_unit_test(states_are_told),
        cmocka_unit_test(moved_memory_is_said),
        cmocka_unit_test(half_a_save_goes),
        cmocka_unit_test(no_room_is_borne),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
