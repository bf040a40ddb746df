/* SPDX-License-Identifier: Apache-2.0 */
/* Languages: the shipped model on sentences of many, a trained one on what it has not seen, short and empty texts.
 * Quality: made documents of two kinds, held-out accuracy and calibration, the same bits from the same files. Model
 * files that are damaged at every byte. */
#include "data/data_test.h"

#include <math.h>

#include "curate/language.h"
#include "curate/model_file.h"
#include "curate/quality.h"
#include "sanitized.h"

/* Written for this test. */
static const struct {
    const char *label, *text;
} sentences[] = {
    {"en", "Yesterday we walked along the river and talked about the weather until it was dark."},
    {"de", "Gestern gingen wir am Fluss entlang und redeten \xC3\xBC"
           "ber das Wetter, bis es dunkel wurde."},
    {"fr",
     "Hier nous avons march\xC3\xA9 le long de la rivi\xC3\xA8re et parl\xC3\xA9 du temps jusqu'\xC3\xA0 la nuit."},
    {"es", "Ayer caminamos por la orilla del r\xC3\xADo y hablamos del tiempo hasta que se hizo de noche."},
    {"it", "Ieri abbiamo camminato lungo il fiume e parlato del tempo fino a quando era buio."},
    {"pt", "Ontem n\xC3\xB3s caminhamos ao longo do rio e conversamos sobre o tempo at\xC3\xA9 escurecer."},
    {"nl", "Gisteren liepen we langs de rivier en praatten we over het weer tot het donker werd."},
    {"sv", "I g\xC3\xA5r gick vi l\xC3\xA4ngs floden och pratade om v\xC3\xA4"
           "dret tills det blev m\xC3\xB6rkt."},
    {"fi", "Eilen k\xC3\xA4velimme joen rantaa pitkin ja puhuimme s\xC3\xA4\xC3\xA4st\xC3\xA4, kunnes tuli "
           "pime\xC3\xA4\xC3\xA4."},
    {"pl", "Wczoraj szli\xC5\x9Bmy wzd\xC5\x82u\xC5\xBC rzeki i rozmawiali\xC5\x9Bmy o pogodzie, a\xC5\xBC "
           "zrobi\xC5\x82o si\xC4\x99 ciemno."},
    {"cs", "V\xC4\x8D"
           "era jsme \xC5\xA1li pod\xC3\xA9l \xC5\x99"
           "eky a pov\xC3\xAD"
           "dali si o po\xC4\x8D"
           "as\xC3\xAD, dokud se nesetm\xC4\x9Blo."},
    {"hu", "Tegnap a foly\xC3\xB3 mentn s\xC3\xA9t\xC3\xA1ltunk, \xC3\xA9s az id\xC5\x91j\xC3\xA1r\xC3\xA1sr\xC3\xB3l "
           "besz\xC3\xA9lgett\xC3\xBCnk, am\xC3\xADg be nem s\xC3\xB6t\xC3\xA9tedett."},
    {"tr", "D\xC3\xBCn nehir boyunca y\xC3\xBCr\xC3\xBC"
           "d\xC3\xBCk ve hava kararana kadar havadan konu\xC5\x9Ftuk."},
    {"ro", "Ieri am mers de-a lungul r\xC3\xA2ului \xC8\x99i am vorbit despre vreme p\xC3\xA2n\xC4\x83 s-a "
           "\xC3\xAEntunecat."},
    {"ru", "\xD0\x92\xD1\x87\xD0\xB5\xD1\x80\xD0\xB0 \xD0\xBC\xD1\x8B \xD0\xB3\xD1\x83\xD0\xBB\xD1\x8F\xD0\xBB\xD0\xB8 "
           "\xD0\xB2\xD0\xB4\xD0\xBE\xD0\xBB\xD1\x8C \xD1\x80\xD0\xB5\xD0\xBA\xD0\xB8 \xD0\xB8 "
           "\xD0\xB3\xD0\xBE\xD0\xB2\xD0\xBE\xD1\x80\xD0\xB8\xD0\xBB\xD0\xB8 \xD0\xBE "
           "\xD0\xBF\xD0\xBE\xD0\xB3\xD0\xBE\xD0\xB4\xD0\xB5, \xD0\xBF\xD0\xBE\xD0\xBA\xD0\xB0 \xD0\xBD\xD0\xB5 "
           "\xD1\x81\xD1\x82\xD0\xB5\xD0\xBC\xD0\xBD\xD0\xB5\xD0\xBB\xD0\xBE."},
    {"uk", "\xD0\xA3\xD1\x87\xD0\xBE\xD1\x80\xD0\xB0 \xD0\xBC\xD0\xB8 \xD0\xB3\xD1\x83\xD0\xBB\xD1\x8F\xD0\xBB\xD0\xB8 "
           "\xD0\xB2\xD0\xB7\xD0\xB4\xD0\xBE\xD0\xB2\xD0\xB6 \xD1\x80\xD1\x96\xD1\x87\xD0\xBA\xD0\xB8 \xD1\x82\xD0\xB0 "
           "\xD0\xB3\xD0\xBE\xD0\xB2\xD0\xBE\xD1\x80\xD0\xB8\xD0\xBB\xD0\xB8 \xD0\xBF\xD1\x80\xD0\xBE "
           "\xD0\xBF\xD0\xBE\xD0\xB3\xD0\xBE\xD0\xB4\xD1\x83."},
    {"el", "\xCE\xA7\xCE\xB8\xCE\xB5\xCF\x82 "
           "\xCF\x80\xCE\xB5\xCF\x81\xCF\x80\xCE\xB1\xCF\x84\xCE\xAE\xCF\x83\xCE\xB1\xCE\xBC\xCE\xB5 "
           "\xCE\xB4\xCE\xAF\xCF\x80\xCE\xBB\xCE\xB1 \xCF\x83\xCF\x84\xCE\xBF "
           "\xCF\x80\xCE\xBF\xCF\x84\xCE\xAC\xCE\xBC\xCE\xB9."},
    {"ja", "\xE6\x98\xA8\xE6\x97\xA5\xE3\x80\x81\xE7\xA7\x81\xE3\x81\x9F\xE3\x81\xA1\xE3\x81\xAF\xE5\xB7\x9D\xE3\x81"
           "\xAB\xE6\xB2\xBF\xE3\x81\xA3\xE3\x81\xA6\xE6\xAD\xA9\xE3\x81\x84\xE3\x81\xA6\xE8\xA9\xB1\xE3\x81\x97\xE3"
           "\x81\xBE\xE3\x81\x97\xE3\x81\x9F\xE3\x80\x82"},
    {"zh", "\xE6\x98\xA8\xE5\xA4\xA9\xE6\x88\x91\xE4\xBB\xAC\xE6\xB2\xBF\xE7\x9D\x80\xE6\xB2\xB3\xE8\xB5\xB0\xE8\xB7"
           "\xAF\xEF\xBC\x8C\xE4\xB8\x80\xE7\x9B\xB4\xE8\xB0\x88\xE5\x88\xB0\xE5\xA4\xA9\xE9\xBB\x91\xE3\x80\x82"},
    {"ko", "\xEC\x96\xB4\xEC\xA0\x9C \xEC\x9A\xB0\xEB\xA6\xAC\xEB\x8A\x94 \xEA\xB0\x95\xEC\x9D\x84 "
           "\xEB\x94\xB0\xEB\x9D\xBC \xEA\xB1\xB8\xEC\x97\x88\xEC\x8A\xB5\xEB\x8B\x88\xEB\x8B\xA4."},
};

