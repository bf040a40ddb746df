/* SPDX-License-Identifier: Apache-2.0 */
/* manifest.c: printing, parsing and checking the list of what a checkpoint holds.
 *
 * The text ends in a member of fixed length that carries the checksum of everything before it, so the first thing
 * a reader does is to compare 8 bytes, and no later check has to guess whether a number was damaged. The checks
 * that follow (boxes inside tensors, tiling) guard against wrong writers and hostile files. Tiling is exact:
 * volumes must add up and no two boxes may share an element; boxes are sorted by their first row, so a pair is
 * compared only while their rows overlap. Cost: O(k log k) for slices along one dimension, O(k^2) at worst, in
 * the number k of boxes of one tensor.
 * A checksum in a file beside the manifest was rejected: two files cannot be replaced by one rename.
 */
#include "checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/seal.h"

#define FORMAT "tutti checkpoint"
#define INT_LIMIT INT64_MAX
#define COUNT_LIMIT ((int64_t)1 << 60)  /* of steps, tokens, publications, bytes: one more is a number, too */
#define CHUNK_LIMIT ((int64_t)64 << 20) /* readers have a buffer of this size */

void manifest_init(struct manifest *m) { *m = (struct manifest){.version = MANIFEST_VERSION, .arena = arena_new()}; }

void manifest_fini(struct manifest *m)
{
    json_free(m->root);
    if (m->arena) arena_free(m->arena);
    *m = (struct manifest){0};
}

void manifest_key(struct str *s, const struct manifest_tensor *t, const struct region *box)
{
    char text[256];
    struct region whole = region_whole(&t->shape);
    str_printf(s, "%s/%s", t->group, t->name);
    if (!region_equal(&whole, box)) str_puts(s, region_print(text, box));
}

static const struct manifest_box *same_box(const struct manifest *m, int file, const struct manifest_tensor *t,
                                           const struct manifest_box *b)
{
    int k = manifest_find(m, t->group, t->name);
    const struct manifest_tensor *there = k < 0 ? NULL : &m->tensors[k];
    if (!there || there->dtype != t->dtype || !shape_equal(&there->shape, &t->shape)) return NULL;
    for (int i = 0; i < there->n_boxes; i++) {
        const struct manifest_box *x = &there->boxes[i];
        if (x->file == file && region_equal(&x->box, &b->box)) return x;
    }
    return NULL;
}

bool manifest_same_file(const struct manifest *a, int fa, const struct manifest *b, int fb)
{
    const struct manifest_file *x = &a->files[fa], *y = &b->files[fb];
    int64_t here = 0, there = 0;
    if (strcmp(x->name, y->name) || x->bytes != y->bytes || x->hash != y->hash || a->version != b->version)
        return false;
    for (int i = 0; i < b->n_tensors; i++)
        for (int k = 0; k < b->tensors[i].n_boxes; k++) there += b->tensors[i].boxes[k].file == fb;
    for (int i = 0; i < a->n_tensors; i++)
        for (int k = 0; k < a->tensors[i].n_boxes; k++) {
            const struct manifest_box *box = &a->tensors[i].boxes[k];
            if (box->file != fa) continue;
            const struct manifest_box *other = same_box(b, fb, &a->tensors[i], box);
            if (!other || other->bytes != box->bytes || other->hash != box->hash || other->n_chunks != box->n_chunks)
                return false;
            here++;
        }
    return here > 0 && here == there;
}

uint64_t manifest_root(const uint64_t *chunks, int64_t n)
{
    struct hash64 h;
    hash64_init(&h);
    for (int64_t i = 0; i < n; i++) {
        unsigned char b[8];
        for (int k = 0; k < 8; k++) b[k] = (unsigned char)(chunks[i] >> (8 * k));
        hash64_add(&h, b, sizeof b);
    }
    return hash64_value(&h);
}

/* -- printing ----------------------------------------------------------------------------------------------- */

static void put_sum(struct json_out *o, const char *key, uint64_t sum)
{
    char text[17];
    json_put_string(o, key, hash64_print(text, sum));
}

static void put_hash(struct json_out *o, uint64_t hash) { put_sum(o, "xxh64", hash); }

