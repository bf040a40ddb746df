/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of Megatron-Energon with captions and with questions and answers: which records come of which samples, from
 * which members; what is left out, and which part is read; that a document has its own sample's picture; and what is
 * refused by name. */
#include "scratch.h"

#include <stdio.h>
#include <string.h>

#include "data/dataset.h"
#include "data/energon_texts.h"
#include "media/encode.h"
#include "source/source.h"

enum { SIDE = 6, SEQ = 64, TOKEN = 300, EACH = 3 * SIDE * SIDE };

struct room {
    char *dir, *folder, *cache;
    struct str tar; /* the shard that is being made */
};

static void put_text(const struct room *r, const char *name, const char *text)
{
    struct err e;
    char *path = fs_join(r->folder, name);
    if (fs_write_atomic(path, text, strlen(text), &e)) fail_msg("%s", e.text);
    xfree(path);
}

static struct room room_new(void)
{
    struct err e;
    struct room r = {.dir = scratch_new()};
    r.folder = fs_join(r.dir, "e");
    r.cache = fs_join(r.dir, "cache");
    char *meta = fs_join(r.folder, ".nv-meta");
    assert_int_equal(fs_mkdirs(meta, &e), OK);
    xfree(meta);
    return r;
}

static void room_free(struct room *r)
{
    str_free(&r->tar);
    xfree(r->folder);
    xfree(r->cache);
    scratch_free(r->dir);
}

static void add(struct room *r, const char *name, const char *text) { tar_add(&r->tar, name, text, strlen(text)); }

static struct image image_of(int i) { return picture(9 + i % 3, 8 + i % 4, 3); }

static void add_picture(struct room *r, const char *name, int i)
{
    struct str file = {0};
    struct image m = image_of(i);
    encode_png(&file, &m, (struct png_wish){0});
    tar_add(&r->tar, name, file.p, file.n);
    image_free(&m);
    str_free(&file);
}

static void end_shard(struct room *r, const char *name)
{
    char *path = fs_join(r->folder, name);
    tar_end(&r->tar);
    FILE *f = fopen(path, "wb");
    assert_true(f && fwrite(r->tar.p, 1, r->tar.n, f) == r->tar.n);
    fclose(f);
    str_clear(&r->tar);
    xfree(path);
}

static void describe(const struct room *r, const char *type, const char *map, const char *split, const char *counts)
{
    char text[400];
    snprintf(text, sizeof text, "sample_type: {__module__: megatron.energon, __class__: %s}\nfield_map: %s\n", type,
             map);
    put_text(r, ".nv-meta/dataset.yaml", text);
    put_text(r, ".nv-meta/split.yaml", split);
    snprintf(text, sizeof text, "{\"shard_counts\": %s}", counts);
    put_text(r, ".nv-meta/.info.json", text);
}

/* Every record of a part, a line each, behind the number of its pictures; *e says why not. bad: what was passed over.
 */
static int records(const struct room *r, const char *part, bool skip_bad, struct str *out, int64_t *bad, struct err *e)
{
    struct energon_texts t;
    struct energon_ref ref = {.folder = r->folder, .part = part};
    struct source *s = NULL;
    int code = energon_texts_open(&t, &ref, e), got = 0;
    struct source_options o = {.whole_records = true, .pictures = true, .fields = &t.fields, .skip_bad = skip_bad};
    if (!code) code = source_open_with(&s, t.shards, to_int(t.folder.n), &o, e);
    while (!code && (got = source_next(s, e)) > 0) {
        const char *p;
        size_t n;
        str_printf(out, "%d ", source_pictures(s));
        while ((got = source_read(s, &p, &n, e)) > 0) str_add(out, p, n);
        str_putc(out, '\n');
    }
    *bad = s ? source_n_bad(s) : 0;
    source_close(s);
    energon_texts_free(&t);
    return code ? code : got < 0 ? got : OK;
}

static void expect(const struct room *r, const char *part, const char *want)
{
    struct str out = {0};
    struct err e = {0};
    int64_t bad;
    if (records(r, part, false, &out, &bad, &e)) fail_msg("%s", e.text);
    if (strcmp(str_text(&out), want) != 0) fail_msg("'%s', wanted '%s'", str_text(&out), want);
    str_free(&out);
}

