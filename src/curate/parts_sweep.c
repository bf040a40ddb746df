/* SPDX-License-Identifier: Apache-2.0 */
#include "curate/parts_sweep.h"

#include <stdio.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"

char *parts_path(const char *folder, int64_t part, bool plain, bool hidden)
{
    char name[64];
    snprintf(name, sizeof name, "%spart-%05lld.jsonl%s%s", hidden ? "." : "", (long long)part, plain ? "" : ".zst",
             hidden ? ".tmp" : "");
    return fs_join(folder, name);
}

int parts_sweep(const char *folder, const char *progress, char **other, struct err *e)
{
    char **names;
    int n, code = fs_sweep_temporaries(folder, progress, e);
    *other = NULL;
    if (!code) code = fs_list(folder, &names, &n, e);
    if (code) return code;
    for (int i = 0; i < n && !code; i++) {
        if (*names[i] != '.' && !*other) *other = xstrdup(names[i]);
        if (!str_starts(names[i], ".part-") || !str_ends(names[i], ".tmp")) continue;
        char *path = fs_join(folder, names[i]);
        code = fs_remove_tree(path, e);
        xfree(path);
    }
    fs_list_free(names, n);
    return code;
}
