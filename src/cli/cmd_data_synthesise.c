/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_synthesise.c: `tutti data synthesise`: a model continues prompts; what filters keep becomes shards. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "cli/cmd_data.h"
#include "decode/synthesise.h"

enum { TEMPLATE_MAX = 1 << 20 };

struct request {
    const char *model, *prompts, *out, *rules, *template, *tokenizer, *dtype;
    int64_t samples, batch, max_tokens, max_length, part_samples, seed, threads;
    struct sample_spec spec;
    bool with_prompt, skip_bad, plain, json;
};
#define AT(field) offsetof(struct request, field)
static const struct cli_option option_rows[] = {
    {"--prompts", "FILE.jsonl", CLI_TEXT, AT(prompts), .needed = true, .help = "a record per line, packed or not"},
    {"--out", "FOLDER", CLI_TEXT, AT(out), .needed = true,
     .help = "writes FOLDER/part-00000.jsonl.zst ..., which data.train takes as FOLDER"},
    {"--template", "TEXT|FILE", CLI_TEXT, AT(template),
     .help = "makes a prompt of a record's members: 'Tell of {{ topic }}:'; a\n"
             "file of that name is read (default: the member `prompt`)"},
    {"--rules", "RULES.yaml", CLI_TEXT, AT(rules), .help = "filters, as of tutti data clean"},
    {"--with-prompt", NULL, CLI_FLAG, AT(with_prompt),
     .help = "filter and write the prompt with what was generated, as one text"},
    {"--samples", "N", CLI_INT, AT(samples), .lo = 1, .hi = 1 << 20, .help = "of each prompt"},
    {"--batch", "N", CLI_INT, AT(batch), .lo = 1, .hi = 1024,
     .help = "so many samples at once; memory grows with it (default 16)"},
    {"--max-tokens", "N", CLI_INT, AT(max_tokens), .lo = 1, .hi = 1 << 24, .help = "at most N new tokens in a sample"},
    {"--max-length", "N", CLI_INT, AT(max_length), .lo = 2, .hi = 1 << 24,
     .help = "tokens of prompt and sample together, no more than the\nmodel's positions; memory grows with it"},
    {"--temperature", "T", CLI_REAL, AT(spec.temperature), .most = 1e6, .help = "0 takes the likeliest token always"},
    {"--top-k", "K", CLI_INT, AT(spec.top_k), .hi = INT32_MAX, .help = "only the K likeliest (default 0: all)"},
    {"--top-p", "P", CLI_REAL, AT(spec.top_p), .least = 1e-9, .most = 1,
     .help = "only the likeliest that together reach P"},
    {"--seed", "S", CLI_INT, AT(seed), .hi = INT64_MAX, .help = "the same seed gives the same samples"},
    {"--dtype", "D", CLI_CHOICE, AT(dtype), .choices = "bf16|f32", .help = ""},
    {"--tokenizer", "FILE", CLI_TEXT, AT(tokenizer), .help = "default: the model's own"},
    {"--threads", "N", CLI_INT, AT(threads), .lo = 1, .hi = 4096, .help = "default: all cores"},
    {"--part-samples", "N", CLI_INT, AT(part_samples), .lo = 1, .hi = 1 << 30,
     .help = "that a part is made of: what is lost at most by a kill"},
    {"--plain", NULL, CLI_FLAG, AT(plain), .help = "write .jsonl, not .jsonl.zst"},
    DATA_SKIP_BAD(struct request, skip_bad),
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{.name = "MODEL", .at = AT(model)}};
static const struct cli_table table = {
    .command = "data synthesise",
    .usage = "MODEL --prompts FILE.jsonl --out FOLDER [options]",
    .about =
        "Continues prompts with MODEL (a tutti checkpoint, a run directory, or a Hugging Face directory), passes what\n"
        "it says through filters, and writes shards of .jsonl with where each text came from. Killed at any moment,\n"
        "the same command goes on.\n",
    CLI_OPTIONS(option_rows),
    CLI_WORDS(words),
};

static double share(int64_t part, int64_t of) { return 100.0 * (double)part / (double)(of ? of : 1); }

static void print_text(const struct request *o, const struct synthesis_result *r)
{
    const struct synthesis_counts *c = &r->counts;
    char kept[32], time[32];
    printf("%s: %lld of %lld samples kept (%.1f %%), %s, of %lld prompts, %lld parts\n", o->out, (long long)c->kept,
           (long long)c->samples, share(c->kept, c->samples), str_bytes(kept, (double)c->kept_bytes),
           (long long)(c->samples / o->samples), (long long)r->parts);
    for (int i = 0; i < r->removals.n; i++) {
        const struct use_removals *u = &r->removals.use[i];
        printf("  %-20s dropped %lld of %lld (%.1f %%)", r->removals.uses[i].filter->kind.name, (long long)u->dropped,
               (long long)u->seen, share(u->dropped, u->seen));
        if (u->changed) printf(", changed %lld", (long long)u->changed);
        printf("\n");
    }
    if (c->emptied) printf("  %lld samples had no text\n", (long long)c->emptied);
    printf("  stopped by length %lld, by end of text %lld, by --max-length or the model's positions %lld\n",
           (long long)c->stopped_length, (long long)c->stopped_end, (long long)c->stopped_full);
    if (r->complete_before) printf("  nothing was left to do\n");
    else printf("  %s, %.1f tokens/s\n", str_duration(time, r->seconds), data_per_second(r->new_tokens, r->seconds));
}

