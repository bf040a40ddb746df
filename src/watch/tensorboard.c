/* SPDX-License-Identifier: Apache-2.0 */
/* tensorboard.c: two small formats, one inside the other, written by hand.
 *
 * A file is a sequence of TFRecords:
 *
 *     u64 length | u32 masked crc of those 8 bytes | data[length] | u32 masked crc of data      (little endian)
 *
 * and each record's data is one protocol buffer message `Event`. A message is a list of (key, value) where
 * key = field number << 3 | wire type, as a varint (7 bits a byte, low bits first, top bit: more follows). Wire
 * types: 0 varint, 1 eight bytes, 2 varint length and bytes (strings and messages), 5 four bytes. What we write:
 *
 *     Event       1 wall_time double | 2 step int64 | 3 file_version string | 5 summary | 7 session_log
 *     Summary     1 value (repeated)
 *     Value       1 tag string | 2 simple_value float
 *     SessionLog  1 status enum (1: START, which is what makes a viewer drop overtaken points)
 *
 * The checksum is CRC-32C (Castagnoli polynomial, reflected 0x82f63b78), rotated right by 15 and offset, so that
 * a checksum of data that itself holds checksums stays useful.
 *
 * Cost: about 60 bytes and a microsecond a scalar; written in blocks of 64 KiB or when flushed. The protobuf
 * library was rejected: four messages of one or two fields do not pay for a dependency.
 */
#include "watch/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"

enum { FLUSH_BYTES = 64 << 10, MAX_NAMES = 1000 };
enum { WIRE_VARINT = 0, WIRE_8_BYTES = 1, WIRE_LENGTH = 2, WIRE_4_BYTES = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

struct tb {
    int fd;
    char *path;
    struct str pending; /* whole records not yet written */
    struct str event;   /* the message being built, kept for its memory */
    struct str inner;   /* a message inside it */
    struct str value;   /* and one inside that */
    struct err failed;  /* sticky: code OK until the first failure */
};

/* ---- bytes ---- */

static void put_fixed(struct str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) str_putc(s, (char)(v >> (8 * i) & 0xff));
}

static void put_varint(struct str *s, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) str_putc(s, (char)((v & 0x7f) | 0x80));
    str_putc(s, (char)v);
}

static void put_key(struct str *s, int field, int wire) { put_varint(s, (uint64_t)field << 3 | (uint64_t)wire); }

static void put_double(struct str *s, int field, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(s, field, WIRE_8_BYTES);
    put_fixed(s, bits, 8);
}

static void put_float(struct str *s, int field, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_key(s, field, WIRE_4_BYTES);
    put_fixed(s, bits, 4);
}

static void put_int(struct str *s, int field, int64_t v)
{
    put_key(s, field, WIRE_VARINT);
    put_varint(s, (uint64_t)v);
}

static void put_bytes(struct str *s, int field, const char *p, size_t n)
{
    put_key(s, field, WIRE_LENGTH);
    put_varint(s, n);
    str_add(s, p, n);
}

static uint32_t crc32c_masked(const char *p, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned char)p[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- events ---- */

static void event_begin(struct tb *tb, int64_t step)
{
    str_clear(&tb->event);
    str_clear(&tb->inner);
    str_clear(&tb->value);
    put_double(&tb->event, EVENT_WALL_TIME, clock_wall_s());
    put_int(&tb->event, EVENT_STEP, step);
}

/* Frames tb->event as a record. */
static void event_end(struct tb *tb)
{
    struct str *out = &tb->pending;
    size_t at = out->n;
    put_fixed(out, tb->event.n, 8);
    put_fixed(out, crc32c_masked(out->p + at, 8), 4);
    str_add(out, tb->event.p, tb->event.n);
    put_fixed(out, crc32c_masked(tb->event.p, tb->event.n), 4);
    if (out->n >= FLUSH_BYTES) tb_flush(tb, NULL);
}

/* A new file: names of the same second get a suffix that sorts after. */
static int file_create(struct tb *tb, const char *dir, struct err *e)
{
    char host[HOST_NAME_MAX + 1] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !host[0]) memcpy(host, "localhost", sizeof "localhost");
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '_';
    long long now = (long long)clock_wall_s();
    for (int i = 0; i < MAX_NAMES; i++) {
        struct str name = {0};
        str_printf(&name, "events.out.tfevents.%010lld.%s", now, host);
        if (i > 0) str_printf(&name, ".%03d", i);
        char *path = fs_join(dir, str_text(&name));
        str_free(&name);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            tb->fd = fd;
            tb->path = path;
            return OK;
        }
        int why = errno;
        if (why != EEXIST) err_errno(e, ERR_IO, why, "cannot create %s", path);
        xfree(path);
        if (why != EEXIST) return ERR_IO;
    }
    return err_set(e, ERR_IO, "%s: %d event files of this second exist already; try again", dir, MAX_NAMES);
}

static void tb_free(struct tb *tb)
{
    str_free(&tb->pending);
    str_free(&tb->event);
    str_free(&tb->inner);
    str_free(&tb->value);
    xfree(tb->path);
    xfree(tb);
}

int tb_open(struct tb **out, const char *dir, struct err *e)
{
    static const char version[] = "brain.Event:2";
    *out = NULL;
    int rc = fs_mkdirs(dir, e);
    if (rc != OK) return rc;
    struct tb *tb = xcalloc(1, sizeof *tb);
    rc = file_create(tb, dir, e);
    if (rc != OK) {
        tb_free(tb);
        return rc;
    }
    event_begin(tb, 0);
    put_bytes(&tb->event, EVENT_FILE_VERSION, version, sizeof version - 1);
    event_end(tb);
    rc = tb_flush(tb, e);
    if (rc != OK) {
        tb_close(tb, NULL);
        return rc;
    }
    *out = tb;
    return OK;
}

const char *tb_path(const struct tb *tb) { return tb->path; }

void tb_scalar(struct tb *tb, const char *tag, int64_t step, double value)
{
    if (tb->failed.code != OK) return;
    event_begin(tb, step);
    put_bytes(&tb->value, VALUE_TAG, tag, strlen(tag));
    put_float(&tb->value, VALUE_SIMPLE, (float)value);
    put_bytes(&tb->inner, SUMMARY_VALUE, tb->value.p, tb->value.n);
    put_bytes(&tb->event, EVENT_SUMMARY, tb->inner.p, tb->inner.n);
    event_end(tb);
}

void tb_restart(struct tb *tb, int64_t step)
{
    if (tb->failed.code != OK) return;
    event_begin(tb, step);
    put_int(&tb->inner, SESSION_STATUS, SESSION_START);
    put_bytes(&tb->event, EVENT_SESSION_LOG, tb->inner.p, tb->inner.n);
    event_end(tb);
}

int tb_flush(struct tb *tb, struct err *e)
{
    size_t done = 0;
    while (tb->failed.code == OK && done < tb->pending.n) {
        ssize_t n = write(tb->fd, tb->pending.p + done, tb->pending.n - done);
        if (n >= 0) done += (size_t)n;
        else if (errno != EINTR) err_errno(&tb->failed, ERR_IO, errno, "cannot write %s", tb->path);
    }
    str_clear(&tb->pending);
    if (tb->failed.code != OK && e) *e = tb->failed;
    return tb->failed.code;
}

int tb_close(struct tb *tb, struct err *e)
{
    if (!tb) return OK;
    int rc = tb_flush(tb, e);
    if (close(tb->fd) != 0 && rc == OK) rc = err_errno(e, ERR_IO, errno, "cannot close %s", tb->path);
    tb_free(tb);
    return rc;
}
