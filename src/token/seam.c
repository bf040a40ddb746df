/* SPDX-License-Identifier: Apache-2.0 */
/* seam.c: what added tokens leave of the seams that splitting allows.
 *
 * A seam is before a line feed or a space that follows a character other than white space. No added token contains that
 * byte, so none crosses the seam, and to one that asks what stands around it, white space is as good as an end of the
 * text; one that takes white space before it along stops at the seam's left side, which is none. One that takes white
 * space behind it might end right at the seam: with such a token there are no seams.
 */
#include "token/seam.h"

#include <string.h>

#include "text/utf8.h"
#include "token/tokenizer_impl.h"

static bool tokens_allow(const struct added *a, unsigned char byte)
{
    for (int i = 0; i < a->n; i++)
        if (a->tokens[i].strip_after || memchr(a->tokens[i].text, byte, a->tokens[i].n)) return false;
    return true;
}

void seams_of_rules(struct seams *s, const struct cut_rules *rules)
{
    *s = (struct seams){.split = rules->split};
    for (int k = 0; k < PATTERN_SEAMS; k++) {
        unsigned char byte = (unsigned char)PATTERN_SEAM_BYTES[k];
        bool spaced = rules->prefix_space && byte != ' '; /* the part behind the seam would get a space */
        if (rules->normalizer) continue;                  /* what stands before a seam is not what is cut */
        s->before[k] = !spaced && tokens_allow(&rules->added[0], byte) && tokens_allow(&rules->added[1], byte);
    }
}

void seams_find(struct seams *s, const struct tokenizer *t)
{
    *s = (struct seams){.everywhere = t->kind == TOKENIZER_BYTE};
    if (t->kind == TOKENIZER_BPE) seams_of_rules(s, &t->cut);
}

bool seam_at(const struct seams *s, const unsigned char *p, size_t at)
{
    if (s->everywhere) return true;
    const char *byte = p[at] ? strchr(PATTERN_SEAM_BYTES, p[at]) : NULL;
    if (!byte || !s->before[byte - PATTERN_SEAM_BYTES]) return false;
    size_t back = 1;
    while (back < 4 && back < at && (p[at - back] & 0xC0) == 0x80) back++;
    const unsigned char *c = p + at - back;
    int len;
    if (utf8_char(c, back) != (int)back || utf8_space(c, back)) return false;
    return split_parts_before(s->split, (int)(byte - PATTERN_SEAM_BYTES), utf8_code(c, &len));
}
