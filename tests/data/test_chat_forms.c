/* SPDX-License-Identifier: Apache-2.0 */
/* Records in the forms that data sets have: all of their text and what of it is trained, which are refused, and what of
 * a record nobody reads. */
#include "chat_read.h"

/* Records as data sets have them: all of the text, and what is trained; or the words of the refusal. */
static void test_forms(void **state)
{
    (void)state;
    static const struct {
        enum chat_side side;
        const char *record, *text, *trained; /* text NULL: trained are the words */
    } rows[] = {
        /* clang-format off */
        {CHAT_PLAIN, "{\"system\": \"S\", \"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}]}",
         "[system:S][user:q][assistant:x]", "x]|"},
        {CHAT_PLAIN, "{\"system\": \"S\", \"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"x\"}]}",
         "[system:S][user:q][assistant:x]", "x]|"},
        {CHAT_PLAIN, "{\"system\": \"S\", \"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}]}",
         "[system:S][user:q][assistant:x]", "x]|"},
        {CHAT_PLAIN, "{\"system\": \"S\", \"messages\": [{\"role\": \"system\", \"content\": \"T\"}, {\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}]}",
         NULL, "another text in a message of the system"},
        {CHAT_PLAIN, "{\"system\": 7, \"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}]}",
         NULL, "\"system\": wanted a text"},
        {CHAT_PLAIN, "{\"system\": \"S\", \"prompt\": \"q\", \"completion\": \"x\"}",
         NULL, "\"system\" beside two texts"},
        {CHAT_PLAIN, "{\"system\": \"\", \"prompt\": \"q\", \"completion\": \"x\"}",
         "qx", "x$|"},
        {CHAT_PLAIN, "{\"system\": \"S\", \"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"completion\": [{\"role\": \"assistant\", \"content\": \"x\"}]}",
         "[system:S][user:q][assistant:x]", "x]|"},
        {CHAT_PLAIN, "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"x\", \"weight\": 0}, {\"from\": \"human\", \"value\": \"r\"}, {\"from\": \"gpt\", \"value\": \"y\"}]}",
         "[user:q][assistant:x][user:r][assistant:y]", "y]|"},
        {CHAT_PLAIN, "{\"instruction\": \"i\", \"output\": \"x\", \"history\": [[\"q\", \"r\"]], \"system\": null}",
         "[user:q][assistant:r][user:i][assistant:x]", "r]|x]|"},
        {CHAT_PLAIN, "{\"instruction\": \"i\", \"output\": \"x\", \"history\": [[\"q\"]]}",
         NULL, "history[0]: wanted a list of two texts"},
        {CHAT_PLAIN, "{\"instruction\": \"i\", \"input\": 3, \"output\": \"x\"}",
         NULL, "\"input\": wanted a text"},
        {CHAT_CHOSEN, "{\"prompt\": \"q\", \"chosen\": \"x\", \"rejected\": \"y\"}",
         "qx", "x$|"},
        {CHAT_CHOSEN, "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"chosen\": [{\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"y\"}]}",
         "[user:q][assistant:x]", "x]|"},
        {CHAT_CHOSEN, "{\"prompt\": \"q\", \"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"y\"}], \"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"score_chosen\": 8.0}",
         "[user:q][assistant:x]", "x]|"},
        {CHAT_CHOSEN, "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}",
         "[user:q][assistant:x]", "x]|"},
        {CHAT_CHOSEN, "{\"chosen\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": \"o\"}, {\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": \"o\"}, {\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"y\"}], \"system\": \"S\"}",
         "[system:S][user:p][assistant:o][user:q][assistant:x]", "x]|"},
        {CHAT_CHOSEN, "{\"prompt\": \"q\", \"chosen\": [{\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"y\"}]}",
         "[user:q][assistant:x]", "x]|"},
        {CHAT_CHOSEN, "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"chosen\": \"x\", \"rejected\": \"y\"}",
         "[user:q][assistant:x]", "x]|"},
        {CHAT_CHOSEN, "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"chosen\": {\"role\": \"assistant\", \"content\": \"x\"}, \"rejected\": {\"role\": \"assistant\", \"content\": \"y\"}}",
         "[user:q][assistant:x]", "x]|"},
        {CHAT_CHOSEN, "{\"system\": \"S\", \"question\": \"q\", \"chosen\": \"x\", \"rejected\": \"y\"}",
         "[system:S][user:q][assistant:x]", "x]|"},
        {CHAT_CHOSEN, "{\"instruction\": \"i\", \"input\": \"q\", \"chosen\": \"x\", \"rejected\": \"y\"}",
         "[user:i\n\nq][assistant:x]", "x]|"},
        {CHAT_CHOSEN, "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}], \"chosen\": {\"from\": \"gpt\", \"value\": \"x\"}, \"rejected\": {\"from\": \"gpt\", \"value\": \"y\"}}",
         "[user:q][assistant:x]", "x]|"},
        {CHAT_CHOSEN, "{\"chosen\": \"\\n\\nHuman: q\\n\\nAssistant: x\", \"rejected\": \"\\n\\nHuman: q\\n\\nAssistant: y\"}",
         "\n\nHuman: q\n\nAssistant: x", " x$|"},
        {CHAT_REJECTED, "{\"prompt\": \"q\", \"chosen\": \"x\", \"rejected\": \"y\"}",
         "qy", "y$|"},
        {CHAT_REJECTED, "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"chosen\": [{\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"y\"}]}",
         "[user:q][assistant:y]", "y]|"},
        {CHAT_REJECTED, "{\"prompt\": \"q\", \"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"y\"}], \"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"score_chosen\": 8.0}",
         "[user:q][assistant:y]", "y]|"},
        {CHAT_REJECTED, "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}",
         "[user:q][assistant:y]", "y]|"},
        {CHAT_REJECTED, "{\"chosen\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": \"o\"}, {\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": \"o\"}, {\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"y\"}], \"system\": \"S\"}",
         "[system:S][user:p][assistant:o][user:q][assistant:y]", "y]|"},
        {CHAT_REJECTED, "{\"prompt\": \"q\", \"chosen\": [{\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": \"y\"}]}",
         "[user:q][assistant:y]", "y]|"},
        {CHAT_REJECTED, "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"chosen\": \"x\", \"rejected\": \"y\"}",
         "[user:q][assistant:y]", "y]|"},
        {CHAT_REJECTED, "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"chosen\": {\"role\": \"assistant\", \"content\": \"x\"}, \"rejected\": {\"role\": \"assistant\", \"content\": \"y\"}}",
         "[user:q][assistant:y]", "y]|"},
        {CHAT_REJECTED, "{\"system\": \"S\", \"question\": \"q\", \"chosen\": \"x\", \"rejected\": \"y\"}",
         "[system:S][user:q][assistant:y]", "y]|"},
        {CHAT_REJECTED, "{\"instruction\": \"i\", \"input\": \"q\", \"chosen\": \"x\", \"rejected\": \"y\"}",
         "[user:i\n\nq][assistant:y]", "y]|"},
        {CHAT_REJECTED, "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}], \"chosen\": {\"from\": \"gpt\", \"value\": \"x\"}, \"rejected\": {\"from\": \"gpt\", \"value\": \"y\"}}",
         "[user:q][assistant:y]", "y]|"},
        {CHAT_REJECTED, "{\"chosen\": \"\\n\\nHuman: q\\n\\nAssistant: x\", \"rejected\": \"\\n\\nHuman: q\\n\\nAssistant: y\"}",
         "\n\nHuman: q\n\nAssistant: y", " y$|"},
        {CHAT_CHOSEN, "{\"prompt\": \"z\", \"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}",
         NULL, "about another prompt"},
        {CHAT_CHOSEN, "{\"prompt\": [{\"role\": \"user\", \"content\": \"z\"}, {\"role\": \"user\", \"content\": \"q\"}], \"chosen\": [{\"role\": \"user\", \"content\": \"z\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"z\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}",
         NULL, "about another prompt"},
        {CHAT_CHOSEN, "{\"prompt\": \"q\", \"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"p\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}",
         NULL, "about another prompt"},
        {CHAT_CHOSEN, "{\"chosen\": \"\\n\\nHuman: q\\n\\nAssistant: x\", \"rejected\": \"\\n\\nHuman: r\\n\\nAssistant: y\"}",
         NULL, "without a prompt"},
        {CHAT_CHOSEN, "{\"chosen\": \"x\", \"rejected\": \"y\"}",
         NULL, "without a prompt"},
        {CHAT_CHOSEN, "{\"chosen\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": [{\"role\": \"user\", \"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"y\"}]}",
         NULL, "differ before their last messages"},
        {CHAT_CHOSEN, "{\"prompt\": \"q\", \"chosen\": \"x\", \"rejected\": [{\"role\": \"assistant\", \"content\": \"y\"}]}",
         NULL, "wanted a record with"},
        {CHAT_CHOSEN, "{\"prompt\": 3, \"chosen\": \"x\", \"rejected\": \"y\"}",
         NULL, "wanted a record with"},
        {CHAT_CHOSEN, "{\"prompt\": \"q\", \"chosen\": \"\", \"rejected\": \"y\"}",
         NULL, "an empty prompt, chosen or rejected"},
        {CHAT_CHOSEN, "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"chosen\": [{\"role\": \"assistant\", \"content\": \"x\"}], \"rejected\": []}",
         NULL, "wanted a record with"},
        /* clang-format on */
    };
    static const char template[] = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
                                   "{{ '[assistant:' if add_generation_prompt }}";
    struct tokenizer *t = tokenizer_new_byte();
    char *dir = scratch_new(), *path = put_text(dir, "forms.jinja", template);
    struct chat *c[3];
    struct err e;
    for (int side = 0; side < 3; side++)
        assert_ok(chat_open(&c[side], &(struct chat_rules){.template_name = path, .side = (enum chat_side)side}, t, &e),
                  &e);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].text) {
            refused(c[rows[i].side], rows[i].record, ERR_CORRUPT, rows[i].trained);
            continue;
        }
        struct chat_tokens x = encode(c[rows[i].side], rows[i].record);
        struct str all = text_of(t, &x, false), trained = text_of(t, &x, true);
        if (strcmp(str_text(&all), rows[i].text) || strcmp(str_text(&trained), rows[i].trained))
            fail_msg("%s: \"%s\", trained \"%s\"", rows[i].record, str_text(&all), str_text(&trained));
        str_free(&all);
        str_free(&trained);
        chat_tokens_free(&x);
    }
    /* What nobody reads is named: members that neither the form nor the template knows, in messages too. */
    struct chat_tokens x =
        encode(c[0], "{\"id\": 7, \"messages\": [{\"role\": \"user\", \"content\": \"q\", \"name\": "
                     "\"n\", \"empty\": []}, {\"role\": \"assistant\", \"content\": \"x\"}], \"none\": "
                     "null, \"prompt\": \"q\", \"output\": \"o\"}");
    assert_int_equal(x.unread.n, sizeof "id\0output\0messages.name");
    assert_memory_equal(x.unread.p, "id\0output\0messages.name", x.unread.n);
    chat_tokens_free(&x);
    for (int side = 0; side < 3; side++) chat_close(c[side]);
    xfree(path);
    scratch_free(dir);
    tokenizer_free(t);
}

