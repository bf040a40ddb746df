/* SPDX-License-Identifier: Apache-2.0 */
/* The commands as functions: exit status, what stdout and stderr say. Wrong requests get 2 and one line with the
 * place, the reason and the remedy; --json gives one object; --help names every option; text from a model repeats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cli.h"
#include "scratch.h"

enum { MAX_ARGS = 40 };
typedef int command_fn(int argc, char **argv);

/* One folder for all tests: D/text.txt, D/tiny.yaml, and D/run, a trained toy. */
struct world {
    char *dir;
    char *out, *err; /* of the last command */
};
static char *const fds_name[] = {"stdout", "stderr"};

static char *at(const struct world *w, const char *name) /* xfree it */ { return fs_join(w->dir, name); }

static void write_file(const struct world *w, const char *name, const void *p, size_t n)
{
    struct err e = {0};
    char *path = at(w, name);
    if (fs_write_atomic(path, p, n, &e)) fail_msg("%s", e.text);
    xfree(path);
}

static void write_text(const struct world *w, const char *name, const char *text)
{
    write_file(w, name, text, strlen(text));
}

static char *read_text(const struct world *w, const char *name, size_t *n)
{
    struct err e = {0};
    char *path = at(w, name), *text;
    if (fs_read_all(path, 1 << 26, &text, n, &e)) fail_msg("%s", e.text);
    xfree(path);
    return text;
}

/* Runs a command with both outputs caught. Words are parted by blanks; @ stands for the folder, ~ for a blank. */
static int run(struct world *w, command_fn *f, const char *line)
{
    char text[4096], *argv[MAX_ARGS], *save = NULL;
    struct str s = {0};
    for (const char *p = line; *p; p++)
        if (*p == '@') str_puts(&s, w->dir);
        else str_putc(&s, *p);
    snprintf(text, sizeof text, "%s", str_text(&s));
    str_free(&s);
    int argc = 0, was[2], status;
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        for (char *c = word; *c; c++)
            if (*c == '~') *c = ' ';
        assert_true(argc < MAX_ARGS - 1);
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        char *path = at(w, fds_name[i]);
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_true(fd >= 0);
        was[i] = dup(i + 1);
        dup2(fd, i + 1);
        close(fd);
        xfree(path);
    }
    status = f(argc, argv);
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        dup2(was[i], i + 1);
        close(was[i]);
    }
    size_t n;
    xfree(w->out);
    xfree(w->err);
    w->out = read_text(w, "stdout", &n);
    w->err = read_text(w, "stderr", &n);
    return status;
}

/* words: each, parted by |, is said on stderr when the command fails, on stdout when it does what was asked. */
static void expect(struct world *w, int status, const char *words, command_fn *f, const char *line)
{
    int got = run(w, f, line);
    if (got != status) fail_msg("%s: status %d, wanted %d\n%s%s", line, got, status, w->out, w->err);
    char copy[512], *save = NULL;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(copy, "|", &save); word; word = strtok_r(NULL, "|", &save))
        if (!strstr(status ? w->err : w->out, word))
            fail_msg("%s: does not say '%s':\n%s%s", line, word, w->out, w->err);
    if (status == 2) { /* a few lines, and nothing where results go */
        int lines = 0;
        for (const char *p = w->err; *p; p++) lines += *p == '\n';
        if (*w->out || lines > 4) fail_msg("%s: says more than a few lines on stderr:\n%s%s", line, w->out, w->err);
    }
}

static int open_world(void **state)
{
    struct world *w = xcalloc(1, sizeof *w);
    struct str s = {0};
    w->dir = scratch_new();
    for (int i = 0; i < 300; i++) str_printf(&s, "%d. The quick brown fox jumps over %d lazy dogs.\n", i, i * 7 % 9);
    write_file(w, "text.txt", str_text(&s), s.n);
    str_clear(&s);
    str_printf(&s,
               "model:\n  layers: 2\n  hidden: 32\n  heads: 4\n  kv_heads: 2\n  ffn: 44\n  seq_len: 32\n"
               "  max_positions: 200\n"
               "data:\n  train: [%s/text.txt]\n"
               "batch: {global: 4, micro: 2}\n"
               "optimizer:\n  lr: 0.01\n  schedule: {warmup_steps: 5}\n"
               "run: {dir: %s/run, steps: 60, threads: 1, log_every: 1000, tensorboard: false}\n",
               w->dir, w->dir);
    write_file(w, "tiny.yaml", str_text(&s), s.n);
    str_free(&s);
    expect(w, 0, "", cmd_train, "train @/tiny.yaml");
    *state = w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    scratch_free(w->dir);
    xfree(w->out);
    xfree(w->err);
    xfree(w);
    return 0;
}

