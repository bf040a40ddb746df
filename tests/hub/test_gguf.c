/* SPDX-License-Identifier: Apache-2.0 */
/* Models of every family as GGUF: every number of ours is in the file exactly once, where the format has it; keys; what
 * readers compute otherwise is refused by name. That llama.cpp makes the same of them is
 * tests/golden/check_gguf.py's. */
#include "said.h"

#include "base/json.h"
#include "hub/gguf.h"
#include "hub/hf.h"

#define SIZES                                                                                                          \
    "\"vocab_size\": 11, \"hidden_size\": 12, \"intermediate_size\": 10, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, "                                                                                     \
    "\"num_key_value_heads\": 2, \"head_dim\": 6, \"max_position_embeddings\": 40, \"rms_norm_eps\": 1e-5, "           \
    "\"bos_token_id\": 1, \"eos_token_id\": 2"
#define GEMMA SIZES ", \"tie_word_embeddings\": true, \"query_pre_attn_scalar\": 6, \"sliding_window\": 5"

static const char tokens_of_bytes[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 3}, \"merges\": [\"a b\"]}, "
    "\"added_tokens\": [{\"id\": 2, \"content\": \"<end>\", \"special\": true}, "
    "{\"id\": 4, \"content\": \"<mine>\", \"special\": false}], "
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}}";
static const char tokens_with_eom[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 3}, \"merges\": [\"a b\"]}, "
    "\"added_tokens\": [{\"id\": 2, \"content\": \"<end>\", \"special\": true}, {\"id\": 4, \"content\": "
    "\"<turn>\", \"special\": true}, {\"id\": 5, \"content\": \"<eom>\", \"special\": true}], "
    "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": "
    "false}}";
#define SPACE "\xE2\x96\x81"
static const char tokens_of_letters[] =
    "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0, "
    "\"<s>\": 1, "
    "\"</s>\": 2, \"<0x41>\": 3, \"" SPACE "\": 4, \"a\": 5, \"b\": 6, \"ab\": 7, \"" SPACE "a\": 8, \"" SPACE
    "ab\": 9, "
    "\"<|endoftext|>\": 10}, \"merges\": [[\"a\", \"b\"], [\"" SPACE "\", \"a\"], [\"" SPACE "\", \"ab\"], [\"" SPACE
    "a\", \"b\"]]}, \"added_tokens\": [{\"id\": 0, \"content\": \"<unk>\", \"special\": true}], \"normalizer\": "
    "{\"type\": "
    "\"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SPACE "\"}}";

static const char tokens_after_space[] = "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"" SPACE
                                         "\": 4, \"a\": 5}, \"merges\": []}, "
                                         "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"" SPACE
                                         "\", \"prepend_scheme\": \"first\", \"split\": false}}";

/* ---- a file, read ---- */

struct file {
    unsigned char *p;
    size_t n, at;
    int64_t n_tensors, n_keys;
    char keys[8192]; /* "name=value\n", of numbers and texts */
};
static uint64_t take(struct file *f, int bytes)
{
    uint64_t v = 0;
    assert_true(f->at + (size_t)bytes <= f->n);
    for (int i = 0; i < bytes; i++) v |= (uint64_t)f->p[f->at++] << (8 * i);
    return v;
}
static void take_text(struct file *f, char *to, size_t room)
{
    size_t n = (size_t)take(f, 8);
    assert_true(f->at + n <= f->n && n < room);
    memcpy(to, f->p + f->at, n);
    to[n] = 0;
    f->at += n;
}
static float as_float(uint32_t u)
{
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}
static void take_value(struct file *f, uint64_t type, char *to, size_t room)
{
    if (type == 8) take_text(f, to, room);
    else if (type == 6) snprintf(to, room, "%g", (double)as_float((uint32_t)take(f, 4)));
    else snprintf(to, room, "%llu", (unsigned long long)take(f, type == 7 ? 1 : 4));
}
static void read_keys(struct file *f)
{
    char name[128], value[256];
    size_t used = 0;
    assert_memory_equal(f->p, "GGUF", 4);
    f->at = 4;
    assert_int_equal(take(f, 4), 3);
    f->n_tensors = (int64_t)take(f, 8);
    f->n_keys = (int64_t)take(f, 8);
    for (int64_t i = 0; i < f->n_keys; i++) {
        take_text(f, name, sizeof name);
        uint64_t type = take(f, 4), n = 1;
        bool list = type == 9;
        if (list) type = take(f, 4), n = take(f, 8);
        used += (size_t)snprintf(f->keys + used, sizeof f->keys - used, "%s=", name);
        for (uint64_t k = 0; k < n; k++) {
            take_value(f, type, value, sizeof value);
            used += (size_t)snprintf(f->keys + used, sizeof f->keys - used, "%s%s", value, k + 1 < n ? "," : "");
        }
        used += (size_t)snprintf(f->keys + used, sizeof f->keys - used, "\n");
        assert_true(used < sizeof f->keys);
    }
}