static void test_shipped(void **state)
{
    (void)state;
    struct language_model *m = language_shipped();
    size_t n = sizeof sentences / sizeof *sentences;
    double sum = 0;
    assert_true(language_n_labels(m) > 40);
    for (size_t i = 0; i < n; i++) {
        struct language_guess g = language_of(m, sentences[i].text, strlen(sentences[i].text));
        const char *said = g.label < 0 ? "none" : language_label(m, g.label);
        sum += g.probability;
        if (strcmp(said, sentences[i].label) != 0) fail_msg("%s (%.2f) for %s", said, g.probability, sentences[i].text);
    }
    assert_true(sum / (double)n > 0.8);
    struct language_guess g = language_of(m, "", 0);
    assert_int_equal(g.label, -1);
    assert_true(g.probability == 0);
    g = language_of(m, "1234 -- 5678 ...", 16);
    assert_int_equal(g.label, -1);
    assert_true(language_of(m, "a", 1).probability < 0.5); /* which may be anything */
    assert_int_equal(language_find(m, "xx"), -1);
    language_free(m);
}

/* Two made languages: words of the same letters in other frequencies. */
static void made_line(struct str *out, int which, uint64_t *s)
{
    static const char *const parts[2][6] = {{"ka", "lo", "mi", "ran", "te", "su"},
                                            {"ak", "ol", "im", "nar", "et", "us"}};
    for (int w = 0, n = 4 + (int)(dice(s) % 6); w < n; w++) {
        if (w) str_putc(out, ' ');
        for (int k = 0, m = 1 + (int)(dice(s) % 3); k < m; k++) str_puts(out, parts[which][dice(s) % 6]);
    }
    str_putc(out, '\n');
}