static void put_chunks(struct json_out *o, const struct manifest_box *b)
{
    struct str digits = {0};
    char one[17];
    for (int64_t i = 0; i < b->n_chunks; i++) str_puts(&digits, hash64_print(one, b->chunks[i]));
    json_put_string(o, "chunks", digits.p);
    str_free(&digits);
}

static void put_dims(struct json_out *o, const char *key, struct shape s)
{
    json_begin_array(o, key);
    for (int d = 0; d < s.nd; d++) json_put_int(o, NULL, s.n[d]);
    json_end_array(o);
}

static void put_tensor(struct json_out *o, const struct manifest_tensor *t)
{
    json_begin_object(o, NULL);
    json_put_string(o, "group", t->group);
    json_put_string(o, "name", t->name);
    json_put_string(o, "dtype", dtype_name(t->dtype));
    put_dims(o, "shape", t->shape);
    json_begin_array(o, "boxes");
    for (int i = 0; i < t->n_boxes; i++) {
        const struct manifest_box *b = &t->boxes[i];
        json_begin_object(o, NULL);
        json_put_int(o, "file", b->file);
        put_dims(o, "lo", shape_of(b->box.nd, b->box.lo));
        put_dims(o, "n", region_shape(&b->box));
        json_put_int(o, "bytes", b->bytes);
        put_hash(o, b->hash);
        if (b->n_chunks) put_chunks(o, b);
        if (b->has_state) put_sum(o, "state", b->state);
        json_end_object(o);
    }
    json_end_array(o);
    json_end_object(o);
}

void manifest_print(const struct manifest *m, struct str *out)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    json_begin_object(&o, NULL);
    json_put_string(&o, "format", FORMAT);
    json_put_int(&o, "version", m->version);
    json_put_string(&o, "tutti", m->tutti);
    json_put_int(&o, "step", m->step);
    json_put_int(&o, "tokens", m->tokens);
    json_put_int(&o, "seed", m->seed);
    json_put_int(&o, "publication", m->publication);
    if (m->run) put_sum(&o, "run", m->run);
    if (m->chunk) json_put_int(&o, "chunk", m->chunk);
    json_begin_array(&o, "files");
    for (int i = 0; i < m->n_files; i++) {
        str_putc(&s, '\n');
        json_begin_object(&o, NULL);
        json_put_string(&o, "name", m->files[i].name);
        json_put_int(&o, "bytes", m->files[i].bytes);
        put_hash(&o, m->files[i].hash);
        json_end_object(&o);
    }
    json_end_array(&o);
    json_begin_array(&o, "tensors");
    for (int i = 0; i < m->n_tensors; i++) {
        str_putc(&s, '\n'); /* a line per tensor: people will look at this with grep */
        put_tensor(&o, &m->tensors[i]);
    }
    json_end_array(&o);
    uint64_t state;
    if (m->by_name && manifest_state(m, &state)) put_sum(&o, "state", state);
    if (m->extra) json_put_value(&o, "extra", m->extra);
    seal_add(&s);
    str_add(out, s.p, s.n);
    str_free(&s);
}

/* -- the state ---------------------------------------------------------------------------------------------- */

bool manifest_tensor_state(const struct manifest_tensor *t, uint64_t *state)
{
    *state = 0;
    for (int k = 0; k < t->n_boxes; k++) {
        if (!t->boxes[k].has_state) return false;
        *state += t->boxes[k].state;
    }
    return true;
}

bool manifest_state(const struct manifest *m, uint64_t *state)
{
    struct str text = {0};
    bool all = m->n_tensors > 0;
    char shape[128], digits[17];
    for (int i = 0; i < m->n_tensors && all; i++) {
        const struct manifest_tensor *t = &m->tensors[m->by_name[i]];
        uint64_t sum;
        all = manifest_tensor_state(t, &sum);
        str_printf(&text, "%s/%s %s %s %s\n", t->group, t->name, dtype_name(t->dtype), shape_print(shape, &t->shape),
                   hash64_print(digits, sum));
    }
    str_printf(&text, "%lld %lld %lld\n", (long long)m->step, (long long)m->tokens, (long long)m->seed);
    struct json_out o = {.s = &text};
    const struct json *scale = m->extra ? json_get(m->extra, "loss_scale") : NULL,
                      *left_out = m->extra ? json_get(m->extra, "left_out") : NULL;
    if (scale) json_put_value(&o, NULL, scale);
    if (left_out) json_put_value(&o, NULL, left_out);
    *state = hash64(text.p, text.n);
    str_free(&text);
    return all;
}

