/* SPDX-License-Identifier: Apache-2.0 */
/* symbols.c: libdwfl, elfutils' library of what is mapped where. The same library unwinds another process: it stops
 * each thread by ptrace for the length of its unwinding. Separate files of debug information are not looked for: the
 * search may ask the network.
 */
#include "base/symbols.h"

#include <elfutils/libdwfl.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"

struct symbols {
    Dwfl *dwfl;
    pid_t pid;
    Dwfl_Callbacks calls;
};

static int no_other_file(Dwfl_Module *m, void **user, const char *name, Dwarf_Addr base, const char *file,
                         const char *link, GElf_Word crc, char **found)
{
    (void)m, (void)user, (void)name, (void)base, (void)file, (void)link, (void)crc, (void)found;
    return -1;
}

struct symbols *symbols_open(pid_t pid)
{
    struct symbols *s = xcalloc(1, sizeof *s);
    s->pid = pid;
    s->calls = (Dwfl_Callbacks){.find_elf = dwfl_linux_proc_find_elf, .find_debuginfo = no_other_file};
    s->dwfl = dwfl_begin(&s->calls);
    if (s->dwfl && !dwfl_linux_proc_report(s->dwfl, pid) && !dwfl_report_end(s->dwfl, NULL, NULL)) return s;
    symbols_close(s);
    return NULL;
}

void symbols_close(struct symbols *s)
{
    if (!s) return;
    if (s->dwfl) dwfl_end(s->dwfl);
    xfree(s);
}

/* Within the instruction that is meant. */
static Dwarf_Addr meant(void *address, bool returns) { return (Dwarf_Addr)(uintptr_t)address - (returns ? 1 : 0); }

const char *symbols_function(struct symbols *s, void *address, bool returns)
{
    Dwarf_Addr at = meant(address, returns);
    Dwfl_Module *m = s ? dwfl_addrmodule(s->dwfl, at) : NULL;
    return m ? dwfl_module_addrname(m, at) : NULL;
}

/* From the folder "src" on: where the tree was built is nobody's business at 3 a.m. */
static const char *in_tree(const char *file)
{
    const char *at = strstr(file, "/src/");
    return at ? at + 1 : file;
}

void symbols_name(struct symbols *s, void *address, bool returns, struct str *out)
{
    Dwarf_Addr at = meant(address, returns), base = 0;
    Dwfl_Module *m = s ? dwfl_addrmodule(s->dwfl, at) : NULL;
    const char *name = symbols_function(s, address, returns), *file = NULL, *module = NULL;
    int line = 0;
    if (m) module = dwfl_module_info(m, NULL, &base, NULL, NULL, NULL, NULL, NULL);
    Dwfl_Line *l = m ? dwfl_module_getsrc(m, at) : NULL;
    if (l) file = dwfl_lineinfo(l, NULL, &line, NULL, NULL, NULL);
    if (name) str_puts(out, name);
    if (name && file) str_printf(out, " (%s:%d)", in_tree(file), line);
    if (file || !module) {
        if (!name) str_printf(out, "%p", address);
        return;
    }
    const char *slash = strrchr(module, '/');
    str_printf(out, "%s%s+0x%llx%s", name ? " (" : "", slash ? slash + 1 : module,
               (unsigned long long)((Dwarf_Addr)(uintptr_t)address - base), name ? ")" : "");
}

/* ---- another process ---- */

struct walk {
    struct stack *list;
    int n;
    struct stack *now; /* NULL: a thread that came after the list was made */
};

static int on_frame(Dwfl_Frame *f, void *arg)
{
    struct walk *w = arg;
    Dwarf_Addr pc;
    if (!w->now || w->now->n == STACK_DEPTH || !dwfl_frame_pc(f, &pc, NULL)) return DWARF_CB_ABORT;
    w->now->at[w->now->n++] = (void *)(uintptr_t)pc;
    return DWARF_CB_OK;
}

static int on_thread(Dwfl_Thread *t, void *arg)
{
    struct walk *w = arg;
    w->now = NULL;
    for (int i = 0; i < w->n; i++)
        if (w->list[i].tid == dwfl_thread_tid(t)) w->now = &w->list[i];
    (void)dwfl_thread_getframes(t, on_frame, w); /* what it could not unwind is missing at the outer end */
    return DWARF_CB_OK;
}

int symbols_trace(struct symbols *s, struct stack *list, int n, struct err *e)
{
    struct walk w = {.list = list, .n = n};
    int traced = 0;
    int rc = dwfl_linux_proc_attach(s->dwfl, s->pid, false);
    if (rc) return err_set(e, ERR_IO, "%s", rc > 0 ? strerror(rc) : dwfl_errmsg(rc == -1 ? -1 : rc));
    errno = 0;
    (void)dwfl_getthreads(s->dwfl, on_thread, &w);
    for (int i = 0; i < n; i++) traced += list[i].n > 0;
    return traced
               ? OK
               : err_set(e, ERR_IO, "the system does not let one process trace another (ptrace): %s", dwfl_errmsg(-1));
}
