/* SPDX-License-Identifier: Apache-2.0 */
/* hf_llava.h: LLaVA's config.json, in which that of a text's model and that of a tower are objects. For hf_config.c.
 * Includes: base, hf.h. Order: Local. */
#ifndef TUTTI_HUB_HF_LLAVA_H
#define TUTTI_HUB_HF_LLAVA_H

#include "hub/hf.h"

/* m: default. As hf_config_parse. */
int hf_llava_read(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                  struct err *e);
/* Their model_type of the tower; NULL: it is none of theirs. */
const char *hf_llava_tower(const struct hf_model *m);
void hf_llava_put(struct json_out *o, const char *key, const struct hf_model *m, const char *architecture,
                  const char *dtype);

/* Of a model that is no LLaVA, or of its text (hf_config.c, hf_config_put.c). */
int hf_text_read(struct hf_model *m, const struct json *config, const struct hf_ignore *ignore, const char *what,
                 struct err *e);
void hf_config_put_as(struct json_out *o, const char *key, const struct hf_model *m, const char *architecture,
                      const char *type, enum dtype dtype);

#endif
