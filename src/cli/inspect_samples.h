/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_samples.h: the samples of a training step, or the documents of a token file, for `tutti data inspect`.
 * Order: Local. */
#ifndef TUTTI_CLI_INSPECT_SAMPLES_H
#define TUTTI_CLI_INSPECT_SAMPLES_H

#include "cli/cli.h"
#include "data/tokenfile.h"

struct inspect_request {
    const char *what; /* PREFIX or CONFIG */
    const char *tokenizer, *html;
    int64_t show, step, sample; /* step 0, sample -1: not given */
    bool verify, json, tokens;
    struct cli_keys keys;
};
/* Samples of step `step` of a config; sample: that one of them only. */
int inspect_step(const struct inspect_request *q, struct err *e);
/* Document `sample` of a token file. */
int inspect_document(const struct inspect_request *q, const struct tokenfile *f, struct err *e);

#endif
