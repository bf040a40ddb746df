/* SPDX-License-Identifier: Apache-2.0 */
/* synthesis_parts.c: see synthesis_parts.h. Lines are packed in frames of GROUP_BYTES, so memory does not grow with a
 * part. */
#include "decode/synthesis_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/seal.h"
#include "curate/parts_sweep.h"

#define PROGRESS ".synthesis.json"
#define SCHEMA "tutti.data-synthesis-progress.1"
enum { FRAME_BYTES = 512 << 10, LEVEL = 3, MOST = 1 << 30 };

static const struct {
    const char *name, *what;
} keys[SYNTHESIS_KEYS] = {
    [SYNTHESIS_RULES] = {"rules", "rules"},
    [SYNTHESIS_PROMPTS] = {"prompts", "prompts (or they were changed)"},
    [SYNTHESIS_MODEL] = {"model", "weights or another tokenizer"},
    [SYNTHESIS_OPTIONS] = {"options", "options (the template, sampling, sizes)"},
};

struct count_row {
    const char *name;
    size_t at;
};
#define COUNT(field)                                                                                                   \
    {                                                                                                                  \
#field, offsetof(struct synthesis_counts, field)                                                               \
    }
static const struct count_row counts[] = {
    COUNT(prompts),    COUNT(samples), COUNT(prompt_tokens),  COUNT(tokens),      COUNT(bytes),        COUNT(kept),
    COUNT(kept_bytes), COUNT(emptied), COUNT(stopped_length), COUNT(stopped_end), COUNT(stopped_full),
};
enum { N_COUNTS = sizeof counts / sizeof *counts };
_Static_assert(N_COUNTS * sizeof(int64_t) == sizeof(struct synthesis_counts), "every count has a row");
static int64_t *count_at(struct synthesis_parts *p, int i)
{
    return (int64_t *)(void *)((char *)&p->counts + counts[i].at);
}

static char *part_path(const struct synthesis_parts *p, int64_t part, bool hidden)
{
    return parts_path(p->folder, part, p->plain, hidden);
}

/* -- progress ------------------------------------------------------------------------------------------------- */

static int save(struct synthesis_parts *p, struct err *e)
{
    struct str text = {0};
    struct json_out j = {.s = &text};
    char key[17];
    json_begin_object(&j, NULL);
    json_put_string(&j, "schema", SCHEMA);
    for (int i = 0; i < SYNTHESIS_KEYS; i++) json_put_string(&j, keys[i].name, hash64_print(key, p->key[i]));
    json_put_bool(&j, "complete", p->complete);
    json_begin_array(&j, "parts");
    for (int64_t i = 0; i < p->n; i++) json_put_int(&j, NULL, p->bytes_of[i]);
    json_end_array(&j);
    json_begin_object(&j, "counts");
    for (int i = 0; i < N_COUNTS; i++) json_put_int(&j, counts[i].name, *count_at(p, i));
    json_end_object(&j);
    removals_write(&p->removals, &j);
    seal_add(&text);
    char *path = fs_join(p->folder, PROGRESS);
    int code = fs_write_atomic(path, text.p, text.n, e);
    xfree(path);
    str_free(&text);
    return code;
}

static int read_members(struct synthesis_parts *p, const struct json *root, const char *what, struct err *e)
{
    if (strcmp(json_string(json_get(root, "schema"), NULL, ""), SCHEMA) != 0)
        return err_set(e, ERR_CORRUPT, "%s: is not of the schema %s", what, SCHEMA);
    for (int i = 0; i < SYNTHESIS_KEYS; i++) {
        uint64_t was;
        if (hash64_parse(json_string(json_get(root, keys[i].name), NULL, ""), &was))
            return err_set(e, ERR_CORRUPT, "%s: %s: wanted 16 digits", what, keys[i].name);
        if (was != p->key[i])
            return err_set(e, ERR_REQUEST,
                           "%s: holds a synthesis with other %s; give these, or another folder, or delete this one to "
                           "start again",
                           p->folder, keys[i].what);
    }
    p->complete = json_bool(json_get(root, "complete"), false);
    const struct json *list = json_get(root, "parts");
    if (!list || json_kind(list) != JSON_ARRAY) return err_set(e, ERR_CORRUPT, "%s: parts: wanted a list", what);
    for (size_t i = 0; i < json_size(list); i++) {
        int64_t bytes = json_int(json_at(list, i), -1);
        if (bytes < 0) return err_set(e, ERR_CORRUPT, "%s: parts: wanted sizes", what);
        GROW(p->bytes_of, p->n, p->room, 1);
        p->bytes_of[p->n++] = bytes;
        p->files += bytes > 0;
    }
    int code = OK;
    for (int i = 0; i < N_COUNTS && !code; i++)
        code = json_need_int(json_get(root, "counts"), counts[i].name, 0, INT64_MAX, count_at(p, i), what, e);
    return code ? code : removals_read(&p->removals, json_get(root, "filters"), what, e);
}

