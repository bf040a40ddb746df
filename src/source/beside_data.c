/* SPDX-License-Identifier: Apache-2.0 */
#include "source/beside_data.h"

#include <fnmatch.h>
#include <string.h>

static const struct beside rows[] = {
    {BESIDE_DEDUP_RESULT, "{\"schema\": \"tutti.dedup.", false, "the report of tutti data dedup"},
    {"removed-*.jsonl", BESIDE_DEDUP_REMOVAL, false, "what tutti data dedup removed"},
    {"removed-*.jsonl" BESIDE_UNFINISHED, NULL, false, "an unfinished list of tutti data dedup"},
    {"part-*.jsonl*" BESIDE_UNFINISHED, NULL, false, "an unfinished part of tutti data dedup"},
    {BESIDE_DEDUP_WORK, NULL, true, "the work of tutti data dedup"},
    {BESIDE_DEDUP_LOCK, NULL, false, "the lock of tutti data dedup"},
    {"*" BESIDE_SKIPPED, NULL, false, "a list of records that were skipped"},
    {"*" BESIDE_SKIPPED BESIDE_UNFINISHED, NULL, false, "an unfinished list of records that were skipped"},
    {"*.tok.work", NULL, false, "unfinished tokens"},
    {"*.tok.tmp*", NULL, false, "unfinished tokens"},
    {"*.tok.lock", NULL, false, "the lock of a token file"},
    {"*.img.tmp", NULL, false, "an unfinished index of pictures"},
    {"*.img.lock", NULL, false, "the lock of an index of pictures"},
    {"*.tmp-[0-9]*-[0-9]*", NULL, false, "a file that was not finished"},
    {"tokenizer.json", "{\"version\": \"1.0\", \"truncation\":", false, "a tokenizer"},
    {"tokenizer_config.json", "{\"tokenizer_class\":", false, "the config of a tokenizer"},
    {"*.counting", NULL, true, "the work of tutti data train-tokenizer"},
    {"lost+found", NULL, true, "a folder of the file system's own"},
};

const struct beside *beside_of(const char *name, bool folder)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].folder == folder && !fnmatch(rows[i].name, name, 0)) return &rows[i];
    return NULL;
}

bool beside_begins(const struct beside *b, const char *p, size_t n)
{
    const char *end = p + n;
    if (!b->begins) return true;
    for (const char *want = b->begins;;) {
        want += strspn(want, " \t\r\n");
        while (p < end && *p && strchr(" \t\r\n", *p)) p++;
        if (!*want) return true;
        if (p == end || *p != *want) return false;
        p++;
        want++;
    }
}