static void refuses(const struct room *r, const char *words)
{
    struct str out = {0};
    struct err e = {0};
    int64_t bad;
    if (!records(r, "train", false, &out, &bad, &e)) fail_msg("'%s' was wanted: %s", words, str_text(&out));
    if (!strstr(e.text, words)) fail_msg("no '%s' in '%s'", words, e.text);
    str_free(&out);
}

#define ASKS(question, answer)                                                                                         \
    "1 {\"conversations\":[{\"from\":\"human\",\"value\":\"" question "\"},{\"from\":\"gpt\",\"value\":\"" answer      \
    "\"}]}\n"
#define TELLS(caption) "1 {\"prompt\":\"<image>\",\"completion\":\"" caption "\"}\n"

/* Captions: of the named extension, or the first place that a sample has one in; other pictures and texts beside them
 * are nobody's; parts, and what is left out of them, a shard or a sample. */
static void captions(void **state)
{
    (void)state;
    struct room r = room_new();
    add_picture(&r, "a/0.png", 0);
    add(&r, "a/0.txt", "zero \n\n");
    add_picture(&r, "a/0.mask.png", 1);
    add(&r, "a/0.note.txt", "not this");
    add(&r, "a/1.json", "{\"c\": {\"long\": [\"no\", \"one \\\"1\\\"\"]}}");
    add_picture(&r, "a/1.JPG", 1); /* letters of any size; what it is shows in its bytes */
    add(&r, "readme", "no sample");
    add(&r, "a/2.txt", "two");
    add_picture(&r, "a/2.png", 2);
    end_shard(&r, "x.tar");
    add_picture(&r, "3.png", 3);
    add(&r, "3.txt", "three");
    end_shard(&r, "y.tar");
    add_picture(&r, "4.png", 4);
    add(&r, "4.txt", "four");
    end_shard(&r, "z.tar");
    describe(&r, "CaptioningSample", "{image: \"jpg;png\", caption: \"txt,json[c][long][1]\"}",
             "split_parts: {train: [x.tar, y.tar], val: [z.tar]}", "{\"x.tar\": 3, \"y.tar\": 1, \"z.tar\": 1}");
    expect(&r, "train", TELLS("zero") TELLS("one \\\"1\\\"") TELLS("two") TELLS("three"));
    expect(&r, "val", TELLS("four"));
    put_text(&r, ".nv-meta/split.yaml", "split_parts: {train: [x.tar, y.tar, z.tar]}\nexclude: [y.tar, x.tar/a/1]\n");
    expect(&r, "train", TELLS("zero") TELLS("two") TELLS("four"));
    room_free(&r);
}

