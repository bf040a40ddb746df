/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps write fs_write_atomic */
/* One process of several, of which the last does something wrong: ranks_faults WHAT FOLDER RANKS-PER-HOST, under a
 * launcher.
 *
 *     operation   calls another operation than the others      hang    stops for good
 *     count       brings another number of elements            exit    ends without a word
 *     dtype       brings elements of another type              kill    kills itself
 *     fail        gives up with an error of its own            native  hangs where others are in the library's
 *                                                                      collective
 *     message     sends more than its neighbour receives       behind  hangs; rank 0 waits for rank 1, that for the
 *                                                                      last
 *
 * "operation unchecked": descriptors are not compared before data moves. "fail slowly": a busy machine lets who speaks
 * for the job wait in every write to stderr, and who writes the flight recorder.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"

#define LATE_S 5       /* who is not late comes in that time, on a busy machine too */
#define AT_ONCE_S 1000 /* longer than the script lets us run: what is found only then is not found */

static bool slow;

ssize_t __real_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    if (slow && fd == STDERR_FILENO) sleep(1);
    return __real_write(fd, p, n);
}

int __real_fs_write_atomic(const char *path, const void *p, size_t n, struct err *e);
int __wrap_fs_write_atomic(const char *path, const void *p, size_t n, struct err *e);
int __wrap_fs_write_atomic(const char *path, const void *p, size_t n, struct err *e)
{
    if (slow) sleep(4);
    return __real_fs_write_atomic(path, p, n, e);
}

static bool hangs(const char *what)
{
    static const char *const hang[] = {"hang", "native", "behind", "absent"};
    for (size_t i = 0; i < sizeof hang / sizeof *hang; i++)
        if (!strcmp(what, hang[i])) return true;
    return false;
}

static int go_wrong(struct comm *c, const char *what, struct err *e)
{
    float x[8] = {0};
    if (!strncmp(what, "operation", 9)) comm_wait(c, comm_broadcast(c, x, 8, DT_F32, 0, "in the wrong branch"));
    if (!strcmp(what, "count")) comm_wait(c, comm_all_reduce(c, x, x, 7, DT_F32, COMM_SUM, "gradient"));
    if (!strcmp(what, "dtype")) comm_wait(c, comm_all_reduce(c, x, x, 8, DT_I32, COMM_SUM, "gradient"));
    if (!strncmp(what, "fail", 4)) return err_set(e, ERR_IO, "/data/a.bin: no space left");
    if (!strcmp(what, "message")) comm_wait(c, comm_send(c, x, 8, DT_F32, 0, "activation"));
    if (!strcmp(what, "exit")) _exit(0);
    if (!strcmp(what, "kill")) raise(SIGKILL);
    if (hangs(what)) sleep(1000);
    return comm_status(c, e);
}

/* Rank 0 is the one to wait too long: for a rank that waits itself, and is more patient. */
static int wait_behind(struct comm *c, struct err *e)
{
    float x[8];
    if (comm_rank(c) == 1) comm_patience(c, AT_ONCE_S);
    comm_wait(c, comm_recv(c, x, 8, DT_F32, comm_rank(c) + 1, "activation"));
    return comm_status(c, e);
}

static int make_group(struct comm *c, const char *what, struct err *e)
{
    struct comm *pair;
    const int all[] = {0, 1, 2}, two[] = {0, 2};
    if (comm_rank(c) == 1 || (comm_rank(c) == 2 && !strcmp(what, "absent"))) sleep(1000); /* until the job's end */
    bool other = comm_rank(c) == 2;
    return comm_split_list(&pair, c, other ? all : two, other ? 3 : 2, "pair", e);
}

static int work(struct comm *c, const char *what, struct err *e)
{
    float x[8] = {0};
    bool last = comm_rank(c) == comm_size(c) - 1;
    if (!strcmp(what, "native") && comm_algorithm_set(c, "native", e)) return e->code;
    if (!strcmp(what, "absent") || !strcmp(what, "list")) return make_group(c, what, e);
    for (int i = 0; i < 3; i++) comm_wait(c, comm_all_reduce(c, x, x, 8, DT_F32, COMM_SUM, "gradient"));
    if (last) return go_wrong(c, what, e);
    if (!strcmp(what, "behind")) return wait_behind(c, e);
    if (!strcmp(what, "message") && comm_rank(c) == 0)
        comm_wait(c, comm_recv(c, x, 4, DT_F32, comm_size(c) - 1, "activation"));
    else comm_wait(c, comm_all_reduce(c, x, x, 8, DT_F32, COMM_SUM, "gradient"));
    return comm_status(c, e);
}

int main(int argc, char **argv)
{
    struct comm *world;
    struct err e = {0};
    if (argc != 4) return 2;
    slow = strstr(argv[1], "slowly");
    bool unchecked = strstr(argv[1], "unchecked"); /* who does not compare finds only that all wait */
    struct comm_config cfg = {.timeout_s = hangs(argv[1]) || unchecked ? LATE_S : AT_ONCE_S,
                              .dump_dir = argv[2],
                              .check = !unchecked,
                              .ranks_per_host = atoi(argv[3])};
    signal(SIGTERM, SIG_IGN); /* as the trainer, which stops after a step: launchers send it first */
    int rc = comm_world_mpi(&world, &cfg, &e);
    if (rc) return fprintf(stderr, "%s\n", e.text), 2;
    rc = work(world, argv[1], &e);
    if (rc) comm_abort(world, &e);
    comm_free(world);
    return 0;
}
