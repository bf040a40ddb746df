/* SPDX-License-Identifier: Apache-2.0 */
#include "source/bad_list.h"

#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "source/beside_data.h"

void bad_list_init(struct bad_list *l, const char *made_from_it)
{
    struct str name = {0}, temporary = {0};
    str_printf(&name, "%s" BESIDE_SKIPPED, made_from_it);
    str_printf(&temporary, "%s" BESIDE_SKIPPED BESIDE_UNFINISHED, made_from_it);
    *l = (struct bad_list){.path = name.p, .temporary = temporary.p};
}

void bad_list_clear(struct bad_list *l) { unlink(l->temporary); }

/* Reasons may quote the input: a line stays a line. */
static void write_line(struct bad_list *l, const char *what)
{
    size_t n = strlen(what);
    char *line = xmalloc(n + 1);
    memcpy(line, what, n);
    for (size_t i = 0; i < n; i++)
        if (line[i] == '\n' || line[i] == '\r') line[i] = ' ';
    line[n] = '\n';
    if (fs_writer_write(l->file, line, n + 1, l->error.code ? NULL : &l->error) && !l->error.code)
        l->error.code = ERR_IO;
    xfree(line);
}

void bad_list_add(void *list, const char *what)
{
    struct bad_list *l = list;
    if (l->n++ < BAD_LIST_SHOWN) log_warn("data: skipped: %s", what);
    if (l->n == BAD_LIST_SHOWN + 1) log_warn("data: more is skipped; all of it goes to %s", l->path);
    if (!l->file && !l->error.code) (void)fs_writer_open(&l->file, l->temporary, &l->error);
    if (l->file && !l->error.code) write_line(l, what);
}

int bad_list_end(struct bad_list *l, struct err *e)
{
    struct err last = {0};
    bool any = l->file;
    if (any && fs_writer_close(l->file, false, &last) && !l->error.code) l->error = last;
    l->file = NULL;
    if (any && e && !l->error.code) (void)fs_rename(l->temporary, l->path, &l->error);
    if (any && (!e || l->error.code)) unlink(l->temporary);
    if (l->error.code) return err_set(e, l->error.code, "%s", l->error.text);
    if (!any && e) unlink(l->path); /* of what was made before */
    if (l->n && e) log_warn("data: %lld bad records were skipped; they are listed in %s", (long long)l->n, l->path);
    return OK;
}

void bad_list_fini(struct bad_list *l)
{
    if (l->file) {
        (void)fs_writer_close(l->file, false, NULL);
        unlink(l->temporary);
    }
    xfree(l->path);
    xfree(l->temporary);
    *l = (struct bad_list){0};
}
