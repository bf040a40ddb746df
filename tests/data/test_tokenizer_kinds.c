/* SPDX-License-Identifier: Apache-2.0 */
/* test_tokenizer_kinds.c: every kind of tokenizer against the reference's ids and texts, on more than 10,000 hard
 * documents each (hard_documents.h, make_kinds.py, results in kinds/): digests of every CHUNK documents, and the ids
 * themselves of the first ones. Also: fed in parts, decoded token by token, and where nothing is lost, back to the same
 * bytes.
 *
 * For make_kinds.py: called with "documents" the program writes them, each as 4 bytes of length, little-endian, and its
 * bytes; called with "encode FILE" a line of ids per document.
 */
#include "base/hash.h"
#include "data_test.h"
#include "drawn.h"
#include "hard_documents.h"
#include "sanitized.h"
#include "token/tokenizer_impl.h"

enum { N_DOCUMENTS = 14000, CHUNK = 250, N_CHUNKS = N_DOCUMENTS / CHUNK };

/* keeps: bytes that are not UTF-8 have tokens, so documents that have some are not the reference's. lossless: text
 * comes back as it was. */
static const struct {
    const char *name;
    bool keeps, lossless;
} kinds[] = {
#include "kinds/list.inc"
};

static struct tokenizer *open_kind(const char *name)
{
    char path[400];
    struct tokenizer *t;
    struct err e;
    snprintf(path, sizeof path, TEST_DIR "/data/kinds/%s.json", name);
    assert_ok(tokenizer_open(&t, path, &e), &e);
    return t;
}

static void encode(struct encoder *c, const struct str *s, size_t part, struct tokens *ids)
{
    struct err e;
    ids->n = 0;
    for (size_t at = 0; at < s->n; at += part)
        assert_ok(encoder_feed(c, s->p + at, s->n - at < part ? s->n - at : part, ids, &e), &e);
    assert_ok(encoder_end(c, ids, &e), &e);
}

/* Adds the text as the reference shows what is not UTF-8: one U+FFFD for as much as begins like a character. */
static void add_shown(struct str *out, const struct str *text)
{
    const unsigned char *p = (const unsigned char *)str_text(text);
    for (size_t at = 0; at < text->n;) {
        size_t valid = utf8_run(p + at, text->n - at), bad = 1;
        str_add(out, p + at, valid);
        at += valid;
        if (at == text->n) break;
        while (at + bad < text->n && utf8_char(p + at, bad + 1) < 0) bad++;
        str_puts(out, "\xEF\xBF\xBD");
        at += bad;
    }
}

/* Of one chunk of documents: digests of ids and of texts. */
struct digest {
    uint64_t ids, texts;
};

static struct digest digest_of(const struct tokenizer *t, struct encoder *c, bool keeps, uint32_t from)
{
    struct hash64 ids_hash, text_hash;
    struct str s = {0}, text = {0}, shown = {0};
    struct tokens ids = {0};
    hash64_init(&ids_hash);
    hash64_init(&text_hash);
    for (uint32_t i = from; i < from + CHUNK; i++) {
        if (keeps && hard_is_broken(i)) continue;
        hard_document(&s, i);
        encode(c, &s, s.n + 1, &ids);
        tokens_push(&ids, -1);
        hash64_add(&ids_hash, ids.ids, (size_t)ids.n * sizeof *ids.ids);
        str_clear(&text);
        /* A byte token spelt out is that byte here, also where it is no UTF-8; the reference has U+FFFD. */
        if (!strstr(str_text(&s), "<0x")) tokenizer_decode(t, ids.ids, ids.n - 1, true, &text);
        str_clear(&shown);
        add_shown(&shown, &text);
        str_putc(&shown, 0);
        hash64_add(&text_hash, shown.p, shown.n);
    }
    str_free(&s);
    str_free(&text);
    str_free(&shown);
    tokens_free(&ids);
    return (struct digest){hash64_value(&ids_hash), hash64_value(&text_hash)};
}