/* ---- models ---- */

/* Value i of parameter k: no other has it, and f32 holds it with 1 added. */
static float value_of(int64_t k, int64_t i) { return (float)(k * 4096 + i + 3); }

struct made {
    char *dir;
    struct hf_model m;
    struct weights *w;
};
/* tokenizer_config, template: of the files beside, NULL: there is none. */
static void make_beside(struct made *x, const char *config, const char *tokenizer, const char *tokenizer_config,
                        const char *template)
{
    struct json *root;
    struct err e;
    assert_ok(json_parse_published(&root, config, strlen(config), "config.json", &e));
    int rc = hf_config_parse(&x->m, root, NULL, "config.json", &e);
    json_free(root);
    assert_ok(rc);
    x->dir = scratch_new();
    struct str extra = {0};
    struct json_out o = {.s = &extra};
    json_begin_object(&o, NULL);
    hf_config_put(&o, "model", &x->m, DT_F32);
    json_end_object(&o);
    int64_t n = hf_n_params(&x->m);
    struct ckpt_tensor *t = xcalloc(to_size(n), sizeof *t);
    char(*names)[80] = xcalloc(to_size(n), sizeof *names);
    for (int64_t k = 0; k < n; k++) {
        struct hf_param p = hf_param_at(&x->m, k);
        int64_t numel = shape_numel(&p.shape);
        float *v = xmalloc(to_size(numel) * sizeof *v);
        assert_true(numel < 4000);
        for (int64_t i = 0; i < numel; i++) v[i] = value_of(k, i);
        memcpy(names[k], p.name, sizeof names[k]);
        t[k] = (struct ckpt_tensor){.group = "param", .name = names[k], .dtype = DT_F32, .shape = p.shape, .p = v};
        t[k].box = region_whole(&p.shape);
    }
    struct ckpt_attachment beside[3] = {{.name = "tokenizer.json", .p = tokenizer, .bytes = strlen(tokenizer)}};
    struct ckpt_info info = {.step = 1, .extra = extra.p, .attachments = beside, .n_attachments = 1};
    const char *const more[2][2] = {{"tokenizer_config.json", tokenizer_config}, {"chat_template.jinja", template}};
    for (int i = 0; i < 2; i++)
        if (more[i][1])
            beside[info.n_attachments++] =
                (struct ckpt_attachment){.name = more[i][0], .p = more[i][1], .bytes = strlen(more[i][1])};
    assert_ok(ckpt_save(x->dir, &info, t, (int)n, &e));
    for (int64_t k = 0; k < n; k++) xfree((void *)t[k].p);
    xfree(t);
    xfree(names);
    str_free(&extra);
    assert_ok(weights_open(&x->w, x->dir, &e));
}
static void make(struct made *x, const char *config, const char *tokenizer)
{
    make_beside(x, config, tokenizer, NULL, NULL);
}
static void unmake(struct made *x)
{
    weights_close(x->w);
    scratch_free(x->dir);
}

static int64_t index_of(const struct hf_model *m, const char *name)
{
    for (int64_t k = 0; k < hf_n_params(m); k++)
        if (!strcmp(hf_param_at(m, k).name, name)) return k;
    fail_msg("no parameter %s", name);
    return -1;
}

