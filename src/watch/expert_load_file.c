/* SPDX-License-Identifier: Apache-2.0 */
/* What is there must begin with the very bytes that would be written; its records are then walked from the last one
 * back. */
#include "watch/expert_load_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/append.h"

struct expert_load {
    char *path;
    int fd;           /* until it is known where to go on */
    struct append to; /* from then on */
    int layers, rows, experts;
    size_t record_bytes;
    unsigned char *record;
    struct str head;
};

static void put_head(struct expert_load *l, const double *const *load)
{
    struct json_out o = {.s = &l->head};
    json_begin_object(&o, NULL);
    json_put_string(&o, "schema", "tutti.expert_load/1");
    json_begin_array(&o, "layers");
    for (int i = 0; i < l->layers; i++)
        if (load[i]) json_put_int(&o, NULL, i);
    json_end_array(&o);
    json_put_int(&o, "experts", l->experts);
    json_put_string(&o, "dtype", "bf16");
    json_put_int(&o, "record_bytes", (int64_t)l->record_bytes);
    json_end_object(&o);
    while (l->head.n % 64 != 63) str_putc(&l->head, ' ');
    str_putc(&l->head, '\n');
}

static int failed(const struct expert_load *l, const char *what, struct err *e)
{
    return err_errno(e, ERR_IO, errno, "%s: cannot be %s", l->path, what);
}

/* 1: the file begins as ours would, 0: otherwise; < 0: it cannot be read. */
static int same_head(const struct expert_load *l, int64_t bytes, struct err *e)
{
    if (bytes < (int64_t)l->head.n) return 0;
    char *head = xmalloc(l->head.n);
    ssize_t n = pread(l->fd, head, l->head.n, 0);
    if (n >= 0) errno = EIO;
    int same = n == (ssize_t)l->head.n ? !memcmp(head, l->head.p, l->head.n) : failed(l, "read", e);
    xfree(head);
    return same;
}

static int cut(struct expert_load *l, int64_t bytes, int64_t step, struct err *e)
{
    int64_t head = (int64_t)l->head.n, size = (int64_t)l->record_bytes, n = (bytes - head) / size, there;
    for (; n > 0; n--) {
        if (pread(l->fd, &there, sizeof there, head + (n - 1) * size) != sizeof there) return failed(l, "read", e);
        if (there < step) break;
    }
    if (head + n * size < bytes && ftruncate(l->fd, head + n * size)) return failed(l, "cut", e);
    return OK;
}

static int begin(struct expert_load *l, int64_t step, struct err *e)
{
    struct stat st;
    for (int again = 0;; again++) {
        l->fd = open(l->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (l->fd < 0) return failed(l, "opened", e);
        if (fstat(l->fd, &st)) return failed(l, "looked at", e);
        if (st.st_size == 0) return OK;
        int same = step > 1 ? same_head(l, (int64_t)st.st_size, e) : 0;
        if (same) return same < 0 ? same : cut(l, (int64_t)st.st_size, step, e);
        CHECK(!again, "%s came back", l->path);
        close(l->fd);
        l->fd = -1;
        char *to;
        int rc = fs_set_aside(l->path, &to, e);
        if (rc) return rc;
        log_warn("%s is of another run: it was moved to %s", l->path, to);
        xfree(to);
    }
}

int expert_load_open(struct expert_load **out, const char *dir, int64_t step, const double *const *load, int layers,
                     int experts, struct err *e)
{
    struct expert_load *l = xcalloc(1, sizeof *l);
    *out = NULL;
    l->path = fs_join(dir, "expert_load.bin");
    l->fd = -1;
    l->layers = layers;
    l->experts = experts;
    for (int i = 0; i < layers; i++) l->rows += load[i] != NULL;
    l->record_bytes = sizeof(int64_t) + (size_t)l->rows * (size_t)experts * 2;
    l->record = xcalloc(1, l->record_bytes);
    put_head(l, load);
    int rc = begin(l, step, e);
    bool empty = !rc && lseek(l->fd, 0, SEEK_END) == 0;
    if (l->fd >= 0) close(l->fd);
    if (!rc) rc = append_open(&l->to, l->path, e);
    if (!rc && empty) rc = append_add(&l->to, l->head.p, l->head.n, e);
    if (rc) {
        (void)expert_load_close(l, NULL);
        return rc;
    }
    *out = l;
    return OK;
}

/* The upper half of an fp32, rounded to even. Counts are finite. */
static uint16_t bf16_of(double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

int expert_load_add(struct expert_load *l, int64_t step, const double *const *load, struct err *e)
{
    unsigned char *at = l->record;
    memcpy(at, &step, sizeof step);
    at += sizeof step;
    for (int i = 0; i < l->layers; i++)
        for (int k = 0; load[i] && k < l->experts; k++, at += 2) {
            uint16_t v = bf16_of(load[i][k]);
            memcpy(at, &v, 2);
        }
    return append_add(&l->to, l->record, l->record_bytes, e);
}

int expert_load_close(struct expert_load *l, struct err *e)
{
    if (!l) return OK;
    int rc = append_close(&l->to, e);
    str_free(&l->head);
    xfree(l->record);
    xfree(l->path);
    xfree(l);
    return rc;
}