/* A line "i id id ...": document i has these ids. */
static void check_document(struct encoder *c, const char *name, char *line)
{
    struct str s = {0};
    struct tokens ids = {0};
    char *at;
    uint32_t i = (uint32_t)strtoul(line, &at, 10);
    hard_document(&s, i);
    encode(c, &s, s.n + 1, &ids);
    for (int64_t k = 0; k < ids.n; k++) {
        char *end;
        long id = strtol(at, &end, 10);
        if (end == at || id != ids.ids[k])
            fail_msg("%s: document %u: id %lld is %d, wanted %ld: \"%s\"", name, i, (long long)k, ids.ids[k],
                     end == at ? -1 : id, str_text(&s));
        at = end;
    }
    while (*at == ' ') at++;
    if (*at) fail_msg("%s: document %u: after %lld ids more are wanted: %s", name, i, (long long)ids.n, at);
    str_free(&s);
    tokens_free(&ids);
}

static void test_reference(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct tokenizer *t = open_kind(kinds[k].name);
        struct encoder *c = encoder_new(t);
        char path[400], *results, *save;
        size_t n;
        struct err e;
        snprintf(path, sizeof path, TEST_DIR "/data/kinds/%s.results", kinds[k].name);
        assert_ok(fs_read_all(path, 1 << 24, &results, &n, &e), &e);
        char *after = results;
        for (int chunk = 0; chunk < N_CHUNKS; chunk++) after = strchr(after, '\n') + 1;
        char *rows = xstrdup(after);
        int documents = 0;
        for (char *line = strtok_r(rows, "\n", &save); line; line = strtok_r(NULL, "\n", &save), documents++)
            check_document(c, kinds[k].name, line);
        assert_true(documents >= 40);
        xfree(rows);
        char *line = results;
        for (uint32_t chunk = 0; chunk < N_CHUNKS; chunk++, line = strchr(line, '\n') + 1) {
            unsigned long long ids, texts;
            if (chunk % (4 * CASE_STRIDE - 3) || !drawn_here(chunk / (4 * CASE_STRIDE - 3), 2)) continue;
            assert_int_equal(sscanf(line, "%llx %llx", &ids, &texts), 2);
            struct digest got = digest_of(t, c, kinds[k].keeps, chunk * CHUNK);
            if (got.ids != ids)
                fail_msg("%s: documents %u..: other ids than the reference", kinds[k].name, chunk * CHUNK);
            if (got.texts != texts)
                fail_msg("%s: documents %u..: other texts than the reference", kinds[k].name, chunk * CHUNK);
        }
        xfree(results);
        encoder_free(c);
        tokenizer_free(t);
    }
}