struct row {
    const char *config, *tokenizer;
    const char *keys[10]; /* each is a line of the file's */
    struct {
        const char *theirs, *ours;
        int64_t at, is; /* element `at` of theirs is element `is` of ours */
    } places[8];
};
static const struct row rows[] = {
    {"{\"model_type\": \"llama\", \"attention_bias\": true, " SIZES "}",
     tokens_of_bytes,
     {"general.architecture=llama", "llama.rope.dimension_count=6", "llama.attention.head_count_kv=2",
      "llama.context_length=40", "tokenizer.ggml.model=gpt2", "tokenizer.ggml.pre=gpt-2", "tokenizer.ggml.merges=a b",
      "tokenizer.ggml.tokens=a,b,<end>,ab,<mine>,[PAD5],[PAD6],[PAD7],[PAD8],[PAD9],[PAD10]",
      "tokenizer.ggml.token_type=1,1,3,1,4,5,5,5,5,5,5", "tokenizer.ggml.add_bos_token=0"},
     /* row 1 of a head is the second half's first, its row 2 the first half's second */
     {{"blk.1.attn_q.weight", "layers.1.attn.q.weight", 12 * 7, 12 * 9},
      {"blk.1.attn_k.weight", "layers.1.attn.k.weight", 12 * 2 + 5, 12 * 1 + 5},
      {"blk.0.attn_q.bias", "layers.0.attn.q.bias", 7, 9},
      {"blk.0.attn_v.weight", "layers.0.attn.v.weight", 12, 12},
      {"blk.0.attn_output.bias", "layers.0.attn.o.bias", 3, 3},
      {"output.weight", "head.weight", 5, 5}}},
    {"{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.5}, " SIZES "}",
     tokens_of_letters,
     {"llama.rope.scaling.type=linear", "llama.rope.scaling.factor=2.5", "tokenizer.ggml.model=llama",
      "tokenizer.ggml.scores=0,0,0,0,0,0,0,-1,-2,-3,0", "tokenizer.ggml.token_type=2,1,1,6,1,1,1,1,1,1,1",
      "tokenizer.ggml.unknown_token_id=0", "tokenizer.ggml.add_space_prefix=0", "tokenizer.ggml.bos_token_id=1"},
     {{"blk.0.ffn_norm.weight", "layers.0.norm2.weight", 1, 1}}},
    {"{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
     "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}, " SIZES "}",
     tokens_of_bytes,
     {"general.architecture=llama"},
     {{"blk.0.ffn_gate.weight", "layers.0.mlp.gate.weight", 1, 1}}},
    {"{\"model_type\": \"llama\", " SIZES "}",
     "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}, \"pre_tokenizer\": {\"type\": "
     "\"ByteLevel\", "
     "\"add_prefix_space\": false, \"use_regex\": false}}", /* nothing is merged: cuts do not matter */
     {"tokenizer.ggml.pre=gpt-2", "tokenizer.ggml.merges="},
     {{"blk.0.ffn_gate.weight", "layers.0.mlp.gate.weight", 1, 1}}},
    {"{\"model_type\": \"mistral\", \"sliding_window\": 9, " SIZES "}",
     tokens_of_bytes,
     {"general.architecture=llama", "llama.context_length=9"}, /* a longer text would be another one */
     {{"blk.1.attn_q.weight", "layers.1.attn.q.weight", 12 * 7, 12 * 9}}},
    {"{\"model_type\": \"mixtral\", \"sliding_window\": null, \"num_local_experts\": 3, \"num_experts_per_tok\": "
     "2, " SIZES "}",
     tokens_after_space,
     {"general.architecture=llama", "llama.expert_count=3", "llama.expert_used_count=2",
      "tokenizer.ggml.add_space_prefix=1"},
     {{"blk.1.ffn_gate_exps.weight", "layers.1.moe.experts.2.gate.weight", 2 * 120 + 7, 7},
      {"blk.1.ffn_gate_inp.weight", "layers.1.moe.router.weight", 4, 4},
      {"blk.0.ffn_down_exps.weight", "layers.0.moe.experts.1.down.weight", 120 + 3, 3}}},
    {"{\"model_type\": \"qwen2\", \"use_sliding_window\": false, \"tie_word_embeddings\": true, " SIZES "}",
     tokens_of_bytes,
     {"general.architecture=qwen2"},
     {{"blk.1.attn_q.weight", "layers.1.attn.q.weight", 12 * 7, 12 * 7},
      {"blk.1.attn_k.bias", "layers.1.attn.k.bias", 7, 7}}},
    {"{\"model_type\": \"qwen3\", " SIZES "}",
     tokens_of_bytes,
     {"general.architecture=qwen3", "qwen3.attention.key_length=6"},
     {{"blk.1.attn_q_norm.weight", "layers.1.attn.q_norm.weight", 5, 5}}},
    {"{\"model_type\": \"qwen3_moe\", \"num_local_experts\": 3, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": "
     "4, "
     "\"norm_topk_prob\": true, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], " SIZES "}",
     tokens_of_bytes,
     {"general.architecture=qwen3moe", "qwen3moe.expert_feed_forward_length=4"},
     {{"blk.1.ffn_up_exps.weight", "layers.1.moe.experts.2.up.weight", 2 * 48 + 7, 7}}},
    {"{\"model_type\": \"smollm3\", \"no_rope_layer_interval\": 4, \"num_hidden_layers\": 2, " SIZES "}",
     tokens_of_bytes,
     {"general.architecture=smollm3"},
     {{"blk.1.attn_q.weight", "layers.1.attn.q.weight", 12 * 7, 12 * 9}}},
    {"{\"model_type\": \"olmo2\", " SIZES "}",
     tokens_of_bytes,
     {"general.architecture=olmo2"},
     {{"blk.1.attn_k_norm.weight", "layers.1.attn.k_norm.weight", 11, 11},
      {"blk.0.post_attention_norm.weight", "layers.0.norm1_after.weight", 2, 2}}},
    {"{\"model_type\": \"phi3\", " SIZES "}",
     tokens_of_letters,
     {"general.architecture=phi3"},
     {{"blk.1.attn_qkv.weight", "layers.1.attn.k.weight", 24 * 12 + 5, 5},
      {"blk.1.attn_qkv.weight", "layers.1.attn.v.weight", 36 * 12 + 5, 5},
      {"blk.0.ffn_up.weight", "layers.0.mlp.up.weight", 10 * 12 + 1, 1}}},
    {"{\"model_type\": \"gemma2\", \"attn_logit_softcapping\": 7, \"final_logit_softcapping\": 9, " GEMMA "}",
     tokens_of_letters,
     {"general.architecture=gemma2", "gemma2.attn_logit_softcapping=7", "gemma2.final_logit_softcapping=9",
      "gemma2.attention.sliding_window=5"},
     {{"blk.0.post_ffw_norm.weight", "layers.0.norm2_after.weight", 2, 2}}},
    {"{\"model_type\": \"gemma3_text\", \"sliding_window_pattern\": 6, \"rope_local_base_freq\": 500, " GEMMA "}",
     tokens_of_letters,
     {"general.architecture=gemma3", "gemma3.rope.freq_base_swa=500"},
     {{"blk.1.attn_q_norm.weight", "layers.1.attn.q_norm.weight", 5, 5}}},
    {"{\"model_type\": \"gpt2\", \"vocab_size\": 11, \"n_embd\": 12, \"n_layer\": 2, \"n_head\": 2, \"n_positions\": "
     "9}",
     tokens_of_bytes,
     {"general.architecture=gpt2", "gpt2.context_length=9"},
     {{"blk.1.attn_qkv.weight", "layers.1.attn.v.weight", 24 * 12 + 5, 5},
      {"blk.0.attn_qkv.bias", "layers.0.attn.k.bias", 13, 1},
      {"position_embd.weight", "embed.position", 20, 20}}},
};

