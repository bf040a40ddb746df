/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c: did a launcher start this process as one of several? Asked of the environment, so that a plain start costs
 * nothing. The names are those that Open MPI, PMIx, MPICH's hydra (PMI) and srun set for every rank.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

bool comm_launched(void)
{
    static const char *const always[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (getenv(always[i])) return true;
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"); /* also set where srun runs a single task, as for a shell */
    return tasks && atoi(tasks) > 1;
}

/* A batch script runs as a step of its own, "batch" (older versions of Slurm say 4294967291, newer ones nothing), and
 * has no number of tasks in the step. */
int comm_tasks_idle(void)
{
    const char *job = getenv("SLURM_JOB_ID"), *tasks = getenv("SLURM_NTASKS"), *step = getenv("SLURM_STEP_ID");
    bool in_script = job && (!step || !strcmp(step, "batch") || !strcmp(step, "4294967291"));
    return !comm_launched() && in_script && tasks && atoi(tasks) > 1 ? atoi(tasks) : 0;
}

/* An mpirun inside a step (one task a host, which starts the ranks) says itself how many ranks there are. */
int comm_tasks_apart(const struct comm *world)
{
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"), *pmi = getenv("PMI_SIZE");
    bool told = getenv("OMPI_COMM_WORLD_SIZE") || (pmi && atoi(pmi) == 1);
    return comm_size(world) == 1 && !told && tasks && atoi(tasks) > 1 ? atoi(tasks) : 0;
}
