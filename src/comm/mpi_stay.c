/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_stay.c: a rank whose launcher was killed stays, so that it can save what it has (train/signals.h).
 *
 * Open MPI's processes talk to their launcher through PMIx (https://pmix.github.io). Its client tells an event when
 * that connection is lost, for which Open MPI has a handler of last resort: it ends the process about a second later,
 * in the middle of whatever is being saved. A handler of ours comes before it and says that the event has been dealt
 * with. From version 4 on, whose code the event has; who has no PMIx (MPICH) has nothing that ends its processes. The
 * few declarations are the ABI of the PMIx standard, whose headers are not installed everywhere that the library is.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/mpi_inside.h"

enum { LOST_CONNECTION = -61, ACTION_COMPLETE = -334 };

typedef void done_fn(int status, void *results, size_t n, void *cbfunc, void *thiscbdata, void *ctx);
typedef void event_fn(size_t id, int status, const void *source, void *info, size_t n_info, void *results,
                      size_t n_results, done_fn *done, void *ctx);
typedef int register_fn(int *codes, size_t n_codes, void *info, size_t n_info, event_fn *event, void *cbfunc,
                        void *ctx);
typedef const char *version_fn(void);

/* On a thread of the library's. */
static void stay(size_t id, int status, const void *source, void *info, size_t n_info, void *results, size_t n_results,
                 done_fn *done, void *ctx)
{
    (void)id, (void)status, (void)source, (void)info, (void)n_info, (void)results, (void)n_results;
    if (done) done(ACTION_COMPLETE, NULL, 0, NULL, NULL, ctx);
}

/* Of the library that is there already; NULL: none, or another name. */
static void *symbol(void *library, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found || !library ? found : dlsym(library, name);
}

void mpi_stay(void)
{
    void *library = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    register_fn *enlist;
    version_fn *version;
    *(void **)&enlist = symbol(library, "PMIx_Register_event_handler");
    *(void **)&version = symbol(library, "PMIx_Get_version");
    const char *text = enlist && version ? version() : NULL, *number = text ? strpbrk(text, "0123456789") : NULL;
    if (!number || atoi(number) < 4) {
        log_debug("PMIx: %s", text ? text : "not in this process");
        return;
    }
    int codes[] = {LOST_CONNECTION}, id = enlist(codes, 1, NULL, 0, stay, NULL, NULL);
    log_debug("PMIx %s: a lost launcher ends no process (%d)", text, id);
}
