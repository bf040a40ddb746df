/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c: opening weight files that come from outside.
 *
 * One pass over the JSON header fills a table of entries; sorting it by offset proves that the tensors tile the
 * data exactly (no overlap, no hole, nothing beyond the end), sorting it by name gives lookups by bisection and
 * finds a name that two files of a set share. The header's length is checked against the file and the format's
 * limit before anything is allocated for it. Cost: O(n log n) in the number of tensors; the data are not
 * touched. A map of the file was rejected: a file that shrinks or fails would kill the process (base/fs_read.c).
 */
#include "checkpoint/foreign_model.h"
#include "checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/magic.h"
#include "base/mem.h"

enum { AHEAD_BYTES = 16 << 20, AHEAD_FROM = 1 << 20 }; /* the disk works while what came is summed */

struct file {
    char *path;
    struct fs_file disk;    /* resting unless it is the set's open one */
    const unsigned char *p; /* the caller's bytes instead; else NULL */
    int64_t bytes;
    int64_t data_at; /* where the data begin */
    uint64_t header_hash;
    struct json *header;
};

struct safetensors {
    struct file *files;
    int n_files, room_files;
    int open;                          /* the file with a descriptor; -1: none */
    struct safetensors_entry *entries; /* sorted by name */
    int64_t n, room;
    struct json *index; /* of a set that has one, else NULL */
};

