/* SPDX-License-Identifier: Apache-2.0 */
/* tutti checkpoint: list and verify checkpoints; the other subcommands are in files of their own.
 *
 * Every subcommand but list takes a tutti checkpoint, a run or directory of them (meaning the newest), or a Hugging
 * Face directory. Results go to stdout. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "hub/weights.h"
#include "cli/cmd_checkpoint.h"

/* -- arguments ---------------------------------------------------------------------------------------------- */

struct request {
    const char *path;
    bool json;
};
static const struct cli_option options[] = {CLI_JSON(struct request, json)};
static const struct cli_word words[] = {{.name = "CHECKPOINT", .at = offsetof(struct request, path)}};
static const struct cli_word dir_words[] = {{.name = "DIR|RUN", .at = offsetof(struct request, path)}};
static const struct cli_table list_options = {.command = "checkpoint list",
                                              .usage = "DIR|RUN [--json]",
                                              .about = "Published checkpoints, oldest first.\n",
                                              CLI_OPTIONS(options),
                                              CLI_WORDS(dir_words)};
static const struct cli_table verify_options =
    {.command = "checkpoint verify",
     .usage = "CHECKPOINT [--json]",
     .about = "Compares every byte with its checksum; exit status 2 when any differs.\n",
     CLI_OPTIONS(options),
     CLI_WORDS(words)};

static int print_json(struct str *s)
{
    str_putc(s, '\n');
    fwrite(s->p, 1, s->n, stdout);
    str_free(s);
    return 0;
}

/* -- list --------------------------------------------------------------------------------------------------- */

static void list_json(const char *root, const struct ckpt_listing *list, int n)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    json_begin_document(&o, "checkpoint-list", 1);
    json_put_string(&o, "root", root);
    json_begin_array(&o, "checkpoints");
    for (int i = 0; i < n; i++) {
        json_begin_object(&o, NULL);
        json_put_string(&o, "path", list[i].path);
        json_put_int(&o, "step", list[i].step);
        json_put_bool(&o, "complete", !*list[i].problem);
        if (*list[i].problem) {
            json_put_string(&o, "problem", list[i].problem);
        } else {
            json_put_int(&o, "tokens", list[i].tokens);
            json_put_int(&o, "bytes", list[i].bytes);
            json_put_int(&o, "tensors", list[i].n_tensors);
        }
        json_end_object(&o);
    }
    json_end_array(&o);
    json_end_object(&o);
    print_json(&s);
}

static void list_table(const struct ckpt_listing *list, int n)
{
    char bytes[32];
    printf("%10s %16s %12s %8s  %s\n", "step", "tokens", "size", "tensors", "path");
    for (int i = 0; i < n; i++) {
        const struct ckpt_listing *l = &list[i];
        if (*l->problem) printf("%10" PRId64 " broken: %s\n", l->step, l->problem);
        else
            printf("%10" PRId64 " %16" PRId64 " %12s %8d  %s\n", l->step, l->tokens, str_bytes(bytes, (double)l->bytes),
                   l->n_tensors, l->path);
    }
}

static int checkpoint_list(int argc, char **argv)
{
    struct request q = {0};
    int status;
    struct err e;
    struct ckpt_listing *list;
    int n;
    if (!cli_read(&list_options, argc, argv, &q, &status)) return status;
    if (!fs_is_dir(q.path)) {
        err_set(&e, ERR_REQUEST, "%s: no such directory", q.path);
        return cli_fail(&e);
    }
    char *inner = fs_join(q.path, "checkpoints");
    const char *root = fs_is_dir(inner) ? inner : q.path;
    if (ckpt_list(root, &list, &n, &e) < 0) {
        status = cli_fail(&e);
    } else {
        if (q.json) list_json(root, list, n);
        else if (n == 0) printf("no checkpoints in %s\n", root);
        else list_table(list, n);
        ckpt_list_free(list, n);
    }
    xfree(inner);
    return status;
}

/* -- verify ------------------------------------------------------------------------------------------------- */

static void print_problem(void *ctx, const char *text)
{
    (void)ctx;
    printf("%s\n", text);
}

static void problem_json(void *ctx, const char *text) { json_put_string(ctx, NULL, text); }

static void pass_over(void *ctx, const char *text) { (void)ctx, (void)text; }

/* Where a person can go back to: the newest of those published before c, in its directory, that is whole; xfree it. */
static char *nearest_whole(const struct ckpt *c)
{
    struct ckpt_listing *list;
    struct err e;
    char *root = fs_join(ckpt_path(c), ".."), *found = NULL;
    int n;
    if (!ckpt_list(root, &list, &n, &e)) {
        for (int i = n - 1; i >= 0 && !found; i--) {
            struct ckpt *older;
            if (list[i].code || list[i].publication >= ckpt_publication(c)) continue;
            if (ckpt_open(&older, list[i].path, &e)) continue;
            if (ckpt_verify(older, pass_over, NULL) == 0) found = xstrdup(list[i].path);
            ckpt_close(older);
        }
        ckpt_list_free(list, n);
    }
    xfree(root);
    return found;
}