/* ---- what people ask for wrongly ---- */
static void test_bad_config(void **state)
{
    struct world *w = *state;
    write_text(w, "key.yaml", "model:\n  layers: 2\n  hiden: 32\n");
    expect(w, 2, "key.yaml:3|model.hiden|did you mean model.hidden", cmd_train, "train @/key.yaml");
    write_text(w, "section.yaml", "model: {layers: 2}\noptimiser:\n  lr: 1\n");
    expect(w, 2, "section.yaml:2|optimiser|did you mean optimizer", cmd_plan, "plan @/section.yaml");
    write_text(w, "type.yaml", "model:\n  layers: many\n");
    expect(w, 2, "type.yaml:2|model.layers|integer|many", cmd_plan, "plan @/type.yaml");
    write_text(w, "list.yaml", "model:\n  layers: [1, 2]\n");
    expect(w, 2, "list.yaml:2|model.layers", cmd_plan, "plan @/list.yaml");
    write_text(w, "range.yaml", "batch: {global: 0}\n");
    expect(w, 2, "range.yaml:1|batch.global|from 1", cmd_plan, "plan @/range.yaml");
    write_text(w, "twice.yaml", "run: {steps: 1}\nmodel: {layers: 1}\nrun: {seed: 2}\n");
    expect(w, 2, "twice.yaml:3|run", cmd_plan, "plan @/twice.yaml");
    write_text(w, "broken.yaml", "model:\n  layers: [1\n");
    expect(w, 2, "broken.yaml:", cmd_plan, "plan @/broken.yaml");
    write_text(w, "choice.yaml", "model: {family: lama}\n");
    expect(w, 2, "choice.yaml:1|model.family|llama", cmd_plan, "plan @/choice.yaml");
    expect(w, 2, "none.yaml|no such file", cmd_train, "train @/none.yaml");
    expect(w, 2, "command line|model.layres|did you mean model.layers", cmd_train, "train @/tiny.yaml model.layres=3");
    expect(w, 2, "optimizer.lr|number|fast", cmd_train, "train @/tiny.yaml optimizer.lr=fast");
    expect(w, 2, "model.dropout|0 to", cmd_train, "train @/tiny.yaml model.dropout=1.5");
    expect(w, 2, "tiny.yaml|model.heads = 5|nearest", cmd_train, "train @/tiny.yaml model.heads=5");
    expect(w, 2, "model.kv_heads|nearest that does is 2", cmd_train, "train @/tiny.yaml model.kv_heads=3");
    expect(w, 2, "batch.micro|more than batch.global; choose at most 4", cmd_train, "train @/tiny.yaml batch.micro=5");
    expect(w, 2, "model.max_positions|seq_len", cmd_train, "train @/tiny.yaml model.max_positions=16");
    expect(w, 2, "model.vocab|257", cmd_train, "train @/tiny.yaml model.vocab=100");
    expect(w, 2, "parallel.tp|2 ranks do not divide the 1 there are|start 2 ranks", cmd_train,
           "train @/tiny.yaml parallel.tp=2");
    expect(w, 2, "min_lr|optimizer.lr", cmd_train, "train @/tiny.yaml optimizer.schedule.min_lr=0.1");
    expect(w, 2, "run.kernels|auto or ref", cmd_train, "train @/tiny.yaml run.kernels=fast");
    expect(w, 2, "run.device|tutti plan", cmd_train, "train @/tiny.yaml run.device=\"null\"");
    expect(w, 2, "run.device|cuda:1: this program has no code for a GPU", cmd_train,
           "train @/tiny.yaml run.device=cuda:1");
    expect(w, 2, "run.device|null only counts", cmd_verify, "verify @/tiny.yaml -n 2 run.device=\"null\"");
    expect(w, 2, "run.device|is a speed", cmd_bench, "bench train --model tiny run.device=cuda-sim");
    expect(w, 2, "run.device|is a speed", cmd_bench, "bench generate --model tiny run.device=\"null\"");
    expect(w, 2, "--device|cuda: this program has no code", cmd_generate, "generate @/none --device cuda --prompt x");
    expect(w, 2, "--device|only counts", cmd_generate, "generate @/none --device null --prompt x");
    expect(w, 2, "--device|wanted auto, cpu", cmd_generate, "generate @/none --device gpu --prompt x");
    expect(w, 2, "data.train|required", cmd_train, "train @/tiny.yaml data.train=[] run.dir=@/none");
}