/* Questions: an answer is a record; a question that says where its picture is stays. */
static void questions(void **state)
{
    (void)state;
    struct room r = room_new();
    add_picture(&r, "0.png", 0);
    add(&r, "0.json", "{\"q\": \"What?\\n\", \"a\": [\"this\", \"that\", \"this\"]}");
    add(&r, "1.json", "{\"q\": \"Look: <image> Which?\", \"a\": \"one\"}");
    add_picture(&r, "1.png", 1);
    end_shard(&r, "x.tar");
    describe(&r, "VQASample", "{image: png, context: \"json[q]\", answers: \"json[a]\"}",
             "split_parts: {train: [x.tar]}", "{\"x.tar\": 2}");
    expect(&r, "train",
           ASKS("<image>\\nWhat?", "this") ASKS("<image>\\nWhat?", "that") ASKS("<image>\\nWhat?", "this")
               ASKS("Look: <image> Which?", "one"));
    add_picture(&r, "0.png", 0);
    add(&r, "0.question.txt", "Who?");
    add(&r, "0.answer.txt", "he");
    end_shard(&r, "x.tar");
    describe(&r, "VQAWebdataset", "{image: png, context: question.txt, answers: answer.txt}",
             "split_parts: {train: [x.tar]}", "{\"x.tar\": 1}");
    expect(&r, "train", ASKS("<image>\\nWho?", "he"));
    room_free(&r);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *type, *map, *says;
    } rows[] = {
        {"VQASample", "{image: png, context: txt, answers: \"json[a]\", answer_weights: \"json[w]\"}",
         "names answer_weights"},
        {"VQASample", "{image: png, context: txt}", "names no answers"},
        {"VQASample", "{context: txt, answers: \"json[a]\"}", "names no image"},
        {"CaptioningSample", "{image: png}", "names no caption"},
        {"CaptioningSample", "{image: png, caption: \"json[\"}", "no place of its field caption"},
        {"CaptioningSample", "{image: png, text: txt}", "has no field \"text\""},
        {"ImageClassificationSample", "{image: png, label: cls}", "type ImageClassificationSample"},
        {"InterleavedSample", "{sequence: json}", "type InterleavedSample"},
        {"MyOwnSample", "{image: png, caption: txt}", "type MyOwnSample"},
    };
    struct room r = room_new();
    add_picture(&r, "0.png", 0);
    add(&r, "0.txt", "zero");
    end_shard(&r, "x.tar");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        describe(&r, rows[i].type, rows[i].map, "split_parts: {train: [x.tar]}", "{\"x.tar\": 1}");
        refuses(&r, rows[i].says);
    }
    put_text(&r, ".nv-meta/dataset.yaml", "sample_type: {__class__: CaptioningSample}\nsample_loader: loader.py:f\n");
    refuses(&r, "Python code");
    put_text(&r, ".nv-meta/dataset.yaml", "sample_type: {__class__: CaptioningSample}\n");
    refuses(&r, "{image: jpg, caption: txt}");
    describe(&r, "CaptioningSample", "{image: png, caption: txt}", "split_parts: {train: [x.tar]}", "{\"x.tar\": 2}");
    refuses(&r, "x.tar: has 1 samples, .info says 2");
    struct str out = {0};
    struct err e = {0};
    int64_t bad;
    assert_int_equal(records(&r, "train", true, &out, &bad, &e),
                     ERR_CORRUPT); /* no bad record, which would be passed over */
    assert_non_null(strstr(e.text, ".info says 2"));
    str_free(&out);
    char *folder = fs_join(r.folder, "sub");
    assert_int_equal(fs_mkdirs(folder, &e), OK);
    xfree(folder);
    for (int n = 0; n < 4; n++) { /* a folder is no shard, however many lie in it */
        char name[20];
        snprintf(name, sizeof name, "sub/%d.tar", n);
        add_picture(&r, "0.png", 0);
        add(&r, "0.txt", "zero");
        if (n) end_shard(&r, name);
        else str_clear(&r.tar);
        describe(&r, "CaptioningSample", "{image: png, caption: txt}", "split_parts: {train: [sub]}", "{\"sub\": 1}");
        refuses(&r, n ? "sub: is a folder" : "sub");
    }
    static const char *const outside[] = {"..", "sub/..", "../e", "sub/../../e/x.tar", "/x.tar"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        char split[80], counts[60];
        snprintf(split, sizeof split, "split_parts: {train: [\"%s\"]}", outside[i]);
        snprintf(counts, sizeof counts, "{\"%s\": 1}", outside[i]);
        describe(&r, "CaptioningSample", "{image: png, caption: txt}", split, counts);
        refuses(&r, "outside of the dataset's folder");
    }
    describe(&r, "CaptioningSample", "{image: png, caption: txt}", "split_parts: {train: [w.tar]}", "{\"w.tar\": 2}");
    refuses(&r, "w.tar");
    room_free(&r);
}

