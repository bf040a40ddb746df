/* SPDX-License-Identifier: Apache-2.0 */
/* hf_generation.h: generation_config.json, which lies beside config.json and says how their library writes texts with
 * a model: which tokens end one, which counts here too, and how a token is drawn, which is the asker's to say here.
 * Includes: base, hf.h. Order: Local. */
#ifndef TUTTI_HUB_HF_GENERATION_H
#define TUTTI_HUB_HF_GENERATION_H

#include "base/str.h"
#include "hub/hf.h"

/* The ends of texts that dir/generation_config.json names, behind those that m has. No file: there are none.
 *   fails   ERR_REQUEST, ERR_IO: the file cannot be read, or an end in it is none */
int hf_generation_ends(struct hf_model *m, const char *dir, struct err *e);
/* Of such a file's text what would change what is written, and is not followed: "top_p 0.9, repetition_penalty 1.05",
 * and keys that are not known; nothing: out stays as it is. */
int hf_generation_unfollowed(const char *text, size_t n, const char *what, struct str *out, struct err *e);
/* Whether the table has a row for the key. For tests. */
bool hf_generation_knows(const char *key);

#endif