static void test_bad_data(void **state)
{
    struct world *w = *state;
    char *dir = at(w, "folder"), *secret = at(w, "secret.txt");
    mkdir(dir, 0700);
    write_text(w, "empty.txt", "");
    write_text(w, "bad.jsonl", "{\"text\": \"fine\"}\n{\"text\": \n");
    write_text(w, "notext.jsonl", "{\"body\": \"x\"}\n");
    char binary[2000] = {0};
    write_file(w, "binary.txt", binary, sizeof binary);
    write_text(w, "secret.txt", "text");
    chmod(secret, 0);
#define DATA(file) "train @/tiny.yaml run.dir=@/d data.train=@/" file
    expect(w, 2, "data.train|nothing.txt|no such file", cmd_train, DATA("nothing.txt"));
    expect(w, 2, "data.train|empty.txt|empty", cmd_train, DATA("empty.txt"));
    expect(w, 2, "data.train|folder|no file to read", cmd_train, DATA("folder"));
    expect(w, 2, "data.train|binary.txt|NUL", cmd_train, DATA("binary.txt"));
    expect(w, 2, "data.train|bad.jsonl:2", cmd_train, DATA("bad.jsonl"));
    expect(w, 2, "data.train|notext.jsonl:1|text", cmd_train, DATA("notext.jsonl"));
    if (geteuid()) expect(w, 2, "data.train|secret.txt|ermission", cmd_train, DATA("secret.txt"));
    expect(w, 2, "data.train|text.txt|sequence|choose", cmd_train,
           "train @/tiny.yaml run.dir=@/d model.seq_len=1000000 model.max_positions=null");
    expect(w, 2, "data.valid|nothing.txt", cmd_train,
           "train @/tiny.yaml run.dir=@/d run.eval_every=5 data.valid=@/nothing.txt");
    expect(w, 2, "data.tokenizer|none.json", cmd_train, "train @/tiny.yaml run.dir=@/d data.tokenizer=@/none.json");

    size_t n;
    expect(w, 0, "", cmd_data, "data tokenize --tokenizer byte --out @/whole @/text.txt");
    char *tok = read_text(w, "whole.tok", &n);
    write_file(w, "cut.tok", tok, n / 2);
    expect(w, 2, "data.train|cut.tok|cut short", cmd_train, DATA("cut"));
    tok[0] ^= 1;
    write_file(w, "magic.tok", tok, n);
    expect(w, 2, "data.train|magic.tok", cmd_train, DATA("magic"));
    xfree(tok);
    char *json = read_text(w, "run/tokenizer/tokenizer.json", &n);
    write_file(w, "cut.json", json, n / 2);
    expect(w, 2, "data.tokenizer|cut.json:", cmd_train, "train @/tiny.yaml run.dir=@/d data.tokenizer=@/cut.json");
    write_text(w, "other.json", "{\"model\": {\"type\": \"CharacterPairs\"}}");
    expect(w, 2, "data.tokenizer|other.json|CharacterPairs", cmd_train,
           "train @/tiny.yaml run.dir=@/d data.tokenizer=@/other.json");
    xfree(json);
    xfree(dir);
    chmod(secret, 0600);
    xfree(secret);
}

/* Copies D/run/checkpoints/step-00000060 to D/name/step-00000060 with one file cut to `keep` bytes and its last byte
 * changed when `flip` is set. */
static void damaged_copy(struct world *w, const char *name, const char *file, size_t cut, bool flip)
{
    static const char *const files[] = {"manifest.json", "boxes-00000.safetensors", "config.yaml", "tokenizer.json",
                                        "tokenizer_config.json"};
    struct err e = {0};
    char path[256], from[256];
    snprintf(path, sizeof path, "%s/%s/step-00000060", w->dir, name);
    assert_int_equal(fs_mkdirs(path, &e), OK);
    for (size_t i = 0; i < 5; i++) {
        size_t n;
        snprintf(from, sizeof from, "run/checkpoints/step-00000060/%s", files[i]);
        snprintf(path, sizeof path, "%s/step-00000060/%s", name, files[i]);
        char *text = read_text(w, from, &n);
        if (!strcmp(files[i], file)) {
            n -= cut;
            if (flip) text[n - 1] ^= 0x40;
        }
        write_file(w, path, text, n);
        xfree(text);
    }
}

