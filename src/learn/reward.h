/* SPDX-License-Identifier: Apache-2.0 */
/* reward.h: what answers are worth, asked of a hook of the user's: a command, or an address.
 *
 * A command is run by /bin/sh for every batch of answers: a line of JSON for each on its standard input, and a number
 * for each, in their order, one a line, on its standard output; what it says on its standard error is shown. An address
 * (http://, https://) gets the same lines as the body of a POST and answers with the same lines, or with a JSON list.
 *
 * A hook is not believed: it has a time limit, after which its whole process group is ended; it exits with 0; it gives
 * as many numbers as there are answers, and all are finite. What is not so is an error that says which line, and is
 * tried again as often as asked. Includes: base, remote/http.h. Floor 8. Order: Local.
 */
#ifndef TUTTI_LEARN_REWARD_H
#define TUTTI_LEARN_REWARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct reward_hook {
    const char *hook;          /* a command; or an address, where it begins as one */
    double limit_s;            /* for all of a batch's rewards */
    int64_t tries;             /* >= 1 */
    double pause_s;            /* between them */
    const atomic_int *give_up; /* other than 0: ERR_SIGNAL; NULL: never */
};
bool reward_is_address(const char *hook);
/* lines: n of them, each with its end. ERR_IO: the hook failed; the text says how, after how many tries. */
int reward_ask(const struct reward_hook *h, const char *lines, size_t bytes, int64_t n, double *reward, struct err *e);
/* What a hook put out: n numbers, one a line, empty lines apart; or a JSON list. ERR_CORRUPT: it is something else. */
int reward_parse(const char *text, size_t bytes, int64_t n, double *reward, struct err *e);

#endif
