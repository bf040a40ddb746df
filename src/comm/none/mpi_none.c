/* SPDX-License-Identifier: Apache-2.0 */
/* No MPI in this build: asking for its world is refused. The build compiles either this file or comm/mpi*.c. */
#include <stddef.h>

#include "comm/crew.h"

const char *comm_mpi_name(void) { return NULL; }

void comm_mpi_library(char out[64]) { out[0] = 0; }

int comm_world_mpi(struct comm **out, const struct comm_config *cfg, struct err *e)
{
    (void)cfg;
    *out = NULL;
    return err_set(e, ERR_REQUEST, "this tutti was built without MPI; ranks as threads: tutti train CONFIG -n RANKS");
}

int crew_open_mpi(struct crew **out, int *rank, struct err *e)
{
    *out = NULL;
    *rank = 0;
    return err_set(e, ERR_REQUEST, "this tutti was built without MPI; ranks as threads: tutti train CONFIG -n RANKS");
}

void crew_close(struct crew *c, int status) { (void)c, (void)status; }
