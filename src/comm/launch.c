/* launch.c: did a launcher start this process as one of several? Asked of the environment, so that a plain start costs
 * nothing. The names are those that Open MPI, PMIx, MPICH's hydra (PMI) and srun set for every rank.
 */
#include <stdlib.h>

#include "comm/comm.h"

bool comm_launched(void)
{
    static const char *const always[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (getenv(always[i])) return true;
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS"); /* also set where srun runs a single task, as for a shell */
    return tasks && atoi(tasks) > 1;
}