/* The format's types. tutti's own are found in the table of dtype.h; of the rest only the size matters. */
static const struct {
    const char *name;
    int bits;
} other_types[] = {
    {"BOOL", 8},    {"I8", 8},      {"I16", 16}, {"U32", 32},    {"U64", 64},    {"C64", 64},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F4", 4},   {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

static int type_bits(const char *name, int *dtype)
{
    enum dtype t;
    *dtype = -1;
    if (dtype_from_safetensors(name, &t) == 0) {
        *dtype = (int)t;
        return (int)dtype_bytes(t) * 8;
    }
    for (size_t i = 0; i < sizeof other_types / sizeof *other_types; i++)
        if (strcmp(other_types[i].name, name) == 0) return other_types[i].bits;
    return 0;
}

static int bad(struct err *e, const struct file *f, const char *name, const char *text)
{
    if (!name) return err_set(e, ERR_CORRUPT, "%s: not a valid safetensors file: %s", f->path, text);
    return err_set(e, ERR_CORRUPT, "%s: tensor %.200s: %s", f->path, name, text);
}

/* dtype, shape and data_offsets of one tensor; *begin is its place in the data. */
static int parse_entry(const struct file *f, int file, const char *name, const struct json *v,
                       struct safetensors_entry *t, struct err *e)
{
    *t = (struct safetensors_entry){.name = name, .file = file};
    t->dtype_text = json_string(json_get(v, "dtype"), NULL, NULL);
    if (!t->dtype_text) return bad(e, f, name, "the header gives no dtype");
    int bits = type_bits(t->dtype_text, &t->dtype);
    if (bits == 0) return bad(e, f, name, "the header gives a dtype that the format does not know");

    const struct json *shape = json_get(v, "shape");
    if (!shape || json_kind(shape) != JSON_ARRAY) return bad(e, f, name, "the header gives no shape");
    if (json_size(shape) > SHAPE_MAX_DIMS) return bad(e, f, name, "more than 5 dimensions");
    t->shape.nd = (int)json_size(shape);
    for (int d = 0; d < t->shape.nd; d++) {
        t->shape.n[d] = json_int(json_at(shape, (size_t)d), -1);
        if (t->shape.n[d] < 0) return bad(e, f, name, "a dimension is not a number >= 0");
    }
    int64_t count, bytes, total_bits;
    if (shape_measure(&t->shape, 8, &count, &bytes) || __builtin_mul_overflow(count, (int64_t)bits, &total_bits))
        return bad(e, f, name, "the shape is larger than any file");
    if (total_bits % 8) return bad(e, f, name, "the shape does not fill whole bytes");

    const struct json *offsets = json_get(v, "data_offsets");
    if (!offsets || json_kind(offsets) != JSON_ARRAY || json_size(offsets) != 2)
        return bad(e, f, name, "data_offsets is not a pair");
    const struct json *first = json_at(offsets, 0), *last = json_at(offsets, 1);
    int64_t begin = json_int(first, -1), end = json_int(last, -1), data = f->bytes - f->data_at;
    if (json_kind(first) != JSON_INT || json_kind(last) != JSON_INT || begin < 0 || end < begin)
        return bad(e, f, name, "data_offsets is not a range");
    if (end > data)
        return err_set(e, ERR_CORRUPT,
                       "%s: tensor %.200s: its bytes end at %lld but the file has %lld bytes of data; the file is cut "
                       "short: copy it again",
                       f->path, name, (long long)end, (long long)data);
    if (end - begin != total_bits / 8) return bad(e, f, name, "data_offsets do not agree with dtype and shape");
    t->at = f->data_at + begin;
    t->bytes = (size_t)(end - begin);
    return OK;
}

static int by_place(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The tensors of one file tile its data. */
static int check_tiling(const struct file *f, struct safetensors_entry *t, int64_t n, struct err *e)
{
    qsort(t, (size_t)n, sizeof *t, by_place);
    int64_t at = f->data_at;
    for (int64_t i = 0; i < n; i++) {
        if (t[i].at < at) return bad(e, f, t[i].name, "its bytes overlap another tensor's");
        if (t[i].at > at) return bad(e, f, t[i].name, "there is a hole before its bytes");
        at = t[i].at + (int64_t)t[i].bytes;
    }
    if (at != f->bytes)
        return err_set(e, ERR_CORRUPT, "%s: %lld bytes after the last tensor belong to none", f->path,
                       (long long)(f->bytes - at));
    return OK;
}

static int read_file(const struct file *f, int64_t at, size_t n, void *out, struct err *e)
{
    if (!f->p) return fs_file_read(&f->disk, at, n, out, e);
    memcpy(out, f->p + at, n);
    return OK;
}

/* Length word and header, compared with nothing but the format; *text is the header, of *n bytes; xfree it. */
static int read_header(struct file *f, char **text, size_t *n, struct err *e)
{
    unsigned char word[8];
    struct hash64 hash;
    if (!f->p && magic_is_lfs_pointer(f->path))
        return err_set(e, ERR_REQUEST,
                       "%s: is a git-lfs pointer: the weights were not downloaded; in its folder: git lfs install && "
                       "git lfs pull",
                       f->path);
    if (f->bytes < 8) return bad(e, f, NULL, "shorter than the 8-byte length of the header");
    int rc = read_file(f, 0, sizeof word, word, e);
    uint64_t header = 0;
    for (int i = 7; i >= 0 && rc == OK; i--) header = header << 8 | word[i];
    if (rc < 0) return rc;
    if (header > SAFETENSORS_HEADER_LIMIT) return bad(e, f, NULL, "the header claims more than 100 MiB");
    if (header > (uint64_t)(f->bytes - 8)) return bad(e, f, NULL, "the header is longer than the file");
    *n = (size_t)header;
    *text = xmalloc(*n + 1);
    rc = read_file(f, 8, *n, *text, e);
    if (rc < 0) return rc;
    if (*n == 0 || **text != '{') return bad(e, f, NULL, "the header does not begin with '{'");
    f->data_at = 8 + (int64_t)*n;
    hash64_init(&hash);
    hash64_add(&hash, word, sizeof word);
    hash64_add(&hash, *text, *n);
    f->header_hash = hash64_value(&hash);
    return OK;
}

static int parse_file(struct safetensors *s, int file, struct err *e)
{
    struct file *f = &s->files[file];
    char *text = NULL;
    size_t n;
    int rc = read_header(f, &text, &n, e);
    if (rc == OK) rc = json_parse(&f->header, text, n, f->path, e);
    xfree(text);
    if (rc < 0) return rc;
    if (json_kind(f->header) != JSON_OBJECT) return bad(e, f, NULL, "the header is not an object");

    int64_t first = s->n;
    for (void *it = json_iter(f->header); it; it = json_iter_next(f->header, it)) {
        const char *name = json_iter_key(it);
        if (strcmp(name, "__metadata__") == 0) continue;
        GROW(s->entries, s->n, s->room, 1);
        rc = parse_entry(f, file, name, json_iter_value(it), &s->entries[s->n], e);
        if (rc < 0) return rc;
        s->n++;
    }
    if (s->n == first) return f->bytes == f->data_at ? OK : bad(e, f, NULL, "data but no tensors");
    return check_tiling(f, s->entries + first, s->n - first, e);
}

static int finish(struct safetensors *s, struct err *e)
{
    if (s->n) qsort(s->entries, (size_t)s->n, sizeof *s->entries, by_name);
    for (int64_t i = 1; i < s->n; i++)
        if (strcmp(s->entries[i - 1].name, s->entries[i].name) == 0)
            return err_set(e, ERR_CORRUPT, "%s: tensor %.200s is also in %s", s->files[s->entries[i].file].path,
                           s->entries[i].name, s->files[s->entries[i - 1].file].path);
    return OK;
}

static struct file *add_file(struct safetensors *s, const char *path)
{
    GROW(s->files, s->n_files, s->room_files, 1);
    struct file *f = &s->files[s->n_files++];
    *f = (struct file){.path = xstrdup(path), .disk = {.fd = -1}};
    return f;
}

static int open_one(struct safetensors *s, const char *path, struct err *e)
{
    struct file *f = add_file(s, path);
    int rc = fs_file_open(&f->disk, path, e);
    if (rc < 0) return rc;
    f->bytes = f->disk.bytes;
    rc = parse_file(s, s->n_files - 1, e);
    fs_file_rest(&s->files[s->n_files - 1].disk);
    return rc;
}

static char *sibling(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return xstrdup(name);
    struct str s = {0};
    str_add(&s, path, (size_t)(slash - path) + 1);
    str_puts(&s, name);
    return s.p;
}

/* A file name of an index stays in the index's directory. */
static bool plain_name(const char *name) { return name && *name && *name != '.' && !strchr(name, '/'); }

/* A tensor is in the file that the index names. One that is in none is missed by whoever wants it: an index may name an
 * output matrix that its files leave out, since it is the embedding. */
static int check_index(const struct safetensors *s, const struct json *map, const char *path, struct err *e)
{
    for (void *it = json_iter(map); it; it = json_iter_next(map, it)) {
        const char *name = json_iter_key(it), *file = json_string(json_iter_value(it), NULL, "");
        const struct safetensors_entry *t = safetensors_find(s, name);
        if (t && !str_ends(s->files[t->file].path, file))
            return err_set(e, ERR_CORRUPT, "%s: tensor %.200s is in %s, not in %s", path, name, s->files[t->file].path,
                           file);
    }
    return OK;
}

static int open_index(struct safetensors *s, const char *path, struct err *e)
{
    struct json *index = NULL;
    int rc = json_parse_published_file(&index, path, SAFETENSORS_HEADER_LIMIT, e);
    const struct json *map = rc < 0 ? NULL : json_get(index, "weight_map");
    if (rc == OK && (!map || json_kind(map) != JSON_OBJECT))
        rc = err_set(e, ERR_CORRUPT, "%s: no object weight_map", path);
    for (void *it = rc < 0 ? NULL : json_iter(map); it && rc == OK; it = json_iter_next(map, it)) {
        const char *name = json_string(json_iter_value(it), NULL, NULL);
        if (!plain_name(name)) {
            rc = err_set(e, ERR_CORRUPT, "%s: weight_map: %.200s: not the name of a file beside the index", path,
                         json_iter_key(it));
            break;
        }
        char *file = sibling(path, name);
        bool seen = false;
        for (int i = s->n_files - 1; i >= 0 && !seen; i--) seen = strcmp(s->files[i].path, file) == 0;
        if (!seen) rc = open_one(s, file, e);
        xfree(file);
    }
    if (rc == OK) rc = finish(s, e);
    if (rc == OK) rc = check_index(s, map, path, e);
    s->index = index;
    return rc;
}

const char *safetensors_promised(const struct safetensors *s, const char *name)
{
    const struct json *map = s->index ? json_get(s->index, "weight_map") : NULL;
    return map && !safetensors_find(s, name) ? json_string(json_get(map, name), NULL, NULL) : NULL;
}

static bool has_file(const struct safetensors *s, const char *path)
{
    for (int i = 0; i < s->n_files; i++)
        if (!strcmp(s->files[i].path, path)) return true;
    return false;
}

static int open_dir(struct safetensors *s, const char *dir, struct err *e)
{
    char *index = fs_join(dir, "model.safetensors.index.json"), *single = fs_join(dir, "model.safetensors");
    int rc;
    if (fs_exists(index)) {
        rc = open_index(s, index, e);
        if (rc == OK && fs_exists(single) && !has_file(s, single)) /* their library would read the single file */
            rc = err_set(e, ERR_REQUEST,
                         "%s: holds two sets of weights: model.safetensors, and the files of "
                         "model.safetensors.index.json; which of them is the model is not said: remove one",
                         dir);
    } else if (fs_exists(single)) rc = open_one(s, single, e);
    else rc = foreign_model_weights(dir, e) ? ERR_REQUEST : err_set(e, ERR_REQUEST, "%s: cannot be listed", dir);
    xfree(index);
    xfree(single);
    return rc;
}

int safetensors_open(struct safetensors **out, const char *path, struct err *e)
{
    struct safetensors *s = xcalloc(1, sizeof *s);
    s->open = -1;
    int rc;
    *out = NULL;
    if (fs_is_dir(path)) rc = open_dir(s, path, e);
    else if (str_ends(path, ".json")) rc = open_index(s, path, e);
    else rc = open_one(s, path, e);
    if (rc == OK) rc = finish(s, e);
    if (rc < 0) safetensors_close(s);
    else *out = s;
    return rc;
}

int safetensors_open_memory(struct safetensors **out, const void *p, size_t bytes, const char *what, struct err *e)
{
    struct safetensors *s = xcalloc(1, sizeof *s);
    s->open = -1;
    struct file *f = add_file(s, what);
    f->p = p;
    f->bytes = (int64_t)bytes;
    *out = NULL;
    int rc = parse_file(s, 0, e);
    if (rc == OK) rc = finish(s, e);
    if (rc < 0) safetensors_close(s);
    else *out = s;
    return rc;
}

void safetensors_close(struct safetensors *s)
{
    if (!s) return;
    for (int i = 0; i < s->n_files; i++) {
        json_free(s->files[i].header);
        fs_file_close(&s->files[i].disk);
        xfree(s->files[i].path);
    }
    json_free(s->index);
    xfree(s->files);
    xfree(s->entries);
    xfree(s);
}

int64_t safetensors_count(const struct safetensors *s) { return s->n; }

const struct safetensors_entry *safetensors_at(const struct safetensors *s, int64_t i)
{
    CHECK(i >= 0 && i < s->n, "tensor %lld of %lld", (long long)i, (long long)s->n);
    return &s->entries[i];
}

const struct safetensors_entry *safetensors_find(const struct safetensors *s, const char *name)
{
    struct safetensors_entry key = {.name = name};
    if (s->n == 0) return NULL;
    return bsearch(&key, s->entries, (size_t)s->n, sizeof key, by_name);
}

int safetensors_n_files(const struct safetensors *s) { return s->n_files; }

const char *safetensors_file(const struct safetensors *s, int file)
{
    CHECK(file >= 0 && file < s->n_files, "file %d of %d", file, s->n_files);
    return s->files[file].path;
}

uint64_t safetensors_header(const struct safetensors *s, int file, size_t *bytes)
{
    CHECK(file >= 0 && file < s->n_files, "file %d of %d", file, s->n_files);
    *bytes = (size_t)s->files[file].data_at;
    return s->files[file].header_hash;
}

const char *safetensors_metadata(const struct safetensors *s, const char *key)
{
    if (s->n_files == 0) return NULL;
    return json_string(json_get(json_get(s->files[0].header, "__metadata__"), key), NULL, NULL);
}

void safetensors_rest(struct safetensors *s)
{
    if (s->open >= 0) fs_file_rest(&s->files[s->open].disk);
    s->open = -1;
}

int safetensors_read(struct safetensors *s, const struct safetensors_entry *t, int64_t at, size_t n, void *out,
                     struct err *e)
{
    CHECK(at >= 0 && at <= (int64_t)t->bytes && n <= t->bytes - (size_t)at, "%s: bytes [%lld, +%zu) of %zu", t->name,
          (long long)at, n, t->bytes);
    struct file *f = &s->files[t->file];
    int rc = OK;
    if (!f->p && s->open != t->file) {
        safetensors_rest(s);
        rc = fs_file_reopen(&f->disk, e);
        if (rc == OK) s->open = t->file;
    }
    if (rc == OK) rc = read_file(f, t->at + at, n, out, e);
    if (rc == OK && !f->p && n >= AHEAD_FROM) fs_file_ahead(&f->disk, t->at + at + (int64_t)n, AHEAD_BYTES);
    return rc < 0 ? err_prefix(e, "tensor %.200s", t->name) : OK;
}
