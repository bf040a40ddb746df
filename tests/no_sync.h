/* SPDX-License-Identifier: Apache-2.0 */
/* no_sync.h: for tests of which no machine stops in the middle: what they write need not have arrived on the disk,
 * which on a busy one takes most of their time. That files are synced, and when, is tests/checkpoint/test_crash.c's. In
 * front of the C library's calls, for all tests of a program: weak, since several of them include it. */
#ifndef TUTTI_TESTS_NO_SYNC_H
#define TUTTI_TESTS_NO_SYNC_H

#include <fcntl.h>
#include <unistd.h>

__attribute__((weak)) int fsync(int fd) { return fcntl(fd, F_GETFD) < 0 ? -1 : 0; }

__attribute__((weak)) int sync_file_range(int fd, off_t from, off_t bytes, unsigned flags)
{
    (void)fd, (void)from, (void)bytes, (void)flags;
    return 0;
}

#endif
