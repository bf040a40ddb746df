/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks of a process have in common: how many there are and on which cores, the config, the run's directory,
 * and what a launcher must be told when the request cannot be carried out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/afford.h"
#include "config/same.h"
#include "config/setup.h"
#include "config/traps.h"
#include "train/epochs.h"
#include "train/trainer_impl.h"

#define CONFIG_MOST ((size_t)1 << 20) /* a longer one is refused where it is read (base/conf.c) */

int job_read_config(struct job *j, struct config *c, struct conf **f, struct arena *a, struct tokenizer **t,
                    struct err *e)
{
    int rc = config_load_text(c, f, a, j->config_path, j->config_text, j->n_text, j->overrides, j->n_overrides, e);
    c->parallel.ranks_here = j->ranks_here;
    c->parallel.sharers = j->sharers;
    c->parallel.least_here = j->least_here;
    c->parallel.cores_left = j->cores_left;
    if (!rc) rc = setup_model(c, *f, a, t, e);
    if (!rc && !*t && !model_sees(&c->model)) rc = setup_no_tokenizer(c, *f, e);
    if (!rc) rc = config_resolve(c, *f, *t ? tokenizer_vocab(*t) : 0, j->n_ranks, e);
    if (!rc && config_device(c) == DEVICE_NULL)
        rc = conf_error(*f, e, "run.device", "null only counts; use tutti plan, or choose cpu");
    if (!rc) rc = traps_check(c, *f, e);
    return rc;
}

int job_take_directory(struct job *j, const struct config *c, const struct conf *f, struct err *e)
{
    int rc = fs_mkdirs(c->run.dir, e);
    if (rc) return err_prefix(e, "%s: run.dir", conf_where(f, "run.dir"));
    char *path = fs_join(c->run.dir, "lock");
    rc = fs_lock_take(&j->lock, path, e);
    if (rc && j->lock.busy) err_prefix(e, "another process trains in %s", c->run.dir);
    else if (rc) err_prefix(e, "%s: run.dir", conf_where(f, "run.dir"));
    j->locked = !rc;
    xfree(path);
    return rc;
}

int job_same_cores(struct job *j, struct comm *launched, struct config *c, struct err *e)
{
    int64_t least[2] = {j->ranks_here, config_cores_left(c)};
    comm_wait(launched, comm_all_reduce(launched, least, least, 2, DT_I64, COMM_MIN, "ranks of a host, cores"));
    c->parallel.least_here = j->least_here = (int)least[0];
    c->parallel.cores_left = j->cores_left = least[1] ? 1 : -1;
    return comm_status(launched, e);
}

void job_watch_hangs(const struct job *j, struct comm_config *c)
{
    hang_dir(j->hang, c->dump_dir);
    c->late = j->hang ? hang_late : NULL;
    c->late_ctx = j->hang;
}

static int run_job(struct job *j, struct comm *launched, struct err *e)
{
    struct config c;
    struct conf *f = NULL;
    struct tokenizer *t = NULL;
    struct arena *a = arena_new();
    bool takes = !launched || comm_rank(launched) == 0;
    int rc = job_read_config(j, &c, &f, a, &t, e); /* refused before any rank starts */
    if (!rc) rc = afford_least(&c, f, j->n_ranks, j->ranks_here, e);
    if (!rc && takes) rc = job_take_directory(j, &c, f, e);
    struct comm_config cc = {0};
    if (!rc) cc = config_comm(&c);
    cc.dump_dir = rc ? NULL : c.run.dir;
    if (!rc) job_watch_hangs(j, &cc);
    if (!rc && !launched)
        rc = j->n_ranks > 1 ? comm_run_local(j->n_ranks, &cc, trainer_rank, j, e) : trainer_rank(NULL, j, e);
    if (launched) {
        rc = comm_agree(launched, rc, e);
        if (!rc) rc = same_config(launched, &c, f, e);
        if (!rc) rc = job_same_cores(j, launched, &c, e);
        if (!rc) cc = config_comm(&c);
        cc.dump_dir = c.run.dir;
        if (!rc) job_watch_hangs(j, &cc);
        if (!rc) rc = comm_configure(launched, &cc, e);
        j->refused = rc != OK && comm_status(launched, NULL) == OK;
        if (!rc) rc = trainer_rank(launched, j, e);
        j->refused |= rc == ERR_SIGNAL;
    }
    if (j->locked) fs_lock_release(&j->lock);
    tokenizer_free(t);
    arena_free(a);
    return rc;
}