/* Two texts that no template writes begin as any text does; what a template writes begins as it says. */
static void test_what_stands_before(void **state)
{
    (void)state;
    static const char two[] = "{\"prompt\": \"a b\", \"completion\": \" c d\"}",
                      three[] = "{\"prompt\": \"a b\", \"chosen\": \" c d\", \"rejected\": \" d\"}",
                      talk[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                               "\"content\": \"b\"}]}";
    struct tokenizer *t;
    struct err e;
    assert_ok(tokenizer_open(&t, FIXTURE("llama3.json"), &e), &e);
    const struct tokens *begin = tokenizer_begin(t);
    assert_int_equal(begin->n, 1);
    for (int on = CHAT_ANSWERS; on <= CHAT_ALL; on++)
        for (int side = CHAT_PLAIN; side <= CHAT_REJECTED; side++) {
            struct chat *c;
            struct chat_rules rules = {.template_name = "plain", .train_on = (enum chat_train_on)on};
            rules.side = (enum chat_side)side;
            assert_ok(chat_open(&c, &rules, t, &e), &e);
            struct chat_tokens x = encode(c, side == CHAT_PLAIN ? two : three);
            struct str s = text_of(t, &x, false);
            assert_string_equal(str_text(&s),
                                side == CHAT_REJECTED ? "<|begin_of_text|>a b d" : "<|begin_of_text|>a b c d");
            assert_int_equal(x.ids.ids[0], begin->ids[0]);
            assert_int_equal(x.trained[0], on == CHAT_ALL);
            chat_tokens_free(&x);
            str_free(&s);
            if (side == CHAT_PLAIN) {
                x = encode(c, talk);
                assert_int_not_equal(x.ids.ids[0], begin->ids[0]);
                chat_tokens_free(&x);
            }
            chat_close(c);
        }
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_what_stands_before)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