/* What is wrong with a sample is told with its place; where bad records are skipped the others come. */
static void bad_samples(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
        bool picture;
    } rows[] = {
        {"{\"q\": \"Q\", \"a\": []}", "an empty list", true},
        {"{\"q\": \"Q\", \"a\": [\"\"]}", "its answers is empty", true},
        {"{\"q\": \"Q\", \"a\": [3]}", "its answers is no text", true},
        {"{\"q\": \"Q\"}", "has no answers: nothing at json[a] (it has .png, .json)", true},
        {"{\"q\": \"Q\", \"a\": null}", "has no answers", true},
        {"{\"q\": [\"Q\"], \"a\": \"A\"}", "its context is no text", true},
        {"{\"q\": \" \", \"a\": \"A\"}", "its context is empty", true},
        {"{\"q\": \"Q\\u0000\", \"a\": \"A\"}", "its context holds a NUL", true},
        {"{\"q\": \"Q\", \"a\": ", "sample 1 at byte", true},
        {"{\"q\": \"Q\", \"a\": \"A\"}", "has no picture: no member png", false},
    };
    struct room r = room_new();
    describe(&r, "VQASample", "{image: png, context: \"json[q]\", answers: \"json[a]\"}",
             "split_parts: {train: [x.tar]}", "{\"x.tar\": 3}");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct str out = {0};
        struct err e;
        int64_t bad = 0;
        for (int k = 0; k < 3; k++) {
            char name[20];
            snprintf(name, sizeof name, "%d.png", k);
            if (k != 1 || rows[i].picture) add_picture(&r, name, k);
            snprintf(name, sizeof name, "%d.json", k);
            add(&r, name, k == 1 ? rows[i].json : "{\"q\": \"Q\", \"a\": \"A\"}");
        }
        end_shard(&r, "x.tar");
        refuses(&r, rows[i].says);
        refuses(&r, "x.tar: sample 1 at byte");
        if (records(&r, "train", true, &out, &bad, &e)) fail_msg("%s", e.text);
        assert_string_equal(str_text(&out), ASKS("<image>\\nQ", "A") ASKS("<image>\\nQ", "A"));
        assert_int_equal(bad, 1);
        str_free(&out);
    }
    add_picture(&r, "0.png", 0);
    add_picture(&r, "0.png", 1);
    end_shard(&r, "x.tar");
    refuses(&r, "has two pictures");
    room_free(&r);
}

/* ---- as a dataset ---- */

static struct dataset_options options(const struct room *r, const struct dataset_source *s, int n,
                                      const struct tokenizer *t)
{
    struct dataset_options o = {.sources = s,
                                .n_sources = n,
                                .tokenizer = t,
                                .seq_len = SEQ,
                                .seed = 11,
                                .shuffled = true,
                                .reset_positions = true,
                                .mask_boundaries = true,
                                .pack = PACK_PADDED,
                                .global_batch = 2,
                                .cache_dir = r->cache};
    o.images = (struct image_rule){.view = {.size = SIDE, .channels = 3, .crop = CROP_CENTER, .resize = 7},
                                   .limits = media_limits_usual(),
                                   .part = "train"};
    for (int i = 0; i < 3; i++) o.images.view.mean[i] = 0.5, o.images.view.std[i] = 0.5;
    o.pictures = (struct text_pictures_rule){.patches = 4, .places = 5, .lead = 1, .most = 1, .token = TOKEN};
    return o;
}

/* The picture of document i's sample, whatever other pictures are beside it; a loss of the answer alone. */
static void check_row(const struct batch *b, int64_t row, int sample, const char *answer)
{
    struct str trained = {0};
    struct image m = image_of(sample);
    struct view_rule rule = {.size = SIDE, .channels = 3, .crop = CROP_CENTER, .resize = 7};
    float wanted[EACH];
    for (int c = 0; c < 3; c++) rule.mean[c] = rule.std[c] = 0.5;
    view_values(&rule, &m, 0, 0, wanted);
    assert_memory_equal(b->pixels + row * EACH, wanted, sizeof wanted);
    image_free(&m);
    for (int64_t k = row * SEQ; k < (row + 1) * SEQ; k++)
        if (b->targets[k] >= 0 && b->targets[k] < 256) str_printf(&trained, "%c", b->targets[k]);
    assert_string_equal(str_text(&trained), answer);
    str_free(&trained);
}

