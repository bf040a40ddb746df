/* SPDX-License-Identifier: Apache-2.0 */
/* memckpt.h: a checkpoint in memory, every few steps, that outlives its processes and the loss of any one host.
 *
 * A memory checkpoint is a checkpoint like any other (checkpoint/ckpt.h: the same files, manifest, checksums and code)
 * in a folder of a file system that lies in memory (checkpoint.memory_dir, /dev/shm). Each rank writes the boxes that
 * it would write to disk and sends the file to a partner on another host, which keeps it too.
 *
 *   DIR/tutti-UID-RUNDIR-ID/HOST/step-00000012/boxes-00000.safetensors  of the writers of this host, and of those
 *                                                                       whose partner is here
 *                                             /manifest.json, config.yaml, run.id
 *   UID     the user's number       RUNDIR  16 digits, of run.dir's path
 *   ID      16 digits drawn when the run began, kept in run.dir/id: another run in the same directory has another
 *   HOST    host-K where hosts are pretended (comm.ranks_per_host), else the host's name
 *   DIR/.../place   which directory run.dir lies in, as rank 0's system knows it: containers may share DIR, and have
 *                   different runs below one path
 *
 * Invariants
 *   1. All hosts' directories of one step have the same manifest; together they hold every file of it.
 *   2. A step is removed only when a later one was published on every host: a crash at any moment leaves one whole.
 *   3. With two hosts or more every file lies on two of them, once a save is over: any one host may be lost.
 *   4. Nothing is read or removed in a directory that another user owns or may write to, and nothing of another ID is
 *      read; of another ID only that is removed whose run.dir lay in the very directory that this one's does, so that
 *      nobody will ask for it again.
 * Cost at rest: what this rank writes, and once more at its partner; twice that while one is written. Floor 8. Order:
 * Collective(world) unless said otherwise.
 */
#ifndef TUTTI_KEEP_MEMCKPT_H
#define TUTTI_KEEP_MEMCKPT_H

#include "base/fs.h"
#include "config/config.h"
#include "keep/run_checkpoint.h"

struct memckpt {
    struct comm *world; /* borrowed; NULL: one rank */
    char *dir, *root;   /* of the run; of this host */
    char id[17];        /* of the run; in every manifest's attachment run.id */
    int rank, n, host, n_hosts;
    int *host_of, *partner; /* [n] partner: the rank that keeps a copy of what this one writes; -1: there is one host */
    bool leads;             /* the lowest rank of its host: makes, publishes and removes directories */
    bool pretended;
    struct fs_lock lock;   /* of dir; fd -1: another rank's */
    int64_t saved;         /* step of the newest, -1 none */
    struct ckpt_told told; /* of the newest that this process saved, where it leads */
    int64_t failed;        /* saves in a row that came to nothing */
};

/* Partners: the rank of the same place on the next host, hosts in a circle. Local. */
void memckpt_partners(const int *host_of, int n, int *partner);
/* Bytes of memory that this rank's state takes, here and at its partner, while a checkpoint is written. What files have
 * beside arrays (headers, the manifest: some KiB) is not counted. Local. */
int64_t memckpt_bytes(int64_t saved_bytes, int n_hosts);

/* Finds or makes the run's directories. anew: a person chose what the run goes on from, so it gets another ID, and what
 * is in memory is of another run from now on. fails: ERR_REQUEST, ERR_IO naming the directory and the key. */
int memckpt_open(struct memckpt *m, const struct config *c, struct comm *world, bool anew, struct err *e);
void memckpt_close(struct memckpt *m); /* frees; the files stay. Local */
/* Saves step s->step. A failure is everybody's, and leaves the older checkpoint as it was; after ERR_IO (no room)
 * training may go on. ERR_NUMERIC: the state is not worth keeping. */
int memckpt_save(struct memckpt *m, const struct engine *g, const struct ranks *r, const struct save_info *s,
                 struct err *e);
/* The newest whole one of a step >= least, open on every rank, each of which knows who can read which file; *c NULL:
 * there is none. Those that are newer and damaged, or another run's, are named in `refused`, on rank 0.
 *   fails   ERR_IO, ERR_REQUEST (a newer tutti's): what is there could not be looked at, and may be the newest */
int memckpt_find(struct memckpt *m, int64_t least, struct ckpt **c, struct str *refused, struct err *e);
/* Brings files of *c, which memckpt_find gave, to the hosts that lack them and one of whose ranks needs them:
 * needs[file]. On failure *c is closed, NULL. */
int memckpt_bring(struct memckpt *m, struct ckpt **c, const uint8_t *needs, struct err *e);
/* Where nobody asked for checkpoints in memory (checkpoint.memory_every: 0) and this run left some on this host: says
 * so. Rank 0. Local. */
void memckpt_say_unused(const struct config *c);
/* Removes every checkpoint of this run, on all hosts; what cannot be removed is said. Local. */
void memckpt_drop(struct memckpt *m);

#endif
