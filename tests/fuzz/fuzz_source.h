/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_source.h: any bytes as an input file, read with bad records skipped and without: text comes out, or words that
 * name the file; with them skipped never less than before the first error. */
#ifndef TESTS_FUZZ_SOURCE_H
#define TESTS_FUZZ_SOURCE_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "source/source.h"

/* One file for the whole process, of this name, whose bytes are replaced. */
static inline void fuzz_put(char path[80], const char *name, const uint8_t *data, size_t n)
{
    static const char *const folders[] = {"/dev/shm", "/tmp"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, 80, "%s/tutti-fuzz-%ld-%s", folders[i], (long)getpid(), name);
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        if (fd < 0) continue;
        bool whole = write(fd, data, n) == (ssize_t)n;
        close(fd);
        if (whole) return;
    }
    CHECK(false, "no place for a file");
}

static inline size_t fuzz_read(const char *path, struct source_options how, bool skip, int *code)
{
    struct source *s;
    struct err e = {0};
    size_t all = 0;
    how.skip_bad = skip;
    *code = source_open_with(&s, &path, 1, &how, &e);
    while (!*code && all < (size_t)1 << 26) {
        int got = source_next(s, &e);
        if (got <= 0) {
            *code = got;
            break;
        }
        const char *p;
        size_t n;
        while ((got = source_read(s, &p, &n, &e)) > 0) {
            for (size_t i = 0; i < n; i += 4096) all += p[i] == 0; /* every page of it is there */
            all += n;
        }
        if (got < 0) *code = got;
    }
    CHECK(!*code || strstr(e.text, path), "an error without its file: %s", e.text);
    source_close(s);
    return all;
}

static inline void fuzz_file_as(const char *name, struct source_options how, const uint8_t *data, size_t n)
{
    char path[80];
    int code, skipped;
    fuzz_put(path, name, data, n);
    size_t some = fuzz_read(path, how, false, &code), all = fuzz_read(path, how, true, &skipped);
    CHECK(all >= some, "less where bad records are skipped: %zu of %zu", all, some);
    CHECK(code || !skipped, "an error only where bad records are skipped");
    unlink(path);
}

/* whole: records as they are. */
static inline void fuzz_file(const char *name, const char *column, bool whole, const uint8_t *data, size_t n)
{
    fuzz_file_as(name, (struct source_options){.column = column, .whole_records = whole}, data, n);
}

#endif