/* checksums: false for a Hugging Face directory, which has none. */
static int verify_json(struct weights *w)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    struct ckpt *c = weights_ckpt(w);
    json_begin_document(&o, "checkpoint-verify", 1);
    json_put_string(&o, "path", c ? ckpt_path(c) : weights_path(w));
    json_put_bool(&o, "checksums", c != NULL);
    json_put_int(&o, "tensors", weights_count(w));
    uint64_t state;
    char digits[17];
    if (c && ckpt_state(c, &state)) json_put_string(&o, "state", hash64_print(digits, state));
    json_begin_array(&o, "problems");
    int64_t n = c ? ckpt_verify(c, problem_json, &o) : 0;
    json_end_array(&o);
    json_put_bool(&o, "ok", n == 0);
    if (n > 0) {
        char *whole = nearest_whole(c);
        if (whole) json_put_string(&o, "whole", whole);
        else json_put_null(&o, "whole");
        xfree(whole);
    }
    json_end_object(&o);
    print_json(&s);
    return n > 0 ? 2 : 0;
}

static int checkpoint_verify(int argc, char **argv)
{
    struct request q = {0};
    int status;
    struct err e;
    struct weights *w;
    if (!cli_read(&verify_options, argc, argv, &q, &status)) return status;
    if (weights_open(&w, q.path, &e) < 0) return cli_fail(&e);
    struct ckpt *c = weights_ckpt(w);
    if (q.json) {
        status = verify_json(w);
    } else if (!c) {
        printf("%s: %" PRId64 " tensors, names and shapes agree with config.json; this form has no checksums\n",
               weights_path(w), weights_count(w));
    } else {
        int64_t n = ckpt_verify(c, print_problem, NULL);
        uint64_t state;
        char digits[32] = "";
        if (ckpt_state(c, &state)) hash64_print(stpcpy(digits, "; state "), state);
        if (n == 0) printf("%s: ok: every byte is what was written%s\n", ckpt_path(c), digits);
        if (n > 0) {
            char *whole = nearest_whole(c);
            printf(whole ? "the newest of those before it that is whole is %s\n"
                         : "none of those before it in its directory is whole\n",
                   whole);
            xfree(whole);
            status = 2;
        }
    }
    weights_close(w);
    return status;
}

/* -- the command -------------------------------------------------------------------------------------------- */

static const struct cli_command subcommands[] = {
    {"list", checkpoint_list, "DIR|RUN [--json]", "published checkpoints, oldest first"},
    {"inspect", checkpoint_inspect, "CHECKPOINT [--tensor TEXT] [--histogram] [--json]",
     "step, tokens, and each tensor's shape, type, norm, exponents"},
    {"verify", checkpoint_verify, "CHECKPOINT [--json]", "compare every byte with its checksum; 2 when any differs"},
    {"diff", checkpoint_diff, "A B [--tolerance X] [--all] [--json]", "compare tensor by tensor; 1 when any differs"},
    {"import", checkpoint_import, "HF_DIR OUT [--ignore KEY,KEY]",
     "a Hugging Face model as a checkpoint of step 0 in directory OUT"},
    {"export", checkpoint_export, "CHECKPOINT OUT [--dtype f32|bf16|f16] [--shard-bytes N] [--ema]",
     "config.json, safetensors and tokenizer.json into a new directory OUT"},
    {"reshard", checkpoint_reshard, "CHECKPOINT OUT [--files N]", "the same state in other files"},
    {"average", checkpoint_average, "CHECKPOINT... --out DIR [--last K] [--weights W,W,...] [--ema]",
     "the mean of the weights of several"},
};
enum { N_SUBCOMMANDS = sizeof subcommands / sizeof *subcommands };

int cmd_checkpoint(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] != '-') {
        const struct cli_command *c = cli_choose("checkpoint", subcommands, N_SUBCOMMANDS, argv[1]);
        return c ? c->run(argc - 1, argv + 1) : 2;
    }
    FILE *f = cli_lists(argc, argv) ? stdout : stderr;
    fprintf(f, "usage: tutti checkpoint SUBCOMMAND ...\n\nLook at, compare and convert checkpoints.\n\n");
    for (int i = 0; i < N_SUBCOMMANDS; i++)
        fprintf(f, "  %-8s %s\n             %s\n", subcommands[i].name, subcommands[i].usage, subcommands[i].what);
    fprintf(f, "\nCHECKPOINT is a directory step-N, a run or a directory of checkpoints (meaning the newest complete "
               "one),\n"
               "or a Hugging Face model directory (config.json and *.safetensors). tutti checkpoint SUBCOMMAND --help\n"
               "tells more.\n");
    return f == stdout ? 0 : 2;
}