/* -- parsing ------------------------------------------------------------------------------------------------ */

static int check_seal(const char *text, size_t n, const char *what, struct err *e)
{
    static const char first[] = "{\"format\":\"" FORMAT "\"";
    size_t begins = sizeof first - 1;
    if (n && memcmp(text, first, n < begins ? n : begins))
        return err_set(e, ERR_CORRUPT,
                       "%s: does not begin as a manifest of tutti: another program wrote it, or it was changed; use "
                       "another checkpoint",
                       what);
    return seal_check(text, n, what, "use another checkpoint", e);
}

static int need_sum(const struct json *v, const char *key, uint64_t *out, const char *what, struct err *e)
{
    const char *text;
    int rc = json_need_string(v, key, &text, what, e);
    if (rc < 0) return rc;
    if (hash64_parse(text, out)) return err_set(e, ERR_CORRUPT, "%s: %s: not 16 hexadecimal digits", what, key);
    return OK;
}

static int need_hash(const struct json *v, uint64_t *out, const char *what, struct err *e)
{
    return need_sum(v, "xxh64", out, what, e);
}

/* "chunks" of a box, when it has any: as many as its bytes make. */
static int parse_chunks(const struct manifest *m, const struct json *v, struct manifest_box *b, const char *what,
                        struct err *e)
{
    size_t n = 0;
    const struct json *found = json_get(v, "chunks");
    const char *digits = json_string(found, &n, NULL);
    if (!found) return OK;
    int64_t wanted = m->chunk ? b->bytes / m->chunk + (b->bytes % m->chunk > 0) : 0;
    if (!digits || !wanted || n % 16 || n / 16 != (size_t)wanted)
        return err_set(e, ERR_CORRUPT, "%s: chunks: wanted 16 digits for each of %lld chunks", what, (long long)wanted);
    uint64_t *sums = arena_alloc(m->arena, n / 16 * sizeof *sums);
    for (size_t i = 0; i < n / 16; i++) {
        char one[17] = {0};
        memcpy(one, digits + 16 * i, 16);
        if (hash64_parse(one, &sums[i])) return err_set(e, ERR_CORRUPT, "%s: chunks: not hexadecimal digits", what);
    }
    b->chunks = sums;
    b->n_chunks = wanted;
    return OK;
}

static int need_dims(const struct json *v, const char *key, int nd, int64_t *out, const char *what, struct err *e)
{
    const struct json *a = json_get(v, key);
    if (!a || json_kind(a) != JSON_ARRAY || json_size(a) != (size_t)nd)
        return err_set(e, ERR_CORRUPT, "%s: %s: wanted a list of %d numbers", what, key, nd);
    for (int d = 0; d < nd; d++) {
        out[d] = json_int(json_at(a, (size_t)d), -1);
        if (out[d] < 0) return err_set(e, ERR_CORRUPT, "%s: %s: wanted numbers >= 0", what, key);
    }
    return OK;
}

static int need_array(const struct json *v, const char *key, const struct json **out, int *n, const char *what,
                      struct err *e)
{
    *out = json_get(v, key);
    if (!*out || json_kind(*out) != JSON_ARRAY || json_size(*out) > INT32_MAX)
        return err_set(e, ERR_CORRUPT, "%s: %s: wanted a list", what, key);
    *n = (int)json_size(*out);
    return OK;
}

static int parse_file(struct manifest *m, const struct json *v, struct manifest_file *f, const char *what,
                      struct err *e)
{
    const char *name;
    int rc = json_need_string(v, "name", &name, what, e);
    if (rc == OK && (!*name || *name == '.' || strchr(name, '/')))
        rc = err_set(e, ERR_CORRUPT, "%s: files: %.100s is not a plain file name", what, name);
    if (rc < 0) return rc;
    f->name = arena_strdup(m->arena, name);
    rc = json_need_int(v, "bytes", 0, COUNT_LIMIT, &f->bytes, what, e);
    return rc < 0 ? rc : need_hash(v, &f->hash, what, e);
}

