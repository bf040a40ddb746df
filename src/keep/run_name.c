/* SPDX-License-Identifier: Apache-2.0 */
/* A number rather than a path or a time: directories are moved and copied, and clocks agree. 64 bits: of 10^6 runs two
 * have the same name with a chance of 3e-8. */
#include "keep/run_name.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

#define DIGITS 16

enum held digits_read(const char *path, const char *what, uint64_t *number, struct err *why)
{
    char *text = NULL;
    size_t n = 0;
    enum held held = held_path(path, why);
    *number = 0;
    if (held != HELD_KNOWN) return held;
    int rc = fs_read_all(path, 64, &text, &n, why);
    if (!rc && n && text[n - 1] == '\n') text[--n] = 0;
    if (!rc && (n != DIGITS || hash64_parse(text, number) || !*number))
        rc = err_set(why, ERR_CORRUPT,
                     "%s: wanted %d digits of 0-9 and a-f, which name %s; remove the file, and the run gets another "
                     "name",
                     path, DIGITS, what);
    else if (rc && why) why->code = ERR_IO; /* it is there */
    xfree(text);
    return rc ? HELD_UNKNOWN : HELD_KNOWN;
}

static int write_digits(const char *path, uint64_t number, struct err *e)
{
    char line[DIGITS + 2];
    hash64_print(line, number);
    line[DIGITS] = '\n';
    return fs_write_atomic(path, line, DIGITS + 1, e);
}

int digits_draw(const char *path, uint64_t *number, struct err *e)
{
    *number = 0;
    while (!*number)
        if (getrandom(number, sizeof *number, 0) != sizeof *number)
            return err_errno(e, ERR_IO, errno, "no random number for %s", path);
    return write_digits(path, *number, e);
}

/* ---- of a run ---- */

static char *path_of(const char *run_dir) { return fs_join(run_dir, "name"); }

enum held run_name_read(const char *run_dir, uint64_t *name, struct err *why)
{
    char *path = path_of(run_dir);
    enum held held = digits_read(path, "this run in the manifests of its checkpoints", name, why);
    xfree(path);
    return held;
}

int run_name_check(const char *run_dir, const struct ckpt *c, struct err *e)
{
    uint64_t mine;
    enum held held = run_name_read(run_dir, &mine, e);
    if (held == HELD_UNKNOWN) return e ? (int)e->code : ERR_IO;
    if (held == HELD_NONE || !ckpt_run(c) || ckpt_run(c) == mine) return OK;
    return err_set(e, ERR_REQUEST,
                   "%s: is of run %016" PRIx64 ", and this is run %016" PRIx64
                   " (%s/name): it was put here, or the run was to begin afresh and was stopped; go on from it with "
                   "checkpoint.resume=%s, or begin afresh with checkpoint.resume=never",
                   ckpt_path(c), ckpt_run(c), mine, run_dir, strrchr(ckpt_path(c), '/') + 1);
}

int run_name_settle(const char *run_dir, const struct run_begins *b, uint64_t *name, struct err *e)
{
    char *path = path_of(run_dir);
    uint64_t mine = 0, known = b->from && b->own ? ckpt_run(b->from) : b->fetched;
    bool another = b->chosen && !b->own; /* afresh because somebody said so, or from another's */
    enum held held = another ? HELD_NONE : run_name_read(run_dir, &mine, e);
    int rc = held == HELD_UNKNOWN ? (e ? (int)e->code : ERR_IO) : OK;
    if (!rc && another) rc = digits_draw(path, name, e);
    else if (!rc && known && known != mine) rc = write_digits(path, *name = known, e);
    else if (!rc && held == HELD_NONE) rc = digits_draw(path, name, e);
    else if (!rc) *name = mine;
    xfree(path);
    return rc;
}