static void test_bad_checkpoints(void **state)
{
    struct world *w = *state;
    expect(w, 2, "nowhere|no such", cmd_generate, "generate @/nowhere --prompt x");
    expect(w, 2, "text.txt", cmd_generate, "generate @/text.txt --prompt x");
    damaged_copy(w, "cutbox", "boxes-00000.safetensors", 100, false);
    expect(w, 2, "boxes-00000.safetensors", cmd_generate, "generate @/cutbox/step-00000060 --prompt x");
    expect(w, 2, "boxes-00000.safetensors|cannot resume", cmd_train,
           "train @/tiny.yaml run.dir=@/d checkpoint.resume=@/cutbox/step-00000060");
    damaged_copy(w, "flipbox", "boxes-00000.safetensors", 0, true);
    expect(w, 2, "boxes-00000.safetensors|checksum", cmd_train,
           "train @/tiny.yaml run.dir=@/d checkpoint.resume=@/flipbox/step-00000060");
    damaged_copy(w, "cutmanifest", "manifest.json", 50, false);
    expect(w, 2, "manifest.json", cmd_generate, "generate @/cutmanifest/step-00000060 --prompt x");
    damaged_copy(w, "whole", "", 0, false);
    expect(w, 0, "", cmd_train, "train @/tiny.yaml run.dir=@/d2 run.steps=61 checkpoint.resume=@/whole/step-00000060");
    expect(w, 2, "checkpoint.resume|nowhere", cmd_train, "train @/tiny.yaml run.dir=@/d checkpoint.resume=@/nowhere");
    expect(w, 2, "model.from|text.txt", cmd_train, "train @/tiny.yaml run.dir=@/d model.from=@/text.txt");
    expect(w, 2, "model.layers|model.from has 2", cmd_train,
           "train @/tiny.yaml run.dir=@/d model.from=@/run model.layers=3");
}

static void test_bad_usage(void **state)
{
    struct world *w = *state;
    expect(w, 2, "which CONFIG|train --help", cmd_train, "train");
    expect(w, 2, "--fast", cmd_train, "train @/tiny.yaml --fast");
    expect(w, 2, "-n|from 1 to", cmd_train, "train @/tiny.yaml -n 0");
    expect(w, 2, "parallel.ep|choose 1", cmd_train, "train @/tiny.yaml -n 2 parallel.ep=2");
    expect(w, 2, "dp_shard|the 2 there are", cmd_train, "train @/tiny.yaml -n 2 parallel.dp_shard=3");
    expect(w, 2, "-n|wants a value", cmd_train, "train @/tiny.yaml -n");
    expect(w, 2, "-n|whole number|two", cmd_plan, "plan @/tiny.yaml -n two");
    expect(w, 2, "one argument too many: more", cmd_train, "train @/tiny.yaml more");
    expect(w, 2, "one argument too many: more", cmd_plan, "plan @/tiny.yaml more");
    expect(w, 2, "layout, tape, schedule, memory, comm or binding", cmd_explain, "explain @/tiny.yaml");
    expect(w, 2, "not taip", cmd_explain, "explain @/tiny.yaml taip");
    expect(w, 2, "--json|leave out --full", cmd_explain, "explain @/tiny.yaml tape --json --full");
    expect(w, 2, "there is no option --fill", cmd_explain, "explain @/tiny.yaml tape --fill");
    expect(w, 2, "which CHECKPOINT", cmd_generate, "generate --prompt x");
    expect(w, 2, "--prompt", cmd_generate, "generate @/run");
    expect(w, 2, "--temperature|from 0", cmd_generate, "generate @/run --prompt x --temperature -1");
    expect(w, 2, "--top-p|got '2'", cmd_generate, "generate @/run --prompt x --top-p 2");
    expect(w, 2, "--top-k|whole number", cmd_generate, "generate @/run --prompt x --top-k=0.5");
    expect(w, 2, "--max-tokens", cmd_generate, "generate @/run --prompt x --max-tokens 0");
    expect(w, 2, "--dtype|bf16 or f32", cmd_generate, "generate @/run --prompt x --dtype int8");
    expect(w, 2, "--wrong", cmd_generate, "generate @/run --prompt x --wrong 1");
    expect(w, 2, "one argument too many", cmd_generate, "generate @/run @/run --prompt x");
    expect(w, 2, "nofile", cmd_generate, "generate @/run --prompt-file @/nofile");
    expect(w, 2, "no command 'nothing'|train, checkpoint, cast, data or comm", cmd_bench, "bench nothing");
    expect(w, 2, "--model|huge", cmd_bench, "bench train --model huge");
    expect(w, 2, "--tokens|many", cmd_bench, "bench gemm --tokens many");
}