static int parse_box(const struct manifest *m, const struct manifest_tensor *t, const struct json *v,
                     struct manifest_box *b, const char *what, struct err *e)
{
    int64_t file = 0;
    int rc = json_need_int(v, "file", 0, (int64_t)m->n_files - 1, &file, what, e);
    b->file = (int)file;
    int64_t n[SHAPE_MAX_DIMS] = {0};
    b->box.nd = t->shape.nd;
    if (rc == OK) rc = need_dims(v, "lo", t->shape.nd, b->box.lo, what, e);
    if (rc == OK) rc = need_dims(v, "n", t->shape.nd, n, what, e);
    for (int d = 0; d < t->shape.nd && rc == OK; d++) {
        if (b->box.lo[d] > t->shape.n[d] || n[d] > t->shape.n[d] - b->box.lo[d])
            rc = err_set(e, ERR_CORRUPT, "%s: a box is not inside the tensor", what);
        else b->box.hi[d] = b->box.lo[d] + n[d];
    }
    if (rc == OK) rc = json_need_int(v, "bytes", 0, INT_LIMIT, &b->bytes, what, e);
    if (rc == OK) rc = need_hash(v, &b->hash, what, e);
    b->has_state = json_get(v, "state") != NULL;
    if (rc == OK && b->has_state) rc = need_sum(v, "state", &b->state, what, e);
    return rc < 0 ? rc : parse_chunks(m, v, b, what, e);
}

static int parse_tensor(struct manifest *m, const struct json *v, struct manifest_tensor *t, const char *what,
                        struct err *e)
{
    const char *group, *name, *type;
    int rc = json_need_string(v, "group", &group, what, e);
    if (rc == OK) rc = json_need_string(v, "name", &name, what, e);
    if (rc == OK) rc = json_need_string(v, "dtype", &type, what, e);
    if (rc < 0) return rc;
    t->group = arena_strdup(m->arena, group);
    t->name = arena_strdup(m->arena, name);
    int dtype = 0;
    while (dtype < DT_N && strcmp(dtype_name((enum dtype)dtype), type)) dtype++;
    if (dtype == DT_N) return err_set(e, ERR_CORRUPT, "%s: %.200s: unknown dtype %.20s", what, name, type);
    t->dtype = (enum dtype)dtype;
    const struct json *shape, *boxes;
    rc = need_array(v, "shape", &shape, &t->shape.nd, what, e);
    if (rc == OK && t->shape.nd > SHAPE_MAX_DIMS)
        rc = err_set(e, ERR_CORRUPT, "%s: %.200s: %d dimensions, at most %d are possible", what, name, t->shape.nd,
                     SHAPE_MAX_DIMS);
    if (rc == OK) rc = need_dims(v, "shape", t->shape.nd, t->shape.n, what, e);
    int64_t count, bytes;
    if (rc == OK && shape_measure(&t->shape, dtype_bytes(t->dtype), &count, &bytes))
        rc = err_set(e, ERR_CORRUPT, "%s: %.200s: impossible shape", what, name);
    if (rc == OK) rc = need_array(v, "boxes", &boxes, &t->n_boxes, what, e);
    if (rc < 0) return rc;
    t->boxes = arena_alloc(m->arena, (size_t)t->n_boxes * sizeof *t->boxes);
    for (int i = 0; i < t->n_boxes && rc == OK; i++)
        rc = parse_box(m, t, json_at(boxes, (size_t)i), &t->boxes[i], what, e);
    return rc == OK ? OK : err_prefix(e, "%.200s", name);
}

