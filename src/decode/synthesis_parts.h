/* SPDX-License-Identifier: Apache-2.0 */
/* synthesis_parts.h: the folder that `tutti data synthesise` writes: part-00000.jsonl.zst, part-00001..., and
 * .synthesis.json, which says how far it is.
 *
 * Invariants
 *   1. A part appears under its name when it is complete and on the disk; then .synthesis.json counts it. Killed
 *      between the two, the part is made again, with the same bytes.
 *   2. What a start that was killed left unfinished has a hidden name, and is removed by the next start.
 *   3. A folder of other keys is refused by the name of what is other.
 * The caller holds the folder's lock. Includes: base, curate. Order: Local.
 */
#ifndef TUTTI_DECODE_SYNTHESIS_PARTS_H
#define TUTTI_DECODE_SYNTHESIS_PARTS_H

#include "curate/compress.h"
#include "curate/removals.h"

enum { SYNTHESIS_RULES, SYNTHESIS_PROMPTS, SYNTHESIS_MODEL, SYNTHESIS_OPTIONS, SYNTHESIS_KEYS };

struct synthesis_counts {
    int64_t prompts; /* records that are done, bad ones among them */
    int64_t samples, prompt_tokens, tokens, bytes;
    int64_t kept, kept_bytes, emptied; /* emptied: nothing was left of the text, or nothing was said: not written */
    int64_t stopped_length, stopped_end, stopped_full;
};
struct synthesis_parts {
    const char *folder;
    bool plain; /* .jsonl, not .jsonl.zst */
    uint64_t key[SYNTHESIS_KEYS];
    bool complete;
    int64_t *bytes_of; /* of the file of each part that is done; 0: it has none */
    int64_t n, room, files;
    struct synthesis_counts counts;
    struct removals removals;
    /* of the part that is being written */
    struct fs_writer *writer;
    struct str lines, packed;
    struct compressor *compressor;
};

/* folder, plain and key are set, removals are of the rules. Reads what an earlier start left (*before: there is such)
 * and removes what is unfinished; writes nothing. */
int parts_start(struct synthesis_parts *p, bool *before, struct err *e);
/* The progress that an earlier start wrote, into p: its keys are compared with p's. For parts_start, and its fuzzer.
 * ERR_CORRUPT; ERR_REQUEST: of other keys. */
int parts_parse(struct synthesis_parts *p, const char *text, size_t n, const char *what, struct err *e);
/* From here on the folder is of these keys, before the first line and where there was nothing before. */
int parts_claim(struct synthesis_parts *p, struct err *e);
/* A line was added to p->lines: writes them when they are many. */
int parts_flush(struct synthesis_parts *p, bool all, struct err *e);
/* The part is complete: named, counted with p->counts and p->removals. */
int parts_end(struct synthesis_parts *p, bool last, struct err *e);
void parts_fini(struct synthesis_parts *p);

#endif
