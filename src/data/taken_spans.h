/* SPDX-License-Identifier: Apache-2.0 */
/* taken_spans.h: spans of a text are taken out of it, and what they held is what a model has to write (Raffel et al.
 * 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", section 3.1.4).
 *
 *   text      a b c d e f g h
 *   encoder   a b <0> e f <1> .                    . the end of text, <k> the k-th mark
 *   decoder   <0> c d <1> g h .                    reads the same, moved by one place behind the token that starts
 *
 * A sample is both, one behind the other: what the encoder reads, then what the decoder does; targets are of the
 * decoder's places. How many tokens of text a sample takes, how many are taken out and in how many spans follows from
 * its length, so every sample has the same: nothing is padded but what is left behind the decoder's end. Where the
 * spans lie is a pure function of (seed, sample of the order): others in every epoch, the same in every layout and
 * after a stop. A sample that the text does not fill (the last of an evaluation) has no target. Includes: base,
 * tokenizer.h. Order: Local; read-only and shared.
 */
#ifndef TUTTI_DATA_TAKEN_SPANS_H
#define TUTTI_DATA_TAKEN_SPANS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "token/tokenizer.h"

/* The numbers of a sample: tokens of text, those taken out, in so many spans; places of encoder and decoder. */
struct span_counts {
    int64_t text, taken, spans, encoder, decoder;
};
/* Of samples of seq places: the longest text that fits, with so many places for the encoder, 0: as it needs. false:
 * there is none. */
bool span_counts_of(struct span_counts *s, double rate, double mean, int64_t seq, int64_t encoder);

struct span_rule {
    double rate, mean;    /* share of tokens that is taken out, in spans of so many on average; rate 0: none are */
    int64_t id;           /* >= 0: mark k is id - k; -1: the tokenizer's tokens <extra_id_k> */
    int64_t start;        /* what the decoder reads first */
    int64_t seq, encoder; /* places of a sample, of its encoder */
};
struct taken_spans {
    struct span_counts n;
    int64_t seq;
    int32_t mark, start, eos;
};
/* ERR_REQUEST: the tokenizer lacks the marks, or an end of text. */
int spans_init(struct taken_spans *p, const struct span_rule *rule, const struct tokenizer *t, struct err *e);

/* Places of a sample behind both its sides. */
static inline int64_t spans_padding(const struct taken_spans *p) { return p->seq - p->n.encoder - p->n.decoder; }

/* ids, targets [seq] of a sample: come in as its text, of which targets has what is there (-1: nothing), and go out as
 * the sample. text [seq]: room. Returns how many targets there are. */
int64_t spans_apply(const struct taken_spans *p, uint64_t seed, int64_t sample, int32_t *ids, int32_t *targets,
                    int32_t *text);

#endif
