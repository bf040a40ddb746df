/* SPDX-License-Identifier: Apache-2.0 */
/* tutti bench checkpoint: saving and loading the state of a known model, beside a plain program that writes and reads
 * as many bytes of one file in the same folder.
 *
 * The plain writer writes pieces of 8 MiB one after the other into a new file, syncs it, and renames it over the one
 * before, which is what publishing a checkpoint promises: through the system's cache, and past it (O_DIRECT), of which
 * the faster one counts and is named. The plain reader reads it in such pieces. Both work on memory that is there
 * already. They take turns with saving and loading, so that what else the disk has to do falls on both alike, and the
 * best of each counts. Before a reading the system is asked to forget what it keeps of the file, and how much of it is
 * in memory all the same is measured, since a reading from there is no reading from a disk. Then steps, and the pause
 * of one that begins a save beside the steps (checkpoint.async).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "benchmark/bench_models.h"
#include "cli/cli.h"
#include "keep/async_save.h"
#include "site/site.h"
#include "keep/state_compare.h"

static const struct preset {
    const char *name;
    const char *keys[8];
} presets[] = {
    {"gpt2-124m",
     {"model.family=gpt2", "model.layers=12", "model.hidden=768", "model.heads=12", "model.vocab=50257",
      "model.tie_embeddings=true", "model.max_positions=1024"}},
    {"tiny",
     {"model.family=llama", "model.layers=2", "model.hidden=64", "model.heads=4", "model.ffn=176", "model.vocab=257"}},
};

struct request {
    const char *model_name, *dir;
    int64_t runs, seq, micro, threads;
    bool json;
    struct cli_keys keys;
};
#define AT(field) offsetof(struct request, field)
static const struct cli_option options[] = {
    {"--model", "NAME", CLI_CHOICE, AT(model_name), .choices = "gpt2-124m|tiny", .help = "with its optimizer's state"},
    {"--dir", "FOLDER", CLI_TEXT, AT(dir),
     .help = "on the disk that is measured; default: here. What is written is removed"},
    {"--runs", "N", CLI_INT, AT(runs), .lo = 1, .hi = 1000, .help = "of each, in turns; the best counts"},
    {"--seq", "S", CLI_INT, AT(seq), .lo = 1, .hi = 1 << 20, .help = "tokens of a sequence of the timed step"},
    {"--micro", "B", CLI_INT, AT(micro), .lo = 1, .hi = 1 << 20, .help = "sequences of that step"},
    {"--threads", "N", CLI_INT, AT(threads), .lo = 1, .hi = 1024, .help = "default: all cores"},
    CLI_JSON(struct request, json),
};
static const struct cli_table table = {
    .command = "bench checkpoint",
    .usage = "[options] [key=value ...]",
    .about = "Times saving and loading a checkpoint beside a plain writer and reader of as many bytes with the same\n"
             "durability in the same folder, and how long a step waits for a save beside the steps "
             "(checkpoint.async).\n",
    CLI_OPTIONS(options),
    .takes_keys = true,
    .keys = AT(keys),
};

struct figures {
    int64_t bytes;
    double buffered_s, direct_s; /* of the plain writer; direct_s 0: the file system has no such way */
    double plain_write_s, save_s, plain_read_s, load_s, step_s, pause_s, async_s;
    double plain_cached, load_cached; /* shares that were in memory before the last reading */
};

enum { PIECE = 8 << 20 };

static void keep_best(double *best, double from)
{
    double s = clock_now_s() - from;
    if (*best == 0 || s < *best) *best = s;
}

