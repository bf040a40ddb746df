/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_media.h: one file of pictures, sound or video, for `tutti data inspect`. Order: Local. */
#ifndef TUTTI_CLI_INSPECT_MEDIA_H
#define TUTTI_CLI_INSPECT_MEDIA_H

#include <stdbool.h>

#include "cli/inspect_samples.h"

/* By its name: whether inspect_media is asked. */
bool inspect_is_media(const char *path);
int inspect_media(const struct inspect_request *q, struct err *e);

#endif
