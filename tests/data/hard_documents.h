/* SPDX-License-Identifier: Apache-2.0 */
/* hard_documents.h: documents that tokenizers go wrong on, the same ones everywhere: document i is a function of i. The
 * program that holds them writes them for the reference too (make_kinds.py), so that there is one generator.
 *
 * Words, emoji with joiners and flags, combining marks in and out of order, right-to-left and bidirectional marks, CJK,
 * Hangul as letters and syllables, Indic, Thai, full- and half-width forms, ligatures, control characters, all kinds of
 * space, runs, digits of many scripts, code, added tokens whole and broken, byte tokens and meta symbols spelt out,
 * code points of every plane, assigned or not. Every eighth document has bytes that are not UTF-8 (hard_is_broken).
 */
#ifndef TESTS_HARD_DOCUMENTS_H
#define TESTS_HARD_DOCUMENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/str.h"
#include "text/utf8.h"

static inline uint32_t hard_dice(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33);
}

static const char *const hard_bits[] = {
    "the",
    "The",
    "THE",
    " the",
    "a",
    "I",
    "int",
    "return",
    "don't",
    "can't",
    "I'm",
    "we've",
    "you'll",
    "HE'D",
    "it's",
    "naïve",
    "café",
    "cafe\xCC\x81",
    "Straße",
    "STRASSE",
    "İstanbul",
    "ISTANBUL",
    "ǅ",
    "ﬁne",
    "ﬃ",
    "Ω",
    "Ω",
    "K",
    "Å",
    "x\xCC\x81\xCC\xA3",
    "x\xCC\xA3\xCC\x81",
    "q\xCC\x87\xCC\xA3",
    "e\xCC\x81\xCC\x81\xCC\x81",
    "\xCC\x81",
    "\xCD\x84",
    "u\xCC\x9B",
    "ệ",
    "ậ",
    "2\xE2\x83\xA3",
    "\xE2\x83\xA0",
    "o\xCC\xB8",
    "ё",
    "Й",
    "йод",
    "Привет, мир!",
    "Ελληνικά",
    "ΟΔΥΣΣΕΥΣ",
    "你好",
    "世界",
    "中文字符",
    "漢字かな交じり文",
    "カタカナ",
    "ｶﾞ",
    "ﾊﾟｰﾄ",
    "ー",
    "ＡＢＣ１２３",
    "，。！？",
    "「」",
    "㈱",
    "㍻",
    "㌀",
    "①②",
    "Ⅷ",
    "½",
    "안녕하세요",
    "한\xEA\xB8\x80",
    "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB",
    "ㄱㄴ",
    "ﾡ",
    "가\xE1\x86\xA8",
    "مرحبا",
    "السلام عليكم",
    "ﷺ",
    "ﻻ",
    "שלום",
    "שּׁ",
    "\xE2\x80\x8F",
    "\xE2\x80\x8E",
    "\xE2\x80\xAE"
    "abc"
    "\xE2\x80\xAC",
    "بِسْمِ",
    "नमस्ते",
    "क\xE0\xA5\x8D\xE2\x80\x8Dष",
    "क़",
    "\xE0\xA4\x95\xE0\xA4\xBC",
    "বাংলা",
    "தமிழ்",
    "ไทย",
    "สวัสดี",
    "ກຳ",
    "ཨོཾ",
    "မြန်မာ",
    "😀",
    "👨‍👩‍👧‍👦",
    "👍🏽",
    "🇩🇪",
    "🇩",
    "❤️",
    "☺",
    "🏴\xF3\xA0\x81\xA7\xF3\xA0\x81\xA2\xF3\xA0\x81\xBF",
    "🧑‍🚀",
    "✌🏿",
    " ",
    " ",
    " ",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\t",
    "\t\t",
    "\v",
    "\f",
    "\xC2\xA0",
    "\xE3\x80\x80",
    "\xE2\x80\x83",
    "\xE2\x80\x8B",
    "\xE2\x80\x8D",
    "\xE2\x80\x8C",
    "\xEF\xBB\xBF",
    "\xE2\x80\xA8",
    "\xE2\x80\xA9",
    "\xC2\x85",
    "\xE1\x9A\x80",
    "\xC2\xAD",
    "\xE2\x81\xA0",
    "\x01",
    "\x02\x03",
    "\x1B[0m",
    "\x7F",
    "\xC2\x8F",
    "\xC2\x9F",
    "\xEF\xBF\xBD",
    "\xEF\xBF\xBC",
    "\xEF\xBF\xBF",
    "1",
    "12",
    "123",
    "1234567890",
    "3.14159",
    "1,000,000",
    "0x1F",
    "٣٤",
    "३४",
    "२",
    "𝟘",
    "²",
    "₃",
    ".",
    ",",
    "!",
    "?",
    "...",
    "…",
    "--",
    "—",
    "“q”",
    "’s",
    "'",
    "\"",
    "(",
    ")",
    "[x]",
    "{y}",
    "<z>",
    "$",
    "€",
    "£5",
    "+",
    "=",
    "~",
    "^",
    "`",
    "|",
    "\\",
    "/",
    "_",
    "__init__",
    "foo_bar",
    "fooBar",
    "C++",
    "#include <stdio.h>",
    "for (i = 0; i < n; i++) {",
    "http://example.org/a?b=c#d",
    "user@example.com",
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "<0x0A>",
    "<0xE2>",
    "<0xZZ>",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[UNK]",
    "<mask>",
    "<|endoftext|>",
    "<|endof",
    "<|im_start|>",
    "<extra>",
    "<extra",
    "Extra",
    "##",
    "##ing",
    "▁",
    "▁▁",
    "▁the",
    "x▁y",
    "</w>",
    "e</w>",
    "\xC4\xA0",
    "Ġthe",
    "Ċ",
    "\xF0\x9D\x92\x9C",
    "\xF0\x90\x90\x80",
    "\xF0\xA0\x80\x80",
    "\xF0\x91\x9C\xB0",
    "\xF3\xA0\x84\x80",
    "\xF4\x8F\xBF\xBF",
    "\xEE\x80\x80",
    "ꟊ",
    "𞤀",
    "Ა",
    "ა",
    "aaaa",
    "ababab",
    "hahaha",
    "zzzzzzzz",
    "thethethe",
    "supercalifragilisticexpialidocious",
    "internationalization",
    "low",
    "lower",
    "lowest",
    "newer",
    "wide",
};