/* What the system keeps of a file's bytes is forgotten, where it does what it is asked. */
static void forget(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

/* The share of a file that is in memory. */
static double resident(const char *path)
{
    int64_t bytes = fs_size(path), page = sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page, n = 0;
    int fd = bytes > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    void *p = mmap(NULL, to_size(bytes), PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *in = xcalloc(to_size(pages), 1);
    if (p != MAP_FAILED && !mincore(p, to_size(bytes), in))
        for (int64_t i = 0; i < pages; i++) n += in[i] & 1;
    if (p != MAP_FAILED) munmap(p, to_size(bytes));
    xfree(in);
    close(fd);
    return (double)n / (double)pages;
}

/* direct: past the system's cache, but for what is behind the last whole page. *cannot: there is no such way here. */
static int plain_write(const char *dir, const char *path, const char *p, int64_t bytes, bool direct, bool *cannot,
                       struct err *e)
{
    enum { PAGE = 4096 };
    char *fresh = fs_join(dir, "plain.new");
    int past = direct ? O_DIRECT : 0, rc = OK;
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | past, 0666);
    *cannot = fd < 0 && direct && errno == EINVAL;
    if (fd < 0) rc = err_errno(e, ERR_IO, errno, "%s: cannot be created", fresh);
    int why = 0;
    for (int64_t at = 0; !rc && at < bytes && !why;) {
        int64_t left = bytes - at;
        if (past && left < PIECE && left >= PAGE) left -= left % PAGE;
        else if (past && left < PAGE && fcntl(fd, F_SETFL, past = 0)) why = errno;
        ssize_t n = write(fd, p + at, to_size(left < PIECE ? left : PIECE));
        *cannot = n < 0 && past && errno == EINVAL;
        if (n < 0 && errno != EINTR) why = errno;
        at += n > 0 ? n : 0;
    }
    if (!rc && !why && fsync(fd)) why = errno;
    if (!rc && close(fd) && !why) why = errno;
    if (why) rc = err_errno(e, ERR_IO, why, "%s: cannot be written", fresh);
    if (!rc) rc = fs_rename(fresh, path, e);
    xfree(fresh);
    return rc;
}

static int plain_read(const char *path, char *to, struct err *e)
{
    struct fs_file f;
    int rc = fs_file_open(&f, path, e);
    if (rc) return rc;
    for (int64_t at = 0; at < f.bytes && !rc; at += PIECE)
        rc = fs_file_read(&f, at, to_size(f.bytes - at < PIECE ? f.bytes - at : PIECE), to + at, e);
    fs_file_close(&f);
    return rc;
}

static int load(struct site *s, const char *root, struct err *e)
{
    char *path;
    struct ckpt *c = NULL;
    int rc = ckpt_find_latest(root, &path, e);
    if (!rc) rc = ckpt_open(&c, path, e);
    if (!rc) rc = save_check(s->engine, c, NULL, e);
    if (!rc) rc = save_resume(s->engine, c, NULL, OK, NULL, e);
    if (!rc) rc = state_compare(s->engine, &s->ranks, c, e);
    ckpt_close(c);
    xfree(path);
    return rc;
}

/* Returns the largest share of one of its files that is in memory all the same. */
static double forget_newest(const char *root)
{
    double cached = 0;
    char *path, **names;
    int n;
    if (ckpt_find_latest(root, &path, NULL) || !path) return 0;
    if (fs_list(path, &names, &n, NULL) == OK) {
        for (int i = 0; i < n; i++) {
            char *file = fs_join(path, names[i]);
            forget(file);
            double share = str_ends(names[i], ".safetensors") ? resident(file) : 0;
            cached = share > cached ? share : cached;
            xfree(file);
        }
        fs_list_free(names, n);
    }
    xfree(path);
    return cached;
}

static int plain_writers(const char *dir, const char *path, const char *memory, struct figures *f, struct err *e)
{
    bool cannot;
    double from = clock_now_s();
    int rc = plain_write(dir, path, memory, f->bytes, false, &cannot, e);
    if (!rc) keep_best(&f->buffered_s, from);
    from = clock_now_s();
    if (!rc) rc = plain_write(dir, path, memory, f->bytes, true, &cannot, e);
    if (!rc) keep_best(&f->direct_s, from);
    if (rc && cannot) rc = OK;
    f->plain_write_s = f->direct_s > 0 && f->direct_s < f->buffered_s ? f->direct_s : f->buffered_s;
    return rc;
}

static const char *plain_writer(const struct figures *f)
{
    return f->plain_write_s == f->buffered_s ? "buffered" : "direct";
}

/* One after the other: plain writers, save, plain reader, load. */
static int turn(struct site *s, const char *dir, const struct save_info *info, char *memory, struct figures *f,
                struct err *e)
{
    char *path = fs_join(dir, "plain"), *root = fs_join(dir, "checkpoints");
    int rc = plain_writers(dir, path, memory, f, e);
    double from = clock_now_s();
    if (!rc) rc = save_checkpoint(s->engine, &s->ranks, info, e);
    if (!rc) keep_best(&f->save_s, from);
    forget(path);
    f->plain_cached = resident(path);
    from = clock_now_s();
    if (!rc) rc = plain_read(path, memory, e);
    if (!rc) keep_best(&f->plain_read_s, from);
    f->load_cached = forget_newest(root);
    from = clock_now_s();
    if (!rc) rc = load(s, root, e);
    if (!rc) keep_best(&f->load_s, from);
    xfree(path);
    xfree(root);
    return rc;
}

/* A step of random tokens; the second of two counts, and then a save beside the steps. */
static int steps(struct site *s, const struct config *c, const struct save_info *info, struct figures *f, struct err *e)
{
    int64_t seq = c->model.seq_len, n = c->batch.global * seq;
    int32_t *memory = xmalloc(to_size(4 * n) * sizeof *memory), *targets = memory + n, *positions = targets + n,
            *docs = positions + n;
    struct engine_batch b = {.tokens = memory, .targets = targets, .positions = positions, .docs = docs};
    b.n = c->batch.global;
    b.n_trained = c->batch.global * bench_fill(memory, c);
    struct engine_report r;
    struct async_save *x;
    int rc = OK;
    for (int i = 0; i < 2 && !rc; i++) {
        double from = clock_now_s();
        engine_step(s->engine, &b, i, 1e-4, &r);
        f->step_s = clock_now_s() - from;
        rc = engine_status(s->engine, e);
    }
    for (int i = 0; i < 2 && !rc; i++) { /* the first touches every page of the room */
        double from = clock_now_s();
        rc = async_save_begin(&x, s->engine, &s->ranks, info, e);
        f->pause_s = clock_now_s() - from;
        if (!rc) rc = async_save_finish(x, e);
        f->async_s = clock_now_s() - from;
        if (x) async_save_free(x);
    }
    xfree(memory);
    return rc;
}

static int measure(const struct request *q, const struct config *c, const char *dir, struct figures *f, struct err *e)
{
    struct site s;
    int rc = site_open(&s, &(struct site_config){.config = c}, e);
    if (rc) return rc;
    char *root = fs_join(dir, "checkpoints");
    struct save_info info = {.root = root, .step = 1, .keep = 1, .config_text = "", .cfg = c};
    engine_init(s.engine);
    f->bytes = store_saved_bytes(&s.engine->store);
    char *memory = mem_pages_new(to_size(f->bytes) + 1);
    if (!memory) rc = err_set(e, ERR_MEMORY, "no %lld bytes of memory for the plain writer", (long long)f->bytes);
    if (!rc) rc = snapshot_take(&s.engine->snapshot, &s.engine->store, s.engine->stream, s.engine->snapshot_room.p, e);
    if (!rc) memcpy(memory, s.engine->snapshot_room.p, to_size(f->bytes)); /* not zeros, which a disk may not keep */
    for (int64_t i = 0; i < q->runs && !rc; i++, info.step++) rc = turn(&s, dir, &info, memory, f, e);
    if (memory) mem_pages_free(memory, to_size(f->bytes) + 1);
    if (!rc) rc = steps(&s, c, &info, f, e);
    xfree(root);
    site_close(&s);
    return rc;
}

static int make_config(const struct request *q, struct config *c, struct arena *a, struct err *e)
{
    char *keys[CLI_MAX_KEYS + 16];
    int n = 0;
    const struct preset *p = &presets[strcmp(q->model_name, presets[0].name) != 0];
    for (int i = 0; i < 8 && p->keys[i]; i++) keys[n++] = arena_strdup(a, p->keys[i]);
    keys[n++] = arena_printf(a, "model.seq_len=%lld", (long long)q->seq);
    keys[n++] = arena_printf(a, "batch.global=%lld", (long long)q->micro);
    keys[n++] = arena_printf(a, "batch.micro=%lld", (long long)q->micro);
    keys[n++] = arena_printf(a, "run.threads=%lld", (long long)q->threads);
    keys[n++] = arena_strdup(a, "precision.recipe=bf16");
    keys[n++] = arena_strdup(a, "checkpoint.async=true");
    for (int i = 0; i < q->keys.n; i++) keys[n++] = q->keys.p[i];
    int rc = cli_config(c, NULL, a, NULL, keys, n, 1, e);
    if (!rc && !c->checkpoint.async)
        rc = err_set(e, ERR_REQUEST, "checkpoint.async=false: the pause of such a save is measured here");
    return rc ? rc : bench_device(c, e);
}

static void print(const struct request *q, const struct figures *f)
{
    char a[32];
    double mb = 1e-6 * (double)f->bytes;
    printf("%s, %s of state in %s\n\n", q->model_name, str_bytes(a, (double)f->bytes), q->dir);
    printf("  %-22s %9s %9s\n", "", "s", "MB/s");
    printf("  %-22s %9.3f %9.0f  %s\n", "plain write, sync", f->buffered_s, mb / f->buffered_s,
           f->plain_write_s == f->buffered_s ? "the faster way" : "");
    if (f->direct_s > 0)
        printf("  %-22s %9.3f %9.0f  %s\n", "  past the cache", f->direct_s, mb / f->direct_s,
               f->plain_write_s == f->direct_s ? "the faster way" : "");
    printf("  %-22s %9.3f %9.0f  %.0f %% of the plain writer\n", "save", f->save_s, mb / f->save_s,
           100 * f->plain_write_s / f->save_s);
    printf("  %-22s %9.3f %9.0f  %.0f %% of it from memory\n", "plain read", f->plain_read_s, mb / f->plain_read_s,
           100 * f->plain_cached);
    printf("  %-22s %9.3f %9.0f  %.0f %% of the plain reader, %.0f %% of it from memory\n\n", "load", f->load_s,
           mb / f->load_s, 100 * f->plain_read_s / f->load_s, 100 * f->load_cached);
    printf("a step of %lld tokens takes %.3f s; a save beside the steps %.3f s, of which a step waits for %.3f s: %.1f "
           "%% "
           "of a step\n",
           (long long)(q->seq * q->micro), f->step_s, f->async_s, f->pause_s, 100 * f->pause_s / f->step_s);
}

static void print_json(const struct request *q, const struct figures *f)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    json_begin_document(&o, "bench-checkpoint", 1);
    json_put_string(&o, "model", q->model_name);
    json_put_int(&o, "bytes", f->bytes);
    json_put_real(&o, "plain_write_s", f->plain_write_s);
    json_put_string(&o, "plain_writer", plain_writer(f));
    json_put_real(&o, "plain_buffered_s", f->buffered_s);
    if (f->direct_s > 0) json_put_real(&o, "plain_direct_s", f->direct_s);
    else json_put_null(&o, "plain_direct_s");
    json_put_real(&o, "save_s", f->save_s);
    json_put_real(&o, "save_of_plain", f->plain_write_s / f->save_s);
    json_put_real(&o, "plain_read_s", f->plain_read_s);
    json_put_real(&o, "load_s", f->load_s);
    json_put_real(&o, "plain_read_cached", f->plain_cached);
    json_put_real(&o, "load_cached", f->load_cached);
    json_put_real(&o, "load_of_plain", f->plain_read_s / f->load_s);
    json_put_real(&o, "step_s", f->step_s);
    json_put_real(&o, "async_save_s", f->async_s);
    json_put_real(&o, "async_pause_s", f->pause_s);
    json_put_real(&o, "pause_of_step", f->pause_s / f->step_s);
    json_end_object(&o);
    puts(str_text(&s));
    str_free(&s);
}

int cmd_bench_checkpoint(int argc, char **argv)
{
    struct request q = {.model_name = presets[0].name, .dir = ".", .runs = 3, .seq = 1024, .micro = 4};
    struct config c;
    struct figures f = {0};
    struct err e = {0}, later;
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    struct arena *a = arena_new();
    char *dir = arena_printf(a, "%s/tutti-bench-checkpoint-%d", q.dir, (int)getpid());
    rc = make_config(&q, &c, a, &e);
    if (!rc) rc = fs_mkdirs(dir, &e);
    if (!rc) rc = measure(&q, &c, dir, &f, &e);
    if (fs_remove_tree(dir, &later) && !rc) rc = later.code, e = later;
    if (!rc && q.json) print_json(&q, &f);
    if (!rc && !q.json) print(&q, &f);
    arena_free(a);
    return rc ? cli_fail(&e) : 0;
}
