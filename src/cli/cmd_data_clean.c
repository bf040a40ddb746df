/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_clean.c: `tutti data clean`: documents through the filters of a RULES.yaml, into shards, with a report. */
#include <stdio.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "explain/clean_page.h"
#include "cli/cmd_data.h"
#include "curate/clean_pass.h"

struct request {
    const char *rules, *out, *column, *report;
    int64_t threads, part_bytes, most_bytes;
    bool plain, json, skip_bad;
    struct cli_words inputs;
};

static const char *read_size(const char *text, double least, double most, int64_t *into)
{
    double bytes;
    if (str_to_bytes(text, &bytes) || bytes < least || bytes > most) return "a size from 1 KiB to 1 GiB, such as 256M";
    *into = (int64_t)bytes;
    return NULL;
}
static const char *read_part(void *o, const char *text)
{
    return read_size(text, 1024, 1ull << 40, &((struct request *)o)->part_bytes)
               ? "a size from 1 KiB to 1 TiB, such as 256M"
               : NULL;
}
static const char *read_most(void *o, const char *text)
{
    return read_size(text, 1024, DOCUMENT_MOST - 1, &((struct request *)o)->most_bytes);
}

static const struct cli_option option_rows[] = {
    {"--out", "FOLDER", CLI_TEXT, offsetof(struct request, out), .needed = true,
     .help = "writes FOLDER/part-00000.jsonl.zst ..., which data.train takes as FOLDER"},
    {"--threads", "N", CLI_INT, offsetof(struct request, threads), .lo = 1, .hi = 4096,
     .help = "threads that filter (default: all cores)"},
    {"--report", "FILE", CLI_TEXT, offsetof(struct request, report),
     .help = "one HTML page: what every filter removed, with samples"},
    {"--part-size", "BYTES", CLI_OWN, 0, .read = read_part,
     .help = "of input text that a part is made of (default 256 MiB)"},
    {"--max-document", "BYTES", CLI_OWN, 0, .read = read_most,
     .help = "larger documents are left out and counted (default 64 MiB)"},
    {"--plain", NULL, CLI_FLAG, offsetof(struct request, plain), .help = "write .jsonl, not .jsonl.zst"},
    DATA_COLUMN(struct request, column),
    DATA_SKIP_BAD(struct request, skip_bad),
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{.name = "RULES.yaml", .at = offsetof(struct request, rules)},
                                        {.name = "INPUT", .at = offsetof(struct request, inputs), .many = true}};
static const struct cli_table table = {
    .command = "data clean",
    .usage = "RULES.yaml INPUT... --out FOLDER [options]",
    .about = "Passes documents through filters: what they keep is written as shards of .jsonl, in the order of the\n"
             "input, each with where it came from; other members of a record are left out. Killed at any moment, the\n"
             "same command goes on.\n" DATA_INPUT,
    CLI_OPTIONS(option_rows),
    CLI_WORDS(words),
    .tell = rules_tell,
};

static double share(int64_t part, int64_t of) { return 100.0 * (double)part / (double)(of ? of : 1); }

