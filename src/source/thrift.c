/* SPDX-License-Identifier: Apache-2.0 */
/* thrift.c: after the specification "Thrift Compact protocol encoding" (Apache Thrift). */
#include "source/thrift.h"

enum { STOP, YES, NO, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT };
enum { DEPTH_MAX = 32 };

static unsigned byte(struct thrift *t)
{
    if (t->at < t->n && !t->bad) return t->p[t->at++];
    t->bad = true;
    return 0;
}

static uint64_t varint(struct thrift *t)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        unsigned b = byte(t);
        v |= (uint64_t)(b & 0x7F) << shift;
        if (!(b & 0x80)) return v;
    }
    t->bad = true;
    return 0;
}

static int64_t zigzag(struct thrift *t)
{
    uint64_t v = varint(t);
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

/* n bytes; NULL where there are fewer. */
static const unsigned char *bytes(struct thrift *t, uint64_t n)
{
    if (t->bad || n > t->n - t->at) {
        t->bad = true;
        return NULL;
    }
    const unsigned char *p = t->p + t->at;
    t->at += (size_t)n;
    return p;
}

bool thrift_next(struct thrift *t, struct thrift_field *f)
{
    unsigned b = byte(t);
    if (t->bad || b == STOP) return false;
    f->type = (int)(b & 15);
    int64_t id = b >> 4 ? f->id + (int)(b >> 4) : zigzag(t);
    if (f->type == STOP || f->type > STRUCT || id < 0 || id > INT16_MAX) t->bad = true;
    f->id = t->bad ? 0 : (int)id;
    return !t->bad;
}

int64_t thrift_int(struct thrift *t, const struct thrift_field *f)
{
    if (f->type == I8) return (int8_t)byte(t);
    if (f->type >= I16 && f->type <= I64) {
        int64_t v = zigzag(t);
        return t->bad ? 0 : v;
    }
    t->bad = true;
    return 0;
}

bool thrift_bool(struct thrift *t, const struct thrift_field *f)
{
    if (f->type != YES && f->type != NO) t->bad = true;
    return f->type == YES && !t->bad;
}

const char *thrift_string(struct thrift *t, const struct thrift_field *f, size_t *n)
{
    *n = 0;
    if (f->type != BINARY) t->bad = true;
    uint64_t length = varint(t);
    const unsigned char *p = bytes(t, length);
    if (p) *n = (size_t)length;
    return p ? (const char *)p : "";
}

int64_t thrift_list(struct thrift *t, const struct thrift_field *f, struct thrift_field *item)
{
    *item = (struct thrift_field){0};
    if (f->type != LIST && f->type != SET) t->bad = true;
    unsigned b = byte(t);
    uint64_t n = b >> 4 == 15 ? varint(t) : b >> 4;
    item->type = (int)(b & 15);
    if (t->bad || n > t->n - t->at || item->type == STOP || item->type > STRUCT) { /* an item is a byte at least */
        t->bad = true;
        return 0;
    }
    return (int64_t)n;
}

bool thrift_struct(struct thrift *t, const struct thrift_field *f)
{
    if (f->type != STRUCT) t->bad = true;
    return !t->bad;
}

static void skip_map(struct thrift *t)
{
    uint64_t n = varint(t);
    unsigned types = n && !t->bad ? byte(t) : 0;
    if (n > t->n - t->at) t->bad = true;
    for (uint64_t i = 0; i < n && !t->bad; i++) {
        thrift_skip(t, &(struct thrift_field){0, (int)(types >> 4)});
        thrift_skip(t, &(struct thrift_field){0, (int)(types & 15)});
    }
}

void thrift_skip(struct thrift *t, const struct thrift_field *f)
{
    if (++t->depth > DEPTH_MAX) t->bad = true;
    struct thrift_field in = {0};
    size_t n;
    if (t->bad) {
        t->depth--;
        return;
    }
    if (f->type == I8) byte(t);
    else if (f->type >= I16 && f->type <= I64) varint(t);
    else if (f->type == DOUBLE) bytes(t, 8);
    else if (f->type == BINARY) thrift_string(t, f, &n);
    else if (f->type == MAP) skip_map(t);
    else if (f->type == STRUCT)
        while (thrift_next(t, &in)) thrift_skip(t, &in);
    else if (f->type == LIST || f->type == SET)
        for (int64_t i = thrift_list(t, f, &in); i > 0 && !t->bad; i--) {
            if (in.type == YES || in.type == NO) byte(t); /* in a list a bool is a byte */
            else thrift_skip(t, &in);
        }
    else if (f->type != YES && f->type != NO) t->bad = true;
    t->depth--;
}