static int parse_head(struct manifest *m, const struct json *v, const char *what, struct err *e)
{
    const char *format, *tutti;
    int64_t version;
    int rc = json_need_string(v, "format", &format, what, e);
    if (rc == OK && strcmp(format, FORMAT)) rc = err_set(e, ERR_CORRUPT, "%s: not a manifest of tutti", what);
    if (rc == OK) rc = json_need_int(v, "version", 1, INT_LIMIT, &version, what, e);
    if (rc == OK) rc = json_need_string(v, "tutti", &tutti, what, e);
    if (rc < 0) return rc;
    m->tutti = arena_strdup(m->arena, tutti);
    if (version > MANIFEST_VERSION)
        return err_set(e, ERR_REQUEST,
                       "%s: written in version %lld of the format by tutti %.40s; this tutti reads version %d: use "
                       "that one",
                       what, (long long)version, tutti, MANIFEST_VERSION);
    m->version = (int)version;
    rc = json_need_int(v, "step", 0, COUNT_LIMIT, &m->step, what, e);
    if (rc == OK) rc = json_need_int(v, "tokens", 0, COUNT_LIMIT, &m->tokens, what, e);
    if (rc == OK) rc = json_need_int(v, "seed", INT64_MIN, INT_LIMIT, &m->seed, what, e);
    if (rc == OK) rc = json_need_int(v, "publication", 0, COUNT_LIMIT, &m->publication, what, e);
    if (rc == OK && json_get(v, "run")) rc = need_sum(v, "run", &m->run, what, e);
    if (rc == OK && json_get(v, "chunk")) rc = json_need_int(v, "chunk", 1, CHUNK_LIMIT, &m->chunk, what, e);
    return rc;
}

/* What its writer says of the whole state is what it says of the parts. */
static int check_state(const struct manifest *m, const char *what, struct err *e)
{
    uint64_t written, found;
    char x[17], y[17];
    int rc = need_sum(m->root, "state", &written, what, e);
    if (rc < 0 || (manifest_state(m, &found) && found == written)) return rc;
    return err_set(e, ERR_CORRUPT, "%s: state: %s, but its tensors, step and loss scale make %s", what,
                   hash64_print(x, written), hash64_print(y, found));
}

static int parse_body(struct manifest *m, const char *what, bool part, struct err *e)
{
    const struct json *files, *tensors, *v = m->root;
    int rc = parse_head(m, v, what, e);
    if (rc == OK) rc = need_array(v, "files", &files, &m->n_files, what, e);
    if (rc == OK) rc = need_array(v, "tensors", &tensors, &m->n_tensors, what, e);
    if (rc < 0) return rc;
    m->files = arena_alloc(m->arena, (size_t)m->n_files * sizeof *m->files);
    m->tensors = arena_alloc(m->arena, (size_t)m->n_tensors * sizeof *m->tensors);
    for (int i = 0; i < m->n_files && rc == OK; i++)
        rc = parse_file(m, json_at(files, (size_t)i), &m->files[i], what, e);
    for (int i = 0; i < m->n_tensors && rc == OK; i++)
        rc = parse_tensor(m, json_at(tensors, (size_t)i), &m->tensors[i], what, e);
    m->extra = json_get(v, "extra");
    if (rc == OK && m->extra && json_kind(m->extra) != JSON_OBJECT)
        rc = err_set(e, ERR_CORRUPT, "%s: extra: wanted an object", what);
    if (rc == OK) rc = manifest_finish(m, what, part, e);
    return rc == OK && json_get(v, "state") ? check_state(m, what, e) : rc;
}

int manifest_parse(struct manifest *m, const char *text, size_t n, const char *what, bool part, struct err *e)
{
    manifest_init(m);
    m->hash = hash64(text, n);
    int rc = check_seal(text, n, what, e);
    if (rc == OK) rc = json_parse(&m->root, text, n, what, e);
    if (rc == OK) rc = parse_body(m, what, part, e);
    if (rc < 0) manifest_fini(m);
    return rc;
}

int manifest_read(struct manifest *m, const char *path, bool part, struct err *e)
{
    char *text;
    size_t n;
    int rc = fs_read_all(path, MANIFEST_LIMIT, &text, &n, e);
    if (rc < 0) return rc;
    rc = manifest_parse(m, text, n, path, part, e);
    xfree(text);
    return rc;
}

/* -- checking ----------------------------------------------------------------------------------------------- */

static int compare_names(const struct manifest_tensor *a, const char *group, const char *name)
{
    int c = strcmp(a->group, group);
    return c ? c : strcmp(a->name, name);
}

