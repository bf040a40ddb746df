/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_write.c: tokenizer.json as the `tokenizers` library and tutti read it. Merges are written in the older
 * "left right" form, which every version reads.
 */
#include "token/tokenizer_write.h"

#include <stdio.h>

#include "base/json.h"
#include "token/byte_level.h"
#include "token/split.h"

static void write_eos(struct json_out *o, int64_t id, const char *eos)
{
    json_begin_array(o, "added_tokens");
    json_begin_object(o, NULL);
    json_put_int(o, "id", id);
    json_put_string(o, "content", eos);
    json_put_bool(o, "single_word", false);
    json_put_bool(o, "lstrip", false);
    json_put_bool(o, "rstrip", false);
    json_put_bool(o, "normalized", false);
    json_put_bool(o, "special", true);
    json_end_object(o);
    json_end_array(o);
}

static void write_byte_level(struct json_out *o, const char *key, bool use_regex)
{
    json_begin_object(o, key);
    json_put_string(o, "type", "ByteLevel");
    json_put_bool(o, "add_prefix_space", false);
    json_put_bool(o, "trim_offsets", true);
    json_put_bool(o, "use_regex", use_regex);
    json_end_object(o);
}

static void write_split(struct json_out *o, const char *split)
{
    json_begin_object(o, NULL);
    json_put_string(o, "type", "Split");
    json_begin_object(o, "pattern");
    json_put_string(o, "Regex", split);
    json_end_object(o);
    json_put_string(o, "behavior", "Isolated");
    json_put_bool(o, "invert", false);
    json_end_object(o);
}

static void write_pre_tokenizer(struct json_out *o, const struct tokenizer_draft *d)
{
    bool own = d->n_splits == 1 && d->splits[0] == SPLIT_GPT2;
    if (own || d->n_splits == 0) {
        write_byte_level(o, "pre_tokenizer", own);
        return;
    }
    json_begin_object(o, "pre_tokenizer");
    json_put_string(o, "type", "Sequence");
    json_begin_array(o, "pretokenizers");
    for (int i = 0; i < d->n_splits; i++) write_split(o, d->splits[i]);
    write_byte_level(o, NULL, false);
    json_end_array(o);
    json_end_object(o);
}

static void write_model(struct json_out *o, const struct tokenizer_draft *d)
{
    struct str letters = {0};
    json_begin_object(o, "model");
    json_put_string(o, "type", "BPE");
    json_put_null(o, "dropout");
    json_put_null(o, "unk_token");
    json_put_null(o, "continuing_subword_prefix");
    json_put_null(o, "end_of_word_suffix");
    json_put_bool(o, "fuse_unk", false);
    json_put_bool(o, "byte_fallback", false);
    json_put_bool(o, "ignore_merges", false);
    json_begin_object(o, "vocab");
    for (int32_t i = 0; i < d->n_pieces; i++) {
        str_clear(&letters);
        byte_level_write(&letters, d->pieces[i].p, d->pieces[i].n);
        json_put_int(o, str_text(&letters), i);
    }
    json_end_object(o);
    json_begin_array(o, "merges");
    for (int32_t i = 0; i < d->n_merges; i++) {
        const struct token_text *left = &d->pieces[d->merges[i].left], *right = &d->pieces[d->merges[i].right];
        str_clear(&letters);
        byte_level_write(&letters, left->p, left->n);
        str_putc(&letters, ' ');
        byte_level_write(&letters, right->p, right->n);
        json_put_string(o, NULL, str_text(&letters));
    }
    json_end_array(o);
    json_end_object(o);
    str_free(&letters);
}

void tokenizer_write(struct str *out, const struct tokenizer_draft *d)
{
    struct json_out o = {.s = out, .pretty = true};
    json_begin_object(&o, NULL);
    json_put_string(&o, "version", "1.0");
    json_put_null(&o, "truncation");
    json_put_null(&o, "padding");
    write_eos(&o, d->n_pieces, d->eos);
    json_put_null(&o, "normalizer");
    write_pre_tokenizer(&o, d);
    json_put_null(&o, "post_processor");
    write_byte_level(&o, "decoder", true);
    write_model(&o, d);
    json_end_object(&o);
    str_putc(out, '\n');
}

static void write_metaspace(struct json_out *o)
{
    json_begin_object(o, "pre_tokenizer");
    json_put_string(o, "type", "Metaspace");
    json_put_string(o, "replacement", "\xE2\x96\x81");
    json_put_string(o, "prepend_scheme", "always");
    json_put_bool(o, "split", true);
    json_end_object(o);
}

/* As SentencePiece models with bytes have it: U+2581 is a space, bytes are put together, the first space goes. */
static void write_decoder(struct json_out *o)
{
    json_begin_object(o, "decoder");
    json_put_string(o, "type", "Sequence");
    json_begin_array(o, "decoders");
    json_begin_object(o, NULL);
    json_put_string(o, "type", "Replace");
    json_begin_object(o, "pattern");
    json_put_string(o, "String", "\xE2\x96\x81");
    json_end_object(o);
    json_put_string(o, "content", " ");
    json_end_object(o);
    static const char *const plain[] = {"ByteFallback", "Fuse"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        json_begin_object(o, NULL);
        json_put_string(o, "type", plain[i]);
        json_end_object(o);
    }
    json_begin_object(o, NULL);
    json_put_string(o, "type", "Strip");
    json_put_string(o, "content", " ");
    json_put_int(o, "start", 1);
    json_put_int(o, "stop", 0);
    json_end_object(o);
    json_end_array(o);
    json_end_object(o);
}

/* Twelve digits: with more, readers that do not round to the nearest have another number, and ties fall otherwise. */
static void write_scored(struct json_out *o, const char *text, double score)
{
    json_begin_array(o, NULL);
    json_put_string(o, NULL, text);
    json_put_real_digits(o, NULL, score, 12);
    json_end_array(o);
}

void tokenizer_write_unigram(struct str *out, const char *texts, const struct tokenizer_scored *list, int64_t n,
                             const char *eos)
{
    /* Text that reads like the name of a byte is not that byte: no path goes by it while there is another. */
    static const double never = -1000;
    struct json_out o = {.s = out, .pretty = true};
    json_begin_object(&o, NULL);
    json_put_string(&o, "version", "1.0");
    json_put_null(&o, "truncation");
    json_put_null(&o, "padding");
    write_eos(&o, n + 257, eos);
    json_put_null(&o, "normalizer");
    write_metaspace(&o);
    json_put_null(&o, "post_processor");
    write_decoder(&o);
    json_begin_object(&o, "model");
    json_put_string(&o, "type", "Unigram");
    json_put_int(&o, "unk_id", 0);
    json_begin_array(&o, "vocab");
    write_scored(&o, "<unk>", never);
    for (int i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        write_scored(&o, name, never);
    }
    for (int64_t i = 0; i < n; i++) write_scored(&o, texts + list[i].at, list[i].score);
    json_end_array(&o);
    json_put_bool(&o, "byte_fallback", true);
    json_end_object(&o);
    json_end_object(&o);
    str_putc(out, '\n');
}