/* ---- help and JSON ---- */
static void test_help(void **state)
{
    struct world *w = *state;
    expect(w, 0, "CONFIG|key=value|model.layers|optimizer.schedule.warmup_steps|run.dir|-n", cmd_train, "train --help");
    expect(w, 0,
           "--prompt|--prompt-file|--max-tokens|--temperature|--top-k|--top-p|--seed|--dtype|--threads|--tokenizer",
           cmd_generate, "generate --help");
    expect(w, 0, "CONFIG|--json|-n|key=value", cmd_plan, "plan -h");
    expect(w, 0, "layout|tape|schedule|memory|comm|key=value", cmd_explain, "explain --help");
    expect(w, 0, "tokenize|train-tokenizer|inspect|--tokenizer|--out|--vocab-size|--json", cmd_data, "data --help");
    expect(w, 0, "list|inspect|verify|diff|import|export|--json|--tolerance|--all|--dtype|--shard-bytes",
           cmd_checkpoint, "checkpoint --help");
    expect(w, 0, "--stages|--microbatches|--chunks|--cost|--svg|--read|--text|--json|--split|--lower", cmd_schedule,
           "schedule --help");
    expect(w, 0, "gemm|train", cmd_bench, "bench --help");
    expect(w, 0, "--model|--tokens|--threads|--dtype|--no-library|--json", cmd_bench, "bench gemm --help");
    expect(w, 0, "--model|--seq|--micro|--batch|--dtype|--steps|--threads|--kernels|--json", cmd_bench,
           "bench train --help");
}

/* One object, nothing else; the members named. */
static void check_json(struct world *w, command_fn *f, const char *line, const char *members)
{
    struct json *o;
    struct err e = {0};
    char copy[512], *save = NULL;
    expect(w, 0, "", f, line);
    if (json_parse(&o, w->out, strlen(w->out), line, &e)) fail_msg("%s\n%s", e.text, w->out);
    assert_int_equal(json_kind(o), JSON_OBJECT);
    snprintf(copy, sizeof copy, "%s", members);
    for (char *m = strtok_r(copy, " ", &save); m; m = strtok_r(NULL, " ", &save))
        if (!json_get(o, m)) fail_msg("%s: no member %s", line, m);
    json_free(o);
}

static void test_json(void **state)
{
    struct world *w = *state;
    check_json(w, cmd_plan, "plan @/tiny.yaml --json model.layers=3",
               "params flops_per_step flops_per_token bytes peak_bytes comm ranks");
    check_json(w, cmd_checkpoint, "checkpoint list @/run --json", "");
    check_json(w, cmd_checkpoint, "checkpoint inspect @/run --json", "step tokens tensors");
    check_json(w, cmd_checkpoint, "checkpoint diff @/run @/run --json", "");
    check_json(w, cmd_data, "data tokenize --tokenizer byte --out @/j @/text.txt --json", "path");
    check_json(w, cmd_data, "data inspect @/j --json", "documents");
    check_json(w, cmd_schedule, "schedule 1f1b --stages 4 --microbatches 8 --json",
               "kind stages microbatches chunks makespan ideal bubble_ratio peak_activations actions");
    check_json(w, cmd_bench, "bench train --model tiny --seq 32 --micro 1 --steps 1 --threads 1 --json",
               "model tokens_per_s step_s mfu matrix_share matmul_flops_per_s tile_rate_flops peak_bytes "
               "max_rss_bytes");
}

static void test_explain(void **state)
{
    struct world *w = *state;
    expect(w, 0, "layers.1.attn.q.weight|dp_shard:R|tp:S0|embed.token", cmd_explain,
           "explain @/tiny.yaml layout --full");
    expect(w, 0, "attn.q.weight|embed.token|the same for layer 1", cmd_explain, "explain @/tiny.yaml layout");
    expect(w, 0, "attention|over tp|F forward|B backward|scratch", cmd_explain, "explain @/tiny.yaml tape --full");
    expect(w, 0, "attention|F forward|B backward|scratch|FLOP", cmd_explain, "explain @/tiny.yaml tape");
    expect(w, 0, "F|live slabs at the worst moment: 1", cmd_explain, "explain @/tiny.yaml schedule");
    expect(w, 0, "activation|peak|one microbatch keeps", cmd_explain, "explain @/tiny.yaml memory");
    expect(w, 0, "one rank|reduce", cmd_explain, "explain @/tiny.yaml comm");
    expect(w, 0, "dp_shard state: 2 ranks along dp_shard 2; rank 0's are 0 1|reduce_scatter|all_gather|gather|release",
           cmd_explain, "explain @/tiny.yaml comm -n 2 parallel.zero=3");
}