static void has_keys(const struct file *f, const struct row *r)
{
    for (int i = 0; i < 10 && r->keys[i]; i++) {
        char line[512];
        snprintf(line, sizeof line, "\n%s\n", r->keys[i]);
        if (!strstr(f->keys, line) && strncmp(f->keys, line + 1, strlen(line) - 1))
            fail_msg("no %s among\n%s", r->keys[i], f->keys);
    }
}

/* Every element of every parameter once; in norms of 1 + w with 1 added. */
static void has_all(struct file *f, const struct made *x, const struct row *r)
{
    int64_t n_params = hf_n_params(&x->m), all = 0, seen = 0, places = 0;
    unsigned char *there = xcalloc(to_size(n_params) * 4096, 1);
    struct tensor {
        char name[96];
        int64_t numel, offset, nd, cols;
    } *t = xcalloc(to_size(f->n_tensors), sizeof *t);
    for (int64_t k = 0; k < n_params; k++) {
        struct shape s = hf_param_at(&x->m, k).shape;
        all += shape_numel(&s);
    }
    for (int64_t i = 0; i < f->n_tensors; i++) {
        take_text(f, t[i].name, sizeof t[i].name);
        t[i].numel = 1;
        t[i].nd = (int64_t)take(f, 4);
        for (int64_t d = 0; d < t[i].nd; d++) {
            int64_t n = (int64_t)take(f, 8);
            if (!d) t[i].cols = n; /* the fastest is the first */
            t[i].numel *= n;
        }
        assert_int_equal(take(f, 4), 0);
        t[i].offset = (int64_t)take(f, 8);
        assert_int_equal(t[i].offset % 32, 0);
    }
    size_t data = (f->at + 31) / 32 * 32;
    for (int64_t i = 0; i < f->n_tensors; i++) {
        bool more = x->m.model.norm_plus_one && strstr(t[i].name, "norm");
        const unsigned char *p = f->p + data + t[i].offset;
        assert_true((size_t)(p - f->p) + (size_t)t[i].numel * 4 <= f->n);
        if (!strcmp(t[i].name, "rope_freqs.weight")) { /* waves of 6, 135 and 2,900 positions; 64 were seen */
            const float by[3] = {1, 8, 8};
            assert_int_equal(t[i].numel, 3);
            assert_memory_equal(p, by, sizeof by);
            continue;
        }
        for (int64_t k = 0; k < t[i].numel; k++) {
            float v;
            memcpy(&v, p + 4 * k, 4);
            int64_t is = (int64_t)v - more - 3;
            assert_true(is >= 0 && is < n_params * 4096 && !there[is]);
            there[is] = 1;
            seen++;
            struct shape ours = hf_param_at(&x->m, is / 4096).shape;
            if (t[i].nd > 1 && t[i].cols != ours.n[1]) fail_msg("%s has rows of %d", t[i].name, (int)t[i].cols);
            for (int c = 0; c < 8 && r->places[c].theirs; c++)
                if (!strcmp(r->places[c].theirs, t[i].name) && r->places[c].at == k) {
                    assert_int_equal(is, index_of(&x->m, r->places[c].ours) * 4096 + r->places[c].is);
                    places++;
                }
        }
    }
    assert_int_equal(seen, all);
    for (int c = 0; c < 8 && r->places[c].theirs; c++) places--;
    assert_int_equal(places, 0);
    xfree(there);
    xfree(t);
}

