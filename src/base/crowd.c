/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crowd.h"

#include "base/thread.h"

enum { RANKS_OF_A_CORE = 16 };

int crowd_check(int64_t ranks, bool insisted, struct err *e)
{
    int cores = thread_n_cores();
    if (insisted || ranks <= (int64_t)RANKS_OF_A_CORE * cores) return OK;
    return err_set(e, ERR_REQUEST,
                   "%lld ranks as threads of this process, which may use %d core%s: at most %d for each; choose %d or "
                   "fewer, start them on more hosts (mpirun, srun), or insist with --crowd",
                   (long long)ranks, cores, cores > 1 ? "s" : "", RANKS_OF_A_CORE, RANKS_OF_A_CORE * cores);
}