static void print_json(const struct request *o, const struct synthesis_result *r)
{
    const struct synthesis_counts *c = &r->counts;
    struct str text = {0};
    struct json_out j = {.s = &text};
    char hash[17];
    json_begin_document(&j, "data-synthesise", 1);
    json_put_string(&j, "path", o->out);
    json_put_string(&j, "model", o->model);
    if (r->step >= 0) json_put_int(&j, "step", r->step);
    json_put_string(&j, "weights", hash64_print(hash, r->weights));
    json_put_string(&j, "tokenizer_fingerprint", hash64_print(hash, r->tokenizer));
    json_put_int(&j, "prompts", c->samples / o->samples);
    json_put_int(&j, "bad", r->bad);
    json_put_int(&j, "samples_made", c->samples);
    json_put_int(&j, "prompt_tokens", c->prompt_tokens);
    json_put_int(&j, "new_tokens", c->tokens);
    json_put_int(&j, "bytes_made", c->bytes);
    json_put_int(&j, "kept", c->kept);
    json_put_int(&j, "kept_bytes", c->kept_bytes);
    json_put_int(&j, "emptied", c->emptied);
    json_put_int(&j, "stopped_length", c->stopped_length);
    json_put_int(&j, "stopped_end", c->stopped_end);
    json_put_int(&j, "stopped_full", c->stopped_full);
    json_put_int(&j, "parts", r->parts);
    json_put_int(&j, "resumed_at", r->resumed_at);
    json_put_bool(&j, "complete_before", r->complete_before);
    json_put_real_digits(&j, "seconds", r->seconds, 6);
    json_put_real_digits(&j, "tokens_per_s", data_per_second(r->new_tokens, r->seconds), 6);
    removals_write(&r->removals, &j);
    json_end_object(&j);
    data_print_json(&text);
}

/* A file of that name, or the text itself. */
static int read_template(const char *what, char **text, struct err *e)
{
    size_t n;
    if (!fs_exists(what) || fs_is_dir(what)) {
        if (!strchr(what, '{') && !strchr(what, ' '))
            return err_set(e, ERR_REQUEST,
                           "--template: there is no file %s, and as a text it reads no member of the record ({{ ... "
                           "}})",
                           what);
        *text = xstrdup(what);
        return OK;
    }
    int code = fs_read_all(what, TEMPLATE_MAX, text, &n, e);
    if (!code && strlen(*text) != n)
        code = err_set(e, ERR_REQUEST, "--template: %s holds NUL bytes; a text was wanted", what);
    return code;
}

static int run(const void *options, struct err *e)
{
    const struct request *o = options;
    static const struct rules none;
    struct rules *rules = NULL;
    struct synthesis_result r;
    char *template = NULL;
    int code = o->rules ? rules_read(&rules, o->rules, e) : OK;
    if (!code && o->template) code = read_template(o->template, &template, e);
    struct synthesis_options s = {
        .model = o->model,
        .tokenizer = o->tokenizer,
        .prompts = o->prompts,
        .template = template,
        .template_name = "--template",
        .rules = rules ? rules : &none,
        .out = o->out,
        .n_samples = o->samples,
        .max_tokens = o->max_tokens,
        .max_length = o->max_length,
        .spec = o->spec,
        .dtype = cli_dtype(o->dtype),
        .batch = o->batch,
        .threads = o->threads ? (int)o->threads : thread_n_cores(),
        .part_samples = o->part_samples,
        .with_prompt = o->with_prompt,
        .plain = o->plain,
        .skip_bad = o->skip_bad,
    };
    s.spec.seed = (uint64_t)o->seed;
    if (!code) code = synthesise(&s, &r, e);
    if (!code) {
        (o->json ? print_json : print_text)(o, &r);
        synthesis_result_fini(&r);
    }
    rules_free(rules);
    xfree(template);
    return code;
}

static const struct request usual = {.samples = 1,
                                     .batch = 16,
                                     .max_tokens = 256,
                                     .max_length = 4096,
                                     .part_samples = 512,
                                     .seed = 1,
                                     .dtype = "bf16",
                                     .spec = {.temperature = 0.8, .top_p = 1}};
const struct data_command data_synthesise = {"synthesise", &table, &usual, sizeof usual, run};
