/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices there are, and how one is opened: a new one is a row here. */
#include <stdlib.h>
#include <string.h>

#include "device/inside.h"

static int open_cpu(struct device **d, int n_threads, struct err *e) { return cpu_new(d, n_threads, false, e); }

static int open_null(struct device **d, int n_threads, struct err *e)
{
    (void)n_threads;
    return device_null_new(d, e);
}

static uint64_t seed(void)
{
    const char *word = getenv("TUTTI_DEVICE_SEED");
    return word ? strtoull(word, NULL, 10) : 1;
}

static int open_late(struct device **d, int n_threads, struct err *e)
{
    return device_late_new(d, n_threads, seed(), NULL, NULL, e);
}

static int open_running(struct device **d, int n_threads, struct err *e)
{
    return device_running_new(d, n_threads, seed(), NULL, NULL, e);
}

/* Untouchable, and without a kernel of its own: all rows are carried to the host. */
static int open_bare(struct device **d, int n_threads, struct err *e)
{
    int rc = device_untouchable_new(d, n_threads, e);
    if (!rc) (*d)->kernels = device_kernels(DEVICE_BARE);
    return rc;
}

static int open_cuda_sim(struct device **d, int n_threads, struct err *e)
{
    int rc = device_open(d, DEVICE_CPU, n_threads, e);
    if (!rc && strcmp((*d)->kernels, device_kernels(DEVICE_CPU)) != 0) {
        device_free(*d);
        *d = NULL;
        return err_set(e, ERR_REQUEST, "cuda-sim computes on a device that has the cpu's kernels, not on this one");
    }
    if (!rc) (*d)->kernels = device_kernels(DEVICE_CUDA_SIM);
    return rc;
}

static const struct {
    const char *name;
    int (*open)(struct device **d, int n_threads, struct err *e);
} rows[DEVICE_KINDS] = {
    [DEVICE_CPU] = {"cpu", open_cpu},
    [DEVICE_NULL] = {"null", open_null},
    [DEVICE_UNTOUCHABLE] = {"untouchable", device_untouchable_new},
    [DEVICE_LATE] = {"late", open_late},
    [DEVICE_RUNNING] = {"running", open_running},
    [DEVICE_BARE] = {"bare", open_bare},
    [DEVICE_CUDA_SIM] = {"cuda-sim", open_cuda_sim},
};

const char *device_kind_name(enum device_kind k) { return rows[k].name; }

bool device_simulates(const struct device *d) { return !strcmp(d->kernels, device_kernels(DEVICE_CUDA_SIM)); }

const char *device_kernels(enum device_kind k)
{
    return k == DEVICE_CUDA_SIM ? "cuda-sim" : k == DEVICE_BARE ? "none" : "cpu";
}

int device_asked(enum device_kind *k, const char *word, struct err *e)
{
    static const enum device_kind asked[] = {DEVICE_CPU, DEVICE_CUDA_SIM, DEVICE_NULL};
    *k = DEVICE_CPU;
    if (!strcmp(word, "auto")) return OK;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (!strcmp(word, rows[asked[i]].name)) return *k = asked[i], OK;
    if (!strcmp(word, "cuda") || !strncmp(word, "cuda:", 5))
        return err_set(e, ERR_REQUEST,
                       "%s: this program has no code for a GPU; choose cpu, or cuda-sim, which simulates a GPU's "
                       "kernels on the processor: slow, for looking",
                       word);
    return err_set(e, ERR_REQUEST, "wanted auto, cpu, cuda, cuda:N or cuda-sim, got %s", word);
}

/* What stands for a cpu device where tests are run again. */
static int cpu_is(enum device_kind *k, struct err *e)
{
    const char *word = getenv("TUTTI_DEVICE");
    for (int i = 0; word && i < DEVICE_KINDS; i++)
        if (i != DEVICE_NULL && i != DEVICE_CUDA_SIM && !strcmp(word, rows[i].name))
            return *k = (enum device_kind)i, OK;
    if (word)
        return err_set(e, ERR_REQUEST, "TUTTI_DEVICE: wanted cpu, untouchable, late, running or bare, got '%s'", word);
    *k = DEVICE_CPU;
    return OK;
}

int device_open(struct device **d, enum device_kind k, int n_threads, struct err *e)
{
    int rc = k == DEVICE_CPU ? cpu_is(&k, e) : OK;
    *d = NULL;
    return rc ? rc : rows[k].open(d, n_threads, e);
}
