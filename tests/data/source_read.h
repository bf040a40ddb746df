/* SPDX-License-Identifier: Apache-2.0 */
/* source_read.h: all documents of a source as one string, for tests of what is read. */
#ifndef TESTS_SOURCE_READ_H
#define TESTS_SOURCE_READ_H

#include "data_test.h"

#include <fcntl.h>

#include "source/source.h"

/* What is left of the source, each document followed by a "|". */
static inline int read_rest(struct source *s, struct str *out, struct err *e)
{
    int code;
    while ((code = source_next(s, e)) > 0) {
        const char *p;
        size_t n;
        int got;
        while ((got = source_read(s, &p, &n, e)) > 0) str_add(out, p, n);
        if (got < 0) return got;
        str_putc(out, '|');
    }
    return code;
}

static inline int read_with(const char *path, const struct source_options *o, struct str *out, int64_t *n_bad,
                            struct err *e)
{
    struct source *s;
    str_clear(out);
    int code = source_open_with(&s, &path, 1, o, e);
    if (!code) code = read_rest(s, out, e);
    if (n_bad && s) *n_bad = source_n_bad(s);
    source_close(s);
    return code;
}

static inline int read_column(const char *path, const char *column, struct str *out, struct err *e)
{
    return read_with(path, &(struct source_options){.column = column}, out, NULL, e);
}

/* For source_options.tell_bad: lines of a str. */
static inline void tell_to_str(void *ctx, const char *what) { str_printf(ctx, "%s\n", what); }

/* A file that is changed where it lies: made anew thousands of times it would be written to the disk as often. */
struct changed_file {
    char *path;
    int fd;
};
static inline struct changed_file changed_file_new(const char *dir, const char *name, const void *p, size_t n)
{
    struct changed_file f = {.path = put_file(dir, name, p, n)};
    f.fd = open(f.path, O_RDWR);
    assert_true(f.fd >= 0);
    return f;
}
static inline void changed_file_flip(const struct changed_file *f, size_t bit)
{
    unsigned char byte;
    assert_int_equal(pread(f->fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (unsigned char)(1 << bit % 8);
    assert_int_equal(pwrite(f->fd, &byte, 1, (off_t)(bit / 8)), 1);
}
static inline void changed_file_cut(const struct changed_file *f, size_t n)
{
    assert_int_equal(ftruncate(f->fd, (off_t)n), 0);
}
static inline void changed_file_free(struct changed_file *f)
{
    close(f->fd);
    xfree(f->path);
}

#endif