static void train_two(struct str *out, struct language_result *r)
{
    static const char *const labels[] = {"aa", "bb"};
    struct language_trainer *t = language_trainer_new(2, labels);
    struct err e;
    uint64_t s = 5;
    for (int i = 0; i < 600; i++) {
        struct str line = {0};
        made_line(&line, i / 150 % 2, &s); /* each twice, in turn */
        language_trainer_feed(t, i / 150 % 2, line.p, line.n);
        str_free(&line);
    }
    assert_ok(language_trainer_finish(t, 200, out, r, &e), &e);
    language_trainer_free(t);
}

static void test_trained_language(void **state)
{
    (void)state;
    struct str a = {0}, b = {0};
    struct language_result r;
    struct language_model *m;
    struct err e;
    train_two(&a, &r);
    assert_true(r.held_out > 20 && r.held_out < 120 && r.right >= r.held_out - 1);
    assert_int_equal(r.lines, 600);
    train_two(&b, &r);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, a.n);
    assert_ok(language_parse(&m, a.p, a.n, "a", &e), &e);
    uint64_t s = 99;
    for (int i = 0; i < 100; i++) {
        struct str line = {0};
        made_line(&line, i % 2, &s);
        struct language_guess g = language_of(m, line.p, line.n);
        assert_int_equal(g.label, i % 2);
        str_free(&line);
    }
    language_free(m);
    static const char *const labels[] = {"aa", "bb"};
    struct language_trainer *t = language_trainer_new(2, labels);
    language_trainer_feed(t, 0, "only one", 8);
    str_clear(&b);
    assert_err(language_trainer_finish(t, 100, &b, &r, &e), &e, ERR_REQUEST, "--label bb");
    language_trainer_free(t);
    str_free(&a);
    str_free(&b);
}

/* ---- quality ---- */

/* Words of two kinds that overlap: a good text has seven good ones in ten, a bad one three; `noise` of them is labelled
 * otherwise, so that the right probability is known. */
static void made_document(struct str *out, bool good, uint64_t *s)
{
    for (int w = 0; w < 12; w++) {
        bool word = dice(s) % 10 < (good ? 7 : 3);
        str_printf(out, "%s%u ", word ? "fine" : "poor", dice(s) % 30);
    }
}