static int by_name(const void *a, const void *b, void *tensors)
{
    const struct manifest_tensor *t = tensors, *x = &t[*(const int *)a], *y = &t[*(const int *)b];
    return compare_names(x, y->group, y->name);
}

int manifest_find(const struct manifest *m, const char *group, const char *name)
{
    int lo = 0, hi = m->n_tensors;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2, c = compare_names(&m->tensors[m->by_name[mid]], group, name);
        if (c == 0) return m->by_name[mid];
        if (c < 0) lo = mid + 1;
        else hi = mid;
    }
    return -1;
}

static int by_corner(const void *a, const void *b)
{
    const struct manifest_box *x = a, *y = b;
    return region_compare(&x->box, &y->box);
}

static int overlap(const char *what, const struct manifest_tensor *t, const struct region *a, const struct region *b,
                   struct err *e)
{
    char x[256], y[256];
    return err_set(e, ERR_CORRUPT, "%s: %s/%.200s: boxes %s and %s overlap", what, t->group, t->name,
                   region_print(x, a), region_print(y, b));
}

static int check_tiling(const struct manifest_tensor *t, const char *what, struct err *e)
{
    size_t n = (size_t)t->n_boxes;
    int64_t found = 0, wanted = shape_numel(&t->shape);
    for (size_t i = 0; i < n; i++) found += region_volume(&t->boxes[i].box);
    struct manifest_box *sorted = xmalloc(n * sizeof *sorted + 1);
    if (n) memcpy(sorted, t->boxes, n * sizeof *sorted);
    if (n) qsort(sorted, n, sizeof *sorted, by_corner);
    int rc = OK;
    for (size_t i = 0; i < n && rc == OK; i++)
        for (size_t j = i + 1; j < n && rc == OK; j++) {
            const struct region *a = &sorted[i].box, *b = &sorted[j].box;
            struct region shared;
            if (t->shape.nd && b->lo[0] >= a->hi[0]) break;
            if (region_intersect(a, b, &shared)) rc = overlap(what, t, a, b, e);
        }
    xfree(sorted);
    if (rc == OK && found != wanted)
        rc = err_set(e, ERR_CORRUPT, "%s: %s/%.200s: its boxes hold %lld of %lld elements", what, t->group, t->name,
                     (long long)found, (long long)wanted);
    return rc;
}

/* For boxes that lie in their tensors: parsing and the writer see to that. */
static int check_tensor(const struct manifest_tensor *t, const char *what, bool part, struct err *e)
{
    int64_t sum = 0;
    for (int i = 0; i < t->n_boxes; i++) {
        const struct manifest_box *b = &t->boxes[i];
        int64_t count = region_volume(&b->box);
        if (b->bytes != count * (int64_t)dtype_bytes(t->dtype))
            return err_set(e, ERR_CORRUPT, "%s: %s/%.200s: box %d: bytes do not agree with its extent", what, t->group,
                           t->name, i);
        if (__builtin_add_overflow(sum, count, &sum))
            return err_set(e, ERR_CORRUPT, "%s: %s/%.200s: its boxes hold more than any file", what, t->group, t->name);
    }
    return part ? OK : check_tiling(t, what, e);
}

int manifest_finish(struct manifest *m, const char *what, bool part, struct err *e)
{
    size_t n = (size_t)m->n_tensors;
    m->by_name = arena_alloc(m->arena, (n + 1) * sizeof *m->by_name);
    for (int i = 0; i < m->n_tensors; i++) m->by_name[i] = i;
    if (n) qsort_r(m->by_name, n, sizeof *m->by_name, by_name, m->tensors);
    for (size_t i = 1; i < n; i++) {
        const struct manifest_tensor *t = &m->tensors[m->by_name[i]];
        if (!part && by_name(&m->by_name[i - 1], &m->by_name[i], m->tensors) == 0)
            return err_set(e, ERR_CORRUPT, "%s: %s/%.200s is listed twice", what, t->group, t->name);
    }
    for (int i = 0; i < m->n_tensors; i++) {
        int rc = check_tensor(&m->tensors[i], what, part, e);
        if (rc < 0) return rc;
    }
    return OK;
}