static void test_parts_do_not_matter(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct tokenizer *t = open_kind(kinds[k].name);
        struct encoder *c = encoder_new(t);
        struct str s = {0}, whole = {0}, shown = {0}, joined = {0};
        struct tokens ids = {0}, parts = {0};
        for (uint32_t i = 0; i < 500; i += CASE_STRIDE) {
            if (!drawn_here(i / CASE_STRIDE, 3)) continue; /* every day a third of them */
            hard_document(&joined, i);
            hard_document(&s, i + 1);
            str_add(&joined, str_text(&s), s.n);
            encode(c, &joined, joined.n + 1, &ids);
            encode(c, &joined, 1 + i % 9, &parts);
            bool same = ids.n == parts.n;
            same = same && (!ids.n || !memcmp(ids.ids, parts.ids, (size_t)ids.n * sizeof *ids.ids));
            if (!same) fail_msg("%s: document %u: other ids in parts of %u", kinds[k].name, i, 1 + i % 9);
            str_clear(&whole);
            tokenizer_decode(t, ids.ids, ids.n, true, &whole);
            /* In the reference too a meta symbol in the text is a space afterwards, and text behind an added token gets
             * one. */
            bool meta = t->kind != TOKENIZER_BPE && strstr(str_text(&joined), "\xE2\x96\x81");
            for (int64_t n = 0; n < ids.n && t->kind != TOKENIZER_BPE; n++)
                meta = meta || tokenizer_is_special(t, ids.ids[n]);
            if (kinds[k].lossless && !meta &&
                (whole.n != joined.n || memcmp(str_text(&whole), str_text(&joined), whole.n)))
                fail_msg("%s: document %u does not come back: \"%s\" as \"%s\"", kinds[k].name, i, str_text(&joined),
                         str_text(&whole));
            struct decoder d = {.t = t, .with_special = true};
            str_clear(&shown);
            for (int64_t n = 0; n < ids.n; n++) decoder_push(&d, ids.ids[n], &shown);
            decoder_end(&d, &shown);
            bool valid = utf8_run((const unsigned char *)str_text(&whole), whole.n) == whole.n;
            if (valid && (shown.n != whole.n || memcmp(str_text(&shown), str_text(&whole), whole.n)))
                fail_msg("%s: document %u: shown as \"%s\", decoded as \"%s\"", kinds[k].name, i, str_text(&shown),
                         str_text(&whole));
        }
        str_free(&s);
        str_free(&whole);
        str_free(&shown);
        str_free(&joined);
        tokens_free(&ids);
        tokens_free(&parts);
        encoder_free(c);
        tokenizer_free(t);
    }
}

/* A long text without a place to cut: time and memory stay in bounds, parts do not matter. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const fill[] = {"a", " ", "\xE4\xBD\xA0", "\xCC\x81", "\xE2\x96\x81", "\n", "\xFF", "ab "};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct tokenizer *t = open_kind(kinds[k].name);
        struct encoder *c = encoder_new(t);
        for (size_t f = 0; f < sizeof fill / sizeof *fill; f += CASE_STRIDE) {
            struct str s = {0};
            struct tokens whole = {0}, parts = {0};
            str_puts(&s, "x ");
            while (s.n < 100000) str_puts(&s, fill[f]);
            encode(c, &s, s.n + 1, &whole);
            encode(c, &s, 65000, &parts);
            if (whole.n != parts.n || memcmp(whole.ids, parts.ids, (size_t)whole.n * sizeof *whole.ids))
                fail_msg("%s: a run of \"%s\": other ids in parts", kinds[k].name, fill[f]);
            str_free(&s);
            tokens_free(&whole);
            tokens_free(&parts);
        }
        encoder_free(c);
        tokenizer_free(t);
    }
}

static int write_documents(void)
{
    struct str s = {0};
    for (uint32_t i = 0; i < N_DOCUMENTS; i++) {
        hard_document(&s, i);
        for (int b = 0; b < 4; b++) putchar((int)(s.n >> 8 * b & 0xFF));
        fwrite(str_text(&s), 1, s.n, stdout);
    }
    str_free(&s);
    return 0;
}

static int write_ids(const char *path)
{
    struct tokenizer *t;
    struct err e;
    struct str s = {0};
    struct tokens ids = {0};
    if (tokenizer_open(&t, path, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    struct encoder *c = encoder_new(t);
    for (uint32_t i = 0; i < N_DOCUMENTS; i++) {
        hard_document(&s, i);
        ids.n = 0;
        if (encoder_feed(c, str_text(&s), s.n, &ids, &e) || encoder_end(c, &ids, &e)) return 1;
        for (int64_t k = 0; k < ids.n; k++) printf("%d ", ids.ids[k]);
        putchar('\n');
    }
    encoder_free(c);
    tokens_free(&ids);
    str_free(&s);
    tokenizer_free(t);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "documents")) return write_documents();
    if (argc == 3 && !strcmp(argv[1], "encode")) return write_ids(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_parts_do_not_matter),
        cmocka_unit_test(test_long_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
