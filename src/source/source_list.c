/* SPDX-License-Identifier: Apache-2.0 */
/* source_list.c: walks folders.
 *
 * Depth first, names in byte order. Links are followed; a folder is entered once, told apart by device and inode,
 * which ends loops and also keeps text that is reachable twice from counting twice. Only names are kept (about a
 * hundred bytes a file), and everything is listed before anything is read: progress knows the total.
 *
 * What cannot be looked at (a folder that cannot be read, a name that cannot be asked about) is an error: what was not
 * seen may be half of the text. What was seen and is none (pipes, links that lead nowhere, what tutti wrote beside
 * data: beside_data.h) is passed over and told, once an input.
 */
#include "source/source_list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "source/beside_data.h"
#include "source/blob.h"
#include "source/blob_remote.h"
#include "source/brace.h"
#include "source/source.h"

enum { DEPTH_MAX = 200 };

struct folder_id {
    uint64_t device, inode;
};

struct walk {
    struct source_list *list;
    struct folder_id *seen; /* hash table, inode 0 is empty */
    uint64_t n_seen, mask;
    int64_t n_passed;
    char passed[300]; /* the first that was passed over, and what it is */
};

static void list_put(struct source_list *l, const char *path, const struct stat *st, bool named)
{
    GROW(l->files, l->n, l->room, 1);
    l->files[l->n++] = (struct source_file){
        .path = xstrdup(path),
        .bytes = st->st_size,
        .changed_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
        .named = named,
    };
    l->bytes += st->st_size;
}

/* True the first time. */
static bool first_visit(struct walk *w, const struct stat *st)
{
    if (2 * w->n_seen >= w->mask) {
        struct walk old = *w;
        w->mask = old.seen ? 2 * old.mask + 1 : 255;
        w->seen = xcalloc(w->mask + 1, sizeof *w->seen);
        w->n_seen = 0;
        for (uint64_t i = 0; old.seen && i <= old.mask; i++)
            if (old.seen[i].inode)
                first_visit(w, &(struct stat){.st_dev = old.seen[i].device, .st_ino = old.seen[i].inode});
        xfree(old.seen);
    }
    uint64_t at = ((uint64_t)st->st_ino * 0x9E3779B97F4A7C15u ^ (uint64_t)st->st_dev) & w->mask;
    for (; w->seen[at].inode; at = (at + 1) & w->mask)
        if (w->seen[at].inode == st->st_ino && w->seen[at].device == st->st_dev) return false;
    w->seen[at] = (struct folder_id){.device = st->st_dev, .inode = st->st_ino};
    w->n_seen++;
    return true;
}

static void pass_over(struct walk *w, const char *path, const char *is)
{
    if (w->n_passed++ == 0) snprintf(w->passed, sizeof w->passed, "%.200s is %.80s", path, is);
}

static void say_passed(const struct walk *w, const char *input)
{
    if (w->n_passed)
        log_info("data: %s: %lld names in it are no data and were passed over: %s", input, (long long)w->n_passed,
                 w->passed);
}

static int unseen(const char *path, int why, struct err *e)
{
    return err_errno(e, why == EACCES || why == EPERM ? ERR_REQUEST : ERR_IO, why,
                     "%s: cannot be looked at, so what of the text is in it is not known; mend that, or take it out of "
                     "the folder (names that begin with a dot are passed over)",
                     path);
}

/* The last name of those that were listed is a file that tutti wrote beside data: 1, and it is taken off the list; 0;
 * < 0: that cannot be told. */
static int take_beside(struct walk *w, struct err *e)
{
    struct source_list *l = w->list;
    struct source_file *f = &l->files[l->n - 1];
    const char *slash = strrchr(f->path, '/');
    const struct beside *row = beside_of(slash ? slash + 1 : f->path, false);
    if (!row) return 0;
    char text[BESIDE_BYTES];
    size_t n = f->bytes < BESIDE_BYTES ? (size_t)f->bytes : BESIDE_BYTES;
    struct blob *b = NULL;
    int code = !row->begins ? OK
               : f->object  ? blob_of_object(&b, l->remote, f->object->url, &f->object->about, e)
                            : blob_open(&b, f->path, e);
    if (!code && b) code = blob_read(b, 0, n, text, e);
    blob_close(b);
    if (code) return code;
    if (!beside_begins(row, text, n)) return 0;
    pass_over(w, f->path, row->is);
    l->bytes -= f->bytes;
    l->n--;
    if (f->object) xfree(f->object->url);
    xfree(f->object);
    xfree(f->path);
    return 1;
}

