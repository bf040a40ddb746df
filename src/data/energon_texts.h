/* SPDX-License-Identifier: Apache-2.0 */
/* energon_texts.h: a folder of Megatron-Energon (energon.h) whose samples are pictures with captions (CaptioningSample)
 * or with questions and answers (VQASample), as inputs of records for a model that reads texts with pictures:
 *
 *   field_map: {image: jpg, caption: txt}
 *   field_map: {image: "jpg;png", context: "json[question]", answers: "json[answers]"}
 *
 * Each answer is a record of its own, and all of them weigh alike: a field_map with answer_weights is refused.
 * Includes: base, energon.h, source.h. Order: Local.
 */
#ifndef TUTTI_DATA_ENERGON_TEXTS_H
#define TUTTI_DATA_ENERGON_TEXTS_H

#include "data/energon.h"
#include "source/source.h"

struct energon_texts {
    struct energon folder;
    const char **shards; /* [folder.n] */
    struct source_fields fields;
};
/* ERR_REQUEST: samples of another type; and as energon_read. energon_texts_free in any case. */
int energon_texts_open(struct energon_texts *t, const struct energon_ref *ref, struct err *e);
void energon_texts_free(struct energon_texts *t);

#endif