static void documents(void **state)
{
    (void)state;
    static const char *const answers[] = {"x0", "y0", "x1", "x2"}; /* of samples 0, 0, 1, 2 */
    static const int sample_of[] = {0, 0, 1, 2};
    struct room r = room_new();
    struct tokenizer *t = tokenizer_new_byte();
    for (int i = 0; i < 4; i++) {
        char name[20], json[80];
        snprintf(name, sizeof name, "%d.mask.png", i);
        add_picture(&r, name, i + 7);
        snprintf(name, sizeof name, "%d.png", i);
        add_picture(&r, name, i);
        snprintf(name, sizeof name, "%d.json", i);
        snprintf(json, sizeof json,
                 i ? "{\"q\": \"q%d\", \"a\": \"x%d\"}" : "{\"q\": \"q%d\", \"a\": [\"x%d\", \"y0\"]}", i, i);
        add(&r, name, json);
    }
    end_shard(&r, "x.tar");
    describe(&r, "VQASample", "{image: png, context: \"json[q]\", answers: \"json[a]\"}",
             "split_parts: {train: [x.tar]}\nexclude: [x.tar/3]\n", "{\"x.tar\": 4}");
    char *mix = fs_join(r.dir, "mix.yaml");
    struct dataset_source s = {.path = r.folder, .weight = 1}, m = {.path = mix, .weight = 1};
    struct err e;
    for (int by_file = 0; by_file < 2; by_file++) {
        static const char text[] = "__class__: MetadatasetV2\nsplits: {train: {blend: [{path: e, weight: 1}]}}\n";
        if (fs_write_atomic(mix, text, strlen(text), &e)) fail_msg("%s", e.text);
        struct dataset_options o = options(&r, by_file ? &m : &s, 1, t);
        struct dataset *d;
        struct batch b;
        if (dataset_open(&d, &o, &e)) fail_msg("%s", e.text);
        assert_int_equal(dataset_n_samples(d), 4);
        batch_init_pictures(&b, 2, SEQ, EACH);
        for (int64_t step = 0; step < 4; step++) {
            if (dataset_batch(d, step, 2, 0, &b, &e)) fail_msg("%s", e.text);
            for (int64_t row = 0; row < 2; row++) {
                struct cuts_pieces p;
                if (dataset_pieces(d, step * 2 + row, &p, &e)) fail_msg("%s", e.text);
                int64_t document = p.p[0].document;
                check_row(&b, row, sample_of[document], answers[document]);
                xfree(p.p);
            }
        }
        batch_fini(&b);
        dataset_close(d);
    }
    /* What else is left out makes other tokens of the same files. */
    put_text(&r, ".nv-meta/split.yaml", "split_parts: {train: [x.tar]}\nexclude: [x.tar/0]\n");
    struct dataset_options o = options(&r, &s, 1, t);
    struct dataset *d;
    if (dataset_open(&d, &o, &e)) fail_msg("%s", e.text);
    assert_int_equal(dataset_n_samples(d), 3);
    dataset_close(d);
    static const char *const mixes[][2] = {
        {"{join: [{path: e}, {path: e}], joiner: {__class__: ImageClassificationSample}}", "join"},
        {"{blend_epochized: [{path: e, repetitions: 2}]}", "blend_epochized"},
        {"{path: e, subset: {range: [0, 2]}}", "subset"},
    };
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
        char text[200];
        snprintf(text, sizeof text, "__class__: MetadatasetV2\nsplits:\n  train: %s\n", mixes[i][0]);
        if (fs_write_atomic(mix, text, strlen(text), &e)) fail_msg("%s", e.text);
        o = options(&r, &m, 1, t);
        assert_int_equal(dataset_open(&d, &o, &e), ERR_REQUEST);
        if (!strstr(e.text, mixes[i][1]) || !strstr(e.text, "blend and weight")) fail_msg("%zu: %s", i, e.text);
    }
    s.column = "txt";
    o = options(&r, &s, 1, t);
    assert_int_equal(dataset_open(&d, &o, &e), ERR_REQUEST);
    assert_non_null(strstr(e.text, "column txt"));
    xfree(mix);
    tokenizer_free(t);
    room_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(captions), cmocka_unit_test(questions),
                                       cmocka_unit_test(refused), cmocka_unit_test(bad_samples),
                                       cmocka_unit_test(documents)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