/* Tables that lie in folders as data do, and whose bytes would look like no text: passing them over would leave out all
 * there is. */
static int check_table(const char *path, struct err *e)
{
    static const char *const endings[] = {".arrow", ".feather"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (str_ends(path, endings[i]))
            return err_set(e, ERR_REQUEST,
                           "%s: is an Arrow table, as save_to_disk of datasets writes them, which is not read; write "
                           "it as Parquet: datasets.load_from_disk(FOLDER).to_parquet(\"t.parquet\"), or take it out "
                           "of the folder",
                           path);
    return OK;
}

/* A folder is a run's: its lock holds the number of a process. 1, 0, < 0. */
static int holds_run(const char *folder, struct err *e)
{
    char *path = fs_join(folder, "lock"), *text = NULL;
    int64_t bytes;
    size_t n = 0;
    int code = fs_look(path, &bytes, e), what = code ? code : fs_what(path, e);
    bool maybe = what == FS_FILE && bytes > 1 && bytes <= 24;
    code = what < 0 ? what : maybe ? fs_read_all(path, 24, &text, &n, e) : OK;
    xfree(path);
    if (code || !maybe) return code;
    bool is = strspn(text, "0123456789") + 1 == n && text[n - 1] == '\n';
    xfree(text);
    return is;
}

static int walk_folder(struct walk *w, const char *folder, int depth, struct err *e);

/* A folder, found in another or named. */
static int enter(struct walk *w, const char *path, const struct stat *st, int depth, struct err *e)
{
    if (!first_visit(w, st)) return OK;
    if (depth <= DEPTH_MAX) return walk_folder(w, path, depth, e);
    return err_set(e, ERR_REQUEST, "%s: lies more than %d folders deep; name it as an input of its own", path,
                   DEPTH_MAX);
}

/* A name whose stat failed: gone into nothing, which is known, or not known. */
static int without_stat(struct walk *w, const char *path, int why, struct err *e)
{
    struct stat link;
    bool dangles = why == ENOENT && !lstat(path, &link) && S_ISLNK(link.st_mode);
    if (!dangles) return unseen(path, why, e);
    pass_over(w, path, "a link to what is not there");
    return OK;
}

static int walk_name(struct walk *w, const char *folder, const char *name, int depth, struct err *e)
{
    struct stat st;
    char *path = fs_join(folder, name);
    const struct beside *row;
    int code = check_table(path, e);
    if (code) {
    } else if (stat(path, &st)) {
        code = without_stat(w, path, errno, e);
    } else if (S_ISDIR(st.st_mode)) {
        row = beside_of(name, true);
        if (!row) code = holds_run(path, e);
        if (row || code > 0) pass_over(w, path, row ? row->is : "the folder of a run");
        if (code > 0) code = OK;
        else if (!row && !code) code = enter(w, path, &st, depth + 1, e);
    } else if (!S_ISREG(st.st_mode)) {
        pass_over(w, path, "neither a file nor a folder");
    } else if (st.st_size > 0) {
        list_put(w->list, path, &st, false);
        code = take_beside(w, e);
        if (code > 0) code = OK;
    }
    xfree(path);
    return code;
}

static int walk_folder(struct walk *w, const char *folder, int depth, struct err *e)
{
    char **names;
    int n;
    int code = fs_list(folder, &names, &n, e);
    if (code) return err_prefix(e, "the input cannot be listed, so what of the text is in it is not known");
    for (int i = 0; i < n && !code; i++)
        if (names[i][0] != '.') code = walk_name(w, folder, names[i], depth, e);
    fs_list_free(names, n);
    return code;
}

/* Each of the names has to be there. */
static int add_expanded(struct source_list *l, const char *pattern, struct err *e)
{
    char **names;
    int64_t n;
    int code = brace_expand(pattern, &names, &n, e);
    for (int64_t i = 0; i < n && !code; i++)
        code = brace_has(names[i]) ? source_missing(names[i], "No such file or folder", e)
                                   : source_list_add(l, names[i], e);
    brace_free(names, n);
    return code;
}

static void list_put_object(struct source_list *l, const char *url, const struct remote_about *about, bool named)
{
    struct source_object *o = xcalloc(1, sizeof *o);
    *o = (struct source_object){xstrdup(url), *about};
    GROW(l->files, l->n, l->room, 1);
    l->files[l->n++] = (struct source_file){
        .path = remote_shown(url),
        .bytes = about->bytes,
        .changed_ns = (int64_t)remote_version(url, about),
        .object = o,
        .named = named,
    };
    l->bytes += about->bytes;
}

/* What lies below a prefix, as a folder. 1: something; 0: nothing. */
static int add_prefix(struct source_list *l, const char *url, struct err *e)
{
    struct remote_list found;
    struct walk w = {.list = l};
    int code = remote_list(l->remote, url, &found, e);
    if (code) return code;
    for (int64_t i = 0; i < found.n && code >= 0; i++) {
        list_put_object(l, found.entry[i].url, &found.entry[i].about, false);
        code = check_table(l->files[l->n - 1].path, e);
        if (!code) code = take_beside(&w, e);
    }
    if (code >= 0) code = found.n > w.n_passed;
    if (w.n_passed) {
        char *shown = remote_shown(url);
        say_passed(&w, shown);
        xfree(shown);
    }
    remote_list_free(&found);
    return code;
}

/* An object, else what lies below it. */
static int add_address(struct source_list *l, const char *url, struct err *e)
{
    struct remote_about about;
    if (!l->remote) l->remote = remote_new(l->options);
    bool store = str_starts(url, "s3://"), bucket = store && !strchr(url + strlen("s3://"), '/');
    int code = ERR_REQUEST;
    if (!bucket && !(store && str_ends(url, "/"))) {
        code = remote_look(l->remote, url, &about, e);
        if (!code && about.bytes == 0) {
            char *shown = remote_shown(url);
            code = err_set(e, ERR_REQUEST, "%s: is empty; a text was wanted", shown);
            xfree(shown);
            return code;
        }
        if (!code) list_put_object(l, url, &about, true);
        if (code != ERR_REQUEST || !store) return code;
        return add_prefix(l, url, NULL) > 0 ? OK : code; /* the first answer says why */
    }
    code = add_prefix(l, url, e);
    if (code) return code < 0 ? code : OK;
    return err_set(e, ERR_REQUEST,
                   "%s: holds no object to read (empty ones and names with a dot first are passed over)", url);
}

/* Of an address what everybody may see is said, whoever says it. */
static int add_remote(struct source_list *l, const char *path, struct err *e)
{
    int code = brace_has(path) ? add_expanded(l, path, e) : add_address(l, path, e);
    if (!code) return OK;
    char *shown = remote_hidden(e->text);
    code = err_set(e, code, "%s", shown);
    xfree(shown);
    return code;
}

int source_list_add(struct source_list *l, const char *path, struct err *e)
{
    struct stat st;
    if (remote_is(path)) return add_remote(l, path, e);
    int why = stat(path, &st) ? errno : 0;
    if (why == ENOENT && brace_has(path)) return add_expanded(l, path, e);
    if (why) return source_missing(path, "No such file or folder", e);
    if (S_ISREG(st.st_mode)) {
        if (st.st_size == 0) return err_set(e, ERR_REQUEST, "%s: is empty; a text was wanted", path);
        list_put(l, path, &st, true);
        return OK;
    }
    if (!S_ISDIR(st.st_mode)) return err_set(e, ERR_REQUEST, "%s: is neither a file nor a folder", path);
    struct walk w = {.list = l};
    int64_t before = l->n;
    int code = enter(&w, path, &st, 0, e);
    xfree(w.seen);
    if (code) return code;
    say_passed(&w, path);
    if (l->n > before) return OK;
    return err_set(e, ERR_REQUEST, "%s: holds no file to read (hidden and empty ones are passed over%s%s)", path,
                   w.n_passed ? "; " : "", w.passed);
}

void source_list_fini(struct source_list *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        if (l->files[i].object) xfree(l->files[i].object->url);
        xfree(l->files[i].object);
        xfree(l->files[i].path);
    }
    if (l->remote) remote_say(l->remote);
    remote_free(l->remote);
    xfree(l->files);
    *l = (struct source_list){0};
}