/* How many ranks there are: the launcher's, else those asked for. What was asked for and is not so is refused. */
static int count_ranks(struct job *j, struct comm *launched, int asked, struct err *e)
{
    int there = launched ? comm_size(launched) : asked, idle = comm_tasks_idle();
    j->n_ranks = there ? there : 1;
    j->ranks_here = j->least_here = launched ? comm_ranks_here(launched) : j->n_ranks;
    j->sharers = launched ? comm_sharers(launched) : j->n_ranks;
    j->refused = true; /* every process says the same: there is nothing to tear down */
    if (launched && comm_tasks_apart(launched)) {
        char library[64];
        comm_mpi_library(library);
        return err_set(e, ERR_REQUEST,
                       "srun started %d tasks, but this %s is alone: it did not hear from srun of the others; srun "
                       "--mpi=pmix for Open MPI, --mpi=pmi2 for MPICH (srun --mpi=list: what this Slurm has), or "
                       "mpirun",
                       comm_tasks_apart(launched), library);
    }
    if (launched && asked && asked != there)
        return err_set(e, ERR_REQUEST,
                       "-n %d: the launcher started %d processes, and each of them is a rank; leave -n out, or start "
                       "%d processes",
                       asked, there, asked);
    if (!launched && !asked && idle)
        return err_set(e, ERR_REQUEST,
                       "the job has %d tasks, and this is one process: a batch script starts the others with srun "
                       "(srun tutti train ...); for one rank say -n 1, for threads as ranks -n %d",
                       idle, idle);
    j->refused = false;
    return OK;
}

static int start(struct job *j, struct comm *launched, int n_ranks, struct err *e)
{
    int rc = count_ranks(j, launched, n_ranks, e);
    return rc ? rc : run_job(j, launched, e);
}

/* A launcher's world, as long as its first rank. */
static int run_launched(struct job *j, int n_ranks, struct err *e)
{
    struct trainer_result *r = j->result;
    struct comm *launched = NULL;
    int rc = comm_world_mpi(&launched, &(struct comm_config){0}, e);
    if (!rc) {
        r->rank = comm_rank(launched);
        signals_speak(j->signals, r->rank == 0);
        signals_launched(j->signals);
        rc = start(j, launched, n_ranks, e);
    }
    if (rc && launched && !j->refused) comm_abort(launched, e);
    if (rc && launched) { /* a launcher kills the others when the first of them ends with a status: rank 0 speaks before
                             that */
        r->told = r->rank == 0 && fprintf(stderr, "tutti: %s\n", e->text) > 0;
        comm_wait(launched, comm_barrier(launched, "refused"));
    }
    comm_free(launched);
    return rc;
}

int trainer_run(const char *config_path, char *const *overrides, int n_overrides, int n_ranks, struct trainer_result *r,
                struct err *e)
{
    struct job j = {.config_path = config_path, .overrides = overrides, .n_overrides = n_overrides, .result = r};
    memset(r, 0, sizeof *r);
    r->loss = r->valid_loss = NAN;
    if (config_path && fs_read_all(config_path, CONFIG_MOST, &j.config_text, &j.n_text, NULL))
        j.config_text = NULL; /* why is said where it is read in earnest */
    int rc = signals_open(&j.signals, e);
    if (!rc) rc = hang_open(&j.hang, e);
    if (!rc) signals_on_quit(j.signals, hang_asked, j.hang);
    bool elastic = !rc && epochs_wanted(&j);
    if (elastic) rc = epochs_run(&j, n_ranks, e);
    else if (!rc && comm_launched()) rc = run_launched(&j, n_ranks, e);
    else if (!rc) rc = start(&j, NULL, n_ranks, e);
    if (!r->signal) r->signal = signals_number(j.signals);
    signals_close(j.signals);
    hang_close(j.hang);
    xfree(j.config_text);
    return rc;
}