static void train_quality(struct str *out, struct quality_result *r, int n)
{
    struct quality_trainer *t = quality_trainer_new(2, 14, 5000);
    struct document d = {.n_chars = -1};
    struct err e;
    uint64_t s = 3;
    for (int i = 0; i < n; i++) {
        struct str text = {0};
        made_document(&text, i % 2, &s);
        document_set(&d, text.p, text.n, &(struct origin){.source = ""});
        quality_trainer_feed(t, dice(&s) % 10 ? i % 2 : !(i % 2), &d);
        str_free(&text);
    }
    assert_ok(quality_trainer_finish(t, 3, out, r, &e), &e);
    quality_trainer_free(t);
    document_free(&d);
}

static void test_quality(void **state)
{
    (void)state;
    struct str a = {0}, b = {0};
    struct quality_result r;
    struct quality_model *m;
    struct document d = {.n_chars = -1};
    struct err e;
    train_quality(&a, &r, 6000);
    assert_int_equal(r.positive + r.negative, 6000);
    assert_true(r.tested > 500 && r.tested < 700);
    /* Twelve draws of 7 or 3 in ten tell 92 of 100 rightly; with a tenth of wrong labels 0.84 is the most there is. */
    assert_true(r.accuracy > 0.79 && r.accuracy < 0.88);
    assert_true(r.area > 0.84 && r.calibration < 0.08 && r.log_loss < 0.5);
    train_quality(&b, &r, 6000);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.p, b.p, a.n);
    assert_ok(quality_parse(&m, a.p, a.n, "a", &e), &e);
    uint64_t s = 77;
    double mean[2] = {0, 0};
    for (int i = 0; i < 200; i++) {
        struct str text = {0};
        made_document(&text, i % 2, &s);
        document_set(&d, text.p, text.n, &(struct origin){.source = ""});
        mean[i % 2] += quality_of(m, &d) / 100;
        str_free(&text);
    }
    assert_true(mean[1] > 0.7 && mean[0] < 0.3);
    document_set(&d, "", 0, &(struct origin){.source = ""});
    double none = quality_of(m, &d);
    assert_true(none > 0 && none < 1);
    quality_free(m);
    struct quality_trainer *t = quality_trainer_new(2, 14, 5000);
    assert_err(quality_trainer_finish(t, 3, &b, &r, &e), &e, ERR_REQUEST, "too few texts");
    quality_trainer_free(t);
    document_free(&d);
    str_free(&a);
    str_free(&b);
}

static void test_files(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "m"), *text, *payload;
    struct str model = {0};
    struct language_result r;
    struct language_model *m;
    struct quality_model *q;
    struct err e;
    size_t n, got;
    train_two(&model, &r);
    assert_ok(model_file_write(path, MODEL_LANGUAGE, LANGUAGE_VERSION, &model, &e), &e);
    assert_ok(language_read(&m, path, &e), &e);
    language_free(m);
    assert_err(quality_read(&q, path, &e), &e, ERR_REQUEST, "another kind");
    assert_err(model_file_read(path, MODEL_LANGUAGE, 9, "a model", &payload, &got, &e), &e, ERR_REQUEST,
               "version 1|reads 9");
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &e), &e);
    for (size_t i = 0; i < n; i += i < 40 ? 1 : 7 * CASE_STRIDE) {
        text[i] ^= 16;
        xfree(put_file(dir, "bad", text, n));
        text[i] ^= 16;
        char *bad = fs_join(dir, "bad");
        if (!language_read(&m, bad, &e)) fail_msg("byte %zu was flipped and nobody saw it", i);
        xfree(put_file(dir, "bad", text, i));
        if (!language_read(&m, bad, &e)) fail_msg("cut at byte %zu and nobody saw it", i);
        xfree(bad);
    }
    xfree(text);
    str_free(&model);
    xfree(path);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped),
        cmocka_unit_test(test_trained_language),
        cmocka_unit_test(test_quality),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