static void every_number_once(void **state)
{
    (void)state;
    struct err e;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct made x;
        struct file f = {0};
        char *text;
        make(&x, rows[i].config, rows[i].tokenizer);
        char *path = fs_join(x.dir, "m.gguf");
        assert_ok(gguf_export(x.w, path, "m", GGUF_F32, &e));
        assert_ok(fs_read_all(path, 1 << 24, &text, &f.n, &e));
        f.p = (unsigned char *)text;
        read_keys(&f);
        has_keys(&f, &rows[i]);
        has_all(&f, &x, &rows[i]);
        xfree(text);
        xfree(path);
        unmake(&x);
    }
}

/* The template, from where their library takes it, and every end of a text, under the three names that there are. */
static void conversations_are_said(void **state)
{
    (void)state;
#define ENDS(list) "{\"model_type\": \"llama\", " SIZES ", \"eos_token_id\": " list "}" /* the last one counts */
    static const struct {
        const char *config, *tokenizer_config, *template;
        const char *keys[4], *none[3]; /* lines that the file has, and beginnings of lines that it has not */
    } cases[] = {
        {ENDS("2"), NULL, NULL, {"tokenizer.ggml.eos_token_id=2"}, {"tokenizer.chat_template", "tokenizer.ggml.eot"}},
        {ENDS("2"),
         "{\"chat_template\": \"{{ a }}\", \"eos_token\": \"<end>\"}",
         NULL,
         {"tokenizer.chat_template={{ a }}", "tokenizer.ggml.eos_token_id=2"},
         {"tokenizer.ggml.eot"}},
        {ENDS("2"), "{\"chat_template\": \"{{ a }}\"}", "{{ b }}", {"tokenizer.chat_template={{ b }}"}, {NULL}},
        {ENDS("2"), "{\"chat_template\": null}", NULL, {"tokenizer.ggml.eos_token_id=2"}, {"tokenizer.chat_template"}},
        {ENDS("2"),
         "{\"chat_template\": [{\"name\": \"default\", \"template\": \"{{ a }}\"}, {\"name\": \"tool_use\", "
         "\"template\": \"{{ t }}\"}]}",
         NULL,
         {"tokenizer.chat_template={{ a }}", "tokenizer.chat_template.tool_use={{ t }}",
          "tokenizer.chat_templates=tool_use"},
         {NULL}},
        {ENDS("[2, 4]"),
         NULL,
         NULL,
         {"tokenizer.ggml.eos_token_id=2", "tokenizer.ggml.eot_token_id=4"},
         {"tokenizer.ggml.eom"}},
        {ENDS("4"),
         "{\"eos_token\": {\"content\": \"<end>\"}}",
         NULL,
         {"tokenizer.ggml.eos_token_id=4", "tokenizer.ggml.eot_token_id=2"},
         {"tokenizer.ggml.eom"}},
        {ENDS("null"), "{\"eos_token\": \"<end>\"}", NULL, {"tokenizer.ggml.eos_token_id=2"}, {"tokenizer.ggml.eot"}},
        {ENDS("[0, 5, 4]"),
         NULL,
         NULL, /* 5 is <eom> */
         {"tokenizer.ggml.eos_token_id=0", "tokenizer.ggml.eot_token_id=4", "tokenizer.ggml.eom_token_id=5"},
         {NULL}},
        {ENDS("[0, 2, 4, 1, 3]"),
         NULL,
         NULL, /* two that have no name there, which is told */
         {"tokenizer.ggml.eos_token_id=0", "tokenizer.ggml.eot_token_id=2", "tokenizer.ggml.eom_token_id=4"},
         {NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err e;
        struct made x;
        struct file f = {0};
        char *text;
        make_beside(&x, cases[i].config, tokens_with_eom, cases[i].tokenizer_config, cases[i].template);
        char *path = fs_join(x.dir, "m.gguf");
        assert_ok(gguf_export(x.w, path, "m", GGUF_F32, &e));
        assert_ok(fs_read_all(path, 1 << 24, &text, &f.n, &e));
        f.p = (unsigned char *)text;
        read_keys(&f);
        struct row r = {.keys = {cases[i].keys[0], cases[i].keys[1], cases[i].keys[2], cases[i].keys[3]}};
        has_keys(&f, &r);
        for (int k = 0; k < 3 && cases[i].none[k]; k++)
            if (strstr(f.keys, cases[i].none[k])) fail_msg("case %zu: %s among\n%s", i, cases[i].none[k], f.keys);
        xfree(text);
        xfree(path);
        unmake(&x);
    }
}

/* What readers of the format compute in another way is not written. */
static void others_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config, *tokenizer, *said;
    } cases[] = {
        {"{\"model_type\": \"llama\", \"mlp_bias\": true, " SIZES "}", tokens_of_bytes, "mlp_bias"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 3.0}, " SIZES "}",
         tokens_of_bytes, "rope_scaling"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 8, "
         "\"original_max_position_embeddings\": 32}, " SIZES "}",
         tokens_of_bytes, "beta_fast"},
        {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 3, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": "
         "4, "
         "\"norm_topk_prob\": true, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [1], " SIZES "}",
         tokens_of_bytes, "model.moe.sparse"},
        {"{\"model_type\": \"qwen3_moe\", \"num_experts\": 3, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": "
         "4, "
         "\"norm_topk_prob\": false, \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], " SIZES "}",
         tokens_of_bytes, "norm_topk"},
        {"{\"model_type\": \"smollm3\", \"no_rope_layer_interval\": 2, " SIZES "}", tokens_of_bytes, "model.attn.rope"},
        {"{\"model_type\": \"gemma3_text\", \"sliding_window_pattern\": 2, " GEMMA "}", tokens_of_letters,
         "model.attn.local"},
        {"{\"model_type\": \"gemma2\", " SIZES ", \"tie_word_embeddings\": true, \"query_pre_attn_scalar\": 9}",
         tokens_of_letters, "scale_dim"},
        {"{\"model_type\": \"phi3\", " SIZES "}", tokens_of_bytes, "no token <unk>"},
        {"{\"model_type\": \"llama\", " SIZES "}", "{\"model\": {\"type\": \"WordPiece\"}}", "WordPiece"},
        {"{\"model_type\": \"llama\", " SIZES "}",
         "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1}}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
         "\"add_prefix_space\": false}, \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
         "\"NFC\"}, {\"type\": \"Lowercase\"}]}}",
         "normalizer: Lowercase changes texts"},
        {"{\"model_type\": \"llama\", " SIZES "}",
         "{\"model\": {\"type\": \"BPE\", \"end_of_word_suffix\": \"</w>\", \"vocab\": {\"a\": 1}}, "
         "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}}",
         "end_of_word_suffix"},
        {"{\"model_type\": \"llama\", " SIZES "}", "[]", "tokenizer"},
        {"{\"model_type\": \"llama\", " SIZES "}",
         "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 11}}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
         "\"add_prefix_space\": false}}",
         "token a is 11"},
        {"{\"model_type\": \"llama\", " SIZES "}",
         "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1}}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
         "\"add_prefix_space\": true}}",
         "cuts texts"},
        {"{\"model_type\": \"llama\", " SIZES "}",
         "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1}}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
         "\"pretokenizers\": [{\"type\": "
         "\"Split\", \"pattern\": {\"Regex\": \"x+\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", "
         "\"add_prefix_space\": false, "
         "\"use_regex\": false}]}}",
         "cuts texts"},
        /* "ab" is also "a" and "b", and no merge makes it so */
        {"{\"model_type\": \"llama\", " SIZES "}",
         "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"" SPACE
         "\": 0, \"a\": 1, \"b\": 2, \"ab\": 3}, \"merges\": []}, "
         "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SPACE "\"}}",
         "in 1 ways and merged in 0"},
        {"{\"model_type\": \"llama\", " SIZES "}",
         "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"a\": 1}, \"merges\": [\"a b\"]}, "
         "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" SPACE "\"}}",
         "merge 0 makes no token"},
        {"{\"model_type\": \"llama\", " SIZES "}",
         "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": {\"a\": 1}}, \"normalizer\": {\"type\": "
         "\"Lowercase\"}}",
         "normalizer"},
        {"{\"model_type\": \"llama\", " SIZES "}",
         "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1, \"b\": 2}}, \"pre_tokenizer\": {\"type\": "
         "\"ByteLevel\", \"add_prefix_space\": false}, \"post_processor\": {\"type\": \"TemplateProcessing\", "
         "\"single\": [{\"SpecialToken\": {\"id\": \"a\"}}, {\"SpecialToken\": {\"id\": \"b\"}}, {\"Sequence\": "
         "{\"id\": "
         "\"A\"}}], \"special_tokens\": {\"a\": {\"id\": \"a\", \"ids\": [1]}, \"b\": {\"id\": \"b\", \"ids\": [2]}}}}",
         "puts 2 tokens before a text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err e;
        struct made x;
        make(&x, cases[i].config, cases[i].tokenizer);
        char *path = fs_join(x.dir, "m.gguf");
        int rc = gguf_export(x.w, path, "m", GGUF_F32, &e);
        if (!rc || !strstr(e.text, cases[i].said))
            fail_msg("case %zu: %d %s, wanted %s", i, rc, rc ? e.text : "", cases[i].said);
        assert_false(fs_exists(path));
        xfree(path);
        unmake(&x);
    }
}

int main(void)
{
    setenv("LOG", "error", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_number_once), cmocka_unit_test(conversations_are_said),
                                       cmocka_unit_test(others_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