/* ---- text ---- */
static char *text_of(struct world *w, const char *line)
{
    expect(w, 0, "", cmd_generate, line);
    return xstrdup(w->out);
}

static void expect_text(struct world *w, bool equal, const char *a, const char *b)
{
    char *x = text_of(w, a), *y = text_of(w, b);
    if (equal != !strcmp(x, y)) fail_msg("%s and\n%s give %s text:\n%s\n%s", a, b, equal ? "other" : "the same", x, y);
    assert_true(!strncmp(x, "The quick", 9) && strlen(x) > 12);
    xfree(x);
    xfree(y);
}
#define GENERATE "generate @/run --prompt The~quick --max-tokens 40 "

static void test_generate(void **state)
{
    struct world *w = *state;
    expect_text(w, true, GENERATE "--seed 5", GENERATE "--seed 5");
    expect_text(w, false, GENERATE "--seed 5", GENERATE "--seed 6");
    expect_text(w, true, GENERATE "--seed 5", GENERATE "--seed 5 --threads 2");
    expect_text(w, true, GENERATE "--temperature 0 --seed 5", GENERATE "--temperature 0 --seed 6");
    expect_text(w, true, GENERATE "--temperature 0", GENERATE "--top-k 1 --seed 9");
    expect_text(w, true, GENERATE "--temperature 0", GENERATE "--top-p 1e-9 --seed 9");
    write_text(w, "prompt.txt", "The quick");
    expect_text(w, true, GENERATE, "generate @/run/checkpoints/latest --prompt-file @/prompt.txt --max-tokens=40");

    /* through Hugging Face's form and back: the same text, in fp32 to the letter */
    expect(w, 0, "", cmd_checkpoint, "checkpoint export @/run @/hf --dtype f32");
    expect_text(w, true, GENERATE "--dtype f32", "generate @/hf --prompt The~quick --max-tokens 40 --dtype f32");
    expect_text(w, true, GENERATE, "generate @/hf --prompt The~quick --max-tokens 40");
    expect(w, 0, "", cmd_checkpoint, "checkpoint import @/hf @/back");
    expect_text(w, true, GENERATE, "generate @/back --prompt The~quick --max-tokens 40");

    /* a prompt longer than the chunks of decoding, up to the model's last position */
    char prompt[190] = "";
    for (size_t i = 0; i < 18; i++) strcat(prompt, "The quick ");
    write_text(w, "prompt.txt", prompt);
    expect(w, 0, prompt, cmd_generate, "generate @/run --prompt-file @/prompt.txt --max-tokens 500");
    char *longer = xmalloc(400);
    snprintf(longer, 400, "%s%s", prompt, prompt);
    write_text(w, "prompt.txt", longer);
    assert_int_equal(run(w, cmd_generate, "generate @/run --prompt-file @/prompt.txt"), 2);
    assert_non_null(strstr(w->err, "200 positions"));
    xfree(longer);
}

/* What was trained must show: the text of the toy is nearly known by heart. */
static void test_learned(void **state)
{
    struct world *w = *state;
    expect(w, 0, "", cmd_train, "train @/tiny.yaml run.dir=@/learn run.steps=250");
    char *text = text_of(w, "generate @/learn --prompt The~quick --max-tokens 30 --temperature 0");
    if (!strstr(text, "brown") && !strstr(text, "lazy") && !strstr(text, "jumps")) fail_msg("it says: %s", text);
    xfree(text);
}

int main(void)
{
    setenv("LOG", "warn", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_config), cmocka_unit_test(test_bad_data), cmocka_unit_test(test_bad_checkpoints),
        cmocka_unit_test(test_bad_usage),  cmocka_unit_test(test_help),     cmocka_unit_test(test_json),
        cmocka_unit_test(test_explain),    cmocka_unit_test(test_generate), cmocka_unit_test(test_learned),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