static void print_text(const struct request *o, const struct pass_result *r)
{
    const struct group_counts *c = &r->counts;
    char bytes[32], kept[32], rate[32], time[32], n[32];
    printf("%s: %lld of %lld documents kept (%.1f %%), %s of %s, %lld parts\n", o->out, (long long)c->kept,
           (long long)c->documents, share(c->kept, c->documents), str_bytes(kept, (double)c->kept_bytes),
           str_bytes(bytes, (double)c->bytes), (long long)r->parts);
    for (int i = 0; i < r->removals.n; i++) {
        const struct use_removals *u = &r->removals.use[i];
        const struct filter *f = r->removals.uses[i].filter;
        printf("  %-20s dropped %lld of %lld (%.1f %%)", f->kind.name, (long long)u->dropped, (long long)u->seen,
               share(u->dropped, u->seen));
        if (u->changed) printf(", changed %lld", (long long)u->changed);
        for (int k = 0, said = 0; k < f->n_rules; k++)
            if (u->rule[k].dropped)
                printf("%s%s %lld", said++ ? ", " : ": ", f->rule[k].name, (long long)u->rule[k].dropped);
        printf("\n");
    }
    if (c->emptied) printf("  %lld documents had no text left\n", (long long)c->emptied);
    if (c->too_large)
        printf("  %s documents larger than %s were left out (--max-document): %s\n", str_count(n, (double)c->too_large),
               str_bytes(bytes, (double)o->most_bytes), r->too_large);
    if (r->bad) printf("  %lld bad records were passed over\n", (long long)r->bad);
    if (c->not_utf8)
        printf("  %lld kept documents had bytes that are no UTF-8, now U+FFFD; the filter unicode mends them\n",
               (long long)c->not_utf8);
    if (r->complete_before) printf("  nothing was left to do\n");
    else
        printf("  %s, %s/s, filters %s/s per core\n", str_duration(time, r->seconds),
               str_bytes(rate, data_per_second(r->filtered_bytes, r->seconds)),
               str_bytes(bytes, data_per_second(r->filtered_bytes, r->filter_s)));
}

static void print_json(const struct request *o, const struct pass_result *r)
{
    struct str text = {0};
    struct json_out j = {.s = &text};
    json_begin_document(&j, "data-clean", 1);
    json_put_string(&j, "path", o->out);
    json_put_int(&j, "documents", r->counts.documents);
    json_put_int(&j, "bytes", r->counts.bytes);
    json_put_int(&j, "kept", r->counts.kept);
    json_put_int(&j, "kept_bytes", r->counts.kept_bytes);
    json_put_int(&j, "emptied", r->counts.emptied);
    json_put_int(&j, "too_large", r->counts.too_large);
    json_put_int(&j, "not_utf8", r->counts.not_utf8);
    json_put_int(&j, "skipped", r->skipped_files);
    json_put_int(&j, "bad", r->bad);
    json_put_int(&j, "parts", r->parts);
    json_put_int(&j, "resumed_at", r->resumed_at);
    json_put_bool(&j, "complete_before", r->complete_before);
    json_put_int(&j, "threads", r->threads);
    json_put_real_digits(&j, "seconds", r->seconds, 6);
    json_put_real_digits(&j, "bytes_per_s", data_per_second(r->filtered_bytes, r->seconds), 6);
    json_put_real_digits(&j, "bytes_per_core_s", data_per_second(r->filtered_bytes, r->filter_s), 6);
    removals_write(&r->removals, &j);
    json_end_object(&j);
    data_print_json(&text);
}

static int write_report(const struct request *o, const struct rules *rules, const struct pass_result *r, struct err *e)
{
    struct str page = {0}, text = {0};
    rules_print(rules, &text);
    clean_page(o->out, str_text(&text), r, &page);
    int code = fs_write_atomic(o->report, str_text(&page), page.n, e);
    str_free(&text);
    str_free(&page);
    return code;
}

static int run(const void *options, struct err *e)
{
    const struct request *o = options;
    struct rules *rules;
    struct pass_result r;
    int code = rules_read(&rules, o->rules, e);
    if (code) return code;
    struct pass_options p = {.rules = rules,
                             .inputs = o->inputs.p,
                             .n_inputs = o->inputs.n,
                             .column = o->column,
                             .out = o->out,
                             .threads = (int)o->threads,
                             .part_bytes = o->part_bytes,
                             .most_bytes = o->most_bytes,
                             .plain = o->plain,
                             .skip_bad = o->skip_bad};
    code = pass_run(&p, &r, e);
    if (!code) {
        if (o->report) code = write_report(o, rules, &r, e);
        if (!code) (o->json ? print_json : print_text)(o, &r);
        pass_result_fini(&r);
    }
    rules_free(rules);
    return code;
}

static const struct request usual = {.part_bytes = (int64_t)256 << 20, .most_bytes = 64 << 20};
const struct data_command data_clean = {"clean", &table, &usual, sizeof usual, run};
