/* SPDX-License-Identifier: Apache-2.0 */
/* script_runs.h: scripts as the `tokenizers` library's UnicodeScripts has them: kana is Han, a space and what has no
 * script of its tables is of any. Made by scripts/make_script_runs.py. Includes: libc. Order: Local. */
#ifndef TUTTI_TEXT_SCRIPT_RUNS_H
#define TUTTI_TEXT_SCRIPT_RUNS_H

#include <stdint.h>

struct script_run {
    uint32_t lo, hi;
    int script;
};
extern const struct script_run script_runs[]; /* in order */
extern const int n_script_runs;

/* A number from 1 on for each script; 0: any. */
int script_of(uint32_t code);

#endif