static const struct {
    uint32_t lo, hi;
} hard_ranges[] = {{0x20, 0x7E},       {0xA0, 0x17F},      {0x180, 0x24F},      {0x250, 0x2FF},     {0x300, 0x36F},
                   {0x370, 0x3FF},     {0x400, 0x52F},     {0x531, 0x5F4},      {0x600, 0x6FF},     {0x860, 0x8FF},
                   {0x900, 0xDFF},     {0xE00, 0xFFF},     {0x1000, 0x11FF},    {0x1200, 0x17FF},   {0x1800, 0x1CFF},
                   {0x1D00, 0x1FFF},   {0x2000, 0x2BFF},   {0x2C00, 0x2FFF},    {0x3000, 0x33FF},   {0x3400, 0x9FFF},
                   {0xA000, 0xABFF},   {0xAC00, 0xD7A3},   {0xE000, 0xE010},    {0xF900, 0xFFFD},   {0x10000, 0x10FFF},
                   {0x11000, 0x12FFF}, {0x16800, 0x18FFF}, {0x1B000, 0x1D7FF},  {0x1E000, 0x1EFFF}, {0x1F000, 0x1FAFF},
                   {0x20000, 0x323AF}, {0xE0000, 0xE01EF}, {0x100000, 0x10FFFD}};

static inline void hard_char(struct str *s, uint64_t *seed)
{
    unsigned char utf8[4];
    uint32_t r = hard_dice(seed) % (sizeof hard_ranges / sizeof *hard_ranges);
    uint32_t c = hard_ranges[r].lo + hard_dice(seed) % (hard_ranges[r].hi - hard_ranges[r].lo + 1);
    str_add(s, utf8, (size_t)utf8_put(utf8, c));
}

static inline void hard_bit(struct str *s, uint64_t *seed)
{
    str_puts(s, hard_bits[hard_dice(seed) % (sizeof hard_bits / sizeof *hard_bits)]);
}

static inline bool hard_is_broken(uint32_t i) { return i % 8 == 7; }

/* Document i, in place of what was in s. */
static inline void hard_document(struct str *s, uint32_t i)
{
    static const char *const bad[] = {"\xFF",         "\x80",         "\xC0\x80",
                                      "\xE2\x82",     "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                      "\xF0\x9F\x98", "\xE4\xBD",     "\xF8",
                                      "\xC3"};
    uint64_t seed = (uint64_t)i * 0x9E3779B97F4A7C15u + 12345;
    str_clear(s);
    (void)hard_dice(&seed);
    uint32_t parts = hard_dice(&seed) % 14;
    for (uint32_t k = 0; k < parts; k++) {
        uint32_t what = hard_dice(&seed) % 16;
        size_t before = s->n;
        if (what < 9) hard_bit(s, &seed);
        else if (what < 13) hard_char(s, &seed);
        else {
            if (what < 15) hard_bit(s, &seed);
            else hard_char(s, &seed);
            struct str one = {0};
            str_add(&one, str_text(s) + before, s->n - before);
            for (uint32_t n = hard_dice(&seed) % (i % 97 == 0 ? 300 : 5); n; n--) str_add(s, str_text(&one), one.n);
            str_free(&one);
        }
        if (hard_dice(&seed) % 3 == 0) str_putc(s, ' ');
        if (hard_is_broken(i) && hard_dice(&seed) % 3 == 0)
            str_puts(s, bad[hard_dice(&seed) % (sizeof bad / sizeof *bad)]);
    }
}

#endif