int parts_parse(struct synthesis_parts *p, const char *text, size_t n, const char *what, struct err *e)
{
    struct json *root;
    int code = json_parse(&root, text, n, what, e);
    if (code) return code;
    code = read_members(p, root, what, e);
    json_free(root);
    return code;
}

static int check_files(const struct synthesis_parts *p, struct err *e)
{
    int code = OK;
    for (int64_t i = 0; i < p->n && !code; i++) {
        if (!p->bytes_of[i]) continue;
        char *path = part_path(p, i, false);
        int64_t bytes;
        code = fs_look(path, &bytes, e);
        if (!code && bytes != p->bytes_of[i])
            code = bytes < 0
                       ? err_set(e, ERR_REQUEST, "%s: is gone; delete the folder to start again", path)
                       : err_set(e, ERR_REQUEST,
                                 "%s: has %lld bytes, and had %lld when it was written; delete the folder to start "
                                 "again",
                                 path, (long long)bytes, (long long)p->bytes_of[i]);
        xfree(path);
    }
    return code;
}

/* -- starting ------------------------------------------------------------------------------------------------- */

static int read_progress(struct synthesis_parts *p, const char *path, struct err *e)
{
    char *text;
    size_t n;
    int code = fs_read_all(path, MOST, &text, &n, e);
    if (!code) code = seal_check(text, n, path, NULL, e);
    if (!code) code = parts_parse(p, text, n, path, e);
    xfree(text);
    if (code == ERR_CORRUPT) err_prefix(e, "what an earlier start left is damaged; delete the folder to start again");
    return code ? code : check_files(p, e);
}

int parts_start(struct synthesis_parts *p, bool *before, struct err *e)
{
    char *path = fs_join(p->folder, PROGRESS), *other = NULL;
    int64_t bytes = -1;
    int code = fs_look(path, &bytes, e);
    *before = bytes >= 0;
    if (!code && *before) code = read_progress(p, path, e);
    if (!code) code = parts_sweep(p->folder, PROGRESS, &other, e);
    if (!code && !*before && other)
        code = err_set(e, ERR_REQUEST,
                       "--out: %s is not empty (it holds %s) and no folder of this command; give another one",
                       p->folder, other);
    xfree(other);
    xfree(path);
    if (!code && !p->plain) p->compressor = compressor_new(LEVEL);
    return code;
}

int parts_claim(struct synthesis_parts *p, struct err *e) { return save(p, e); }

/* -- writing -------------------------------------------------------------------------------------------------- */

int parts_flush(struct synthesis_parts *p, bool all, struct err *e)
{
    if (!p->lines.n || (!all && p->lines.n < FRAME_BYTES)) return OK;
    int code = OK;
    if (!p->writer) {
        char *path = part_path(p, p->n, true);
        code = fs_writer_open(&p->writer, path, e);
        xfree(path);
    }
    str_clear(&p->packed);
    if (!code && !p->plain) code = compressor_add(p->compressor, p->lines.p, p->lines.n, &p->packed, e);
    const struct str *out = p->plain ? &p->lines : &p->packed;
    if (!code) code = fs_writer_write(p->writer, out->p, out->n, e);
    str_clear(&p->lines);
    return code;
}

int parts_end(struct synthesis_parts *p, bool last, struct err *e)
{
    int64_t bytes = 0;
    int code = parts_flush(p, true, e);
    if (!code && p->writer) {
        bytes = fs_writer_offset(p->writer);
        code = fs_writer_close(p->writer, true, e);
        p->writer = NULL;
        char *from = part_path(p, p->n, true), *to = part_path(p, p->n, false);
        if (!code) code = fs_rename(from, to, e);
        xfree(from);
        xfree(to);
    }
    if (code) return code;
    GROW(p->bytes_of, p->n, p->room, 1);
    p->bytes_of[p->n++] = bytes;
    p->files += bytes > 0;
    p->complete = last;
    return save(p, e);
}

void parts_fini(struct synthesis_parts *p)
{
    struct err ignored;
    if (p->writer) (void)fs_writer_close(p->writer, false, &ignored);
    compressor_free(p->compressor);
    str_free(&p->lines);
    str_free(&p->packed);
    xfree(p->bytes_of);
    removals_fini(&p->removals);
    *p = (struct synthesis_parts){0};
}
