/* SPDX-License-Identifier: Apache-2.0 */
/* Every member that a request may have, sent alone: what the table calls done changes the answer, what it calls idle
 * does not, what it refuses is refused by its name, and so is whatever it has not. The list of members that there are
 * is members.txt, of OpenAI's own client and of vLLM; each must have a row. */
#include "serve/house.h"

#include "base/json.h"
#include "serve/api_members.h"

#define TEMPLATE                                                                                                       \
    "{% for m in messages %}{{ m.content or '-' }}{{ m.name or '' }}{% if m.tool_calls %}<{{ m.tool_calls | length "   \
    "}}>"                                                                                                              \
    "{% endif %}{{ m.tool_call_id or '' }} {% endfor %}{% if tools %}7{% endif %}{% if documents %}8{% endif %}"       \
    "{% if enable_thinking %}9{% endif %}{{ reasoning_effort or '' }}{% if add_generation_prompt %}: {% endif %}"

/* ---- a request ---- */

struct member {
    const char *name, *value; /* value NULL: it is not sent */
};
static const struct member text_base[] = {{"prompt", "\"0123456789 0123456789\""},
                                          {"max_tokens", "16"},
                                          {"temperature", "1.5"},
                                          {"seed", "1"}},
                           chat_base[] = {{"messages", "[{\"role\":\"user\",\"content\":\"0123456789\"}]"},
                                          {"max_tokens", "16"},
                                          {"temperature", "1.5"},
                                          {"seed", "1"}};

/* The base with members of its own replaced, `also` and one more: its status, and *body is what came. */
static int ask_body(const struct house *h, enum api_kind kind, const char *also, const char *name, const char *value,
                    char **body)
{
    const struct member *base = kind == API_CHAT ? chat_base : text_base;
    struct str s = {0};
    int status;
    for (int i = 0; i < 4; i++)
        if (!name || strcmp(base[i].name, name) != 0)
            str_printf(&s, "%c\"%s\":%s", s.n ? ',' : '{', base[i].name, base[i].value);
    if (also) str_printf(&s, ",%s", also);
    if (name) str_printf(&s, ",\"%s\":%s", name, value);
    str_puts(&s, "}");
    *body =
        ask_with(h, "POST", kind == API_CHAT ? "/v1/chat/completions" : "/v1/completions", "", str_text(&s), &status);
    str_free(&s);
    return status;
}

/* What of an answer is the model's: without its name and the time. */
static const char *answer_in(const char *body)
{
    const char *at = strstr(body, "\"choices\"");
    return at ? at : body;
}

/* Whether a request with the member is answered, and as one without it. */
static bool same_answer(const struct house *h, enum api_kind kind, const char *also, const char *name,
                        const char *value)
{
    char *without, *with;
    int a = ask_body(h, kind, also, NULL, NULL, &without), b = ask_body(h, kind, also, name, value, &with);
    if (a != 200 || b != 200) fail_msg("%s = %s: %d and %d: %s", name, value, a, b, with);
    /* cached_tokens are no answer */
    char *ends[] = {strstr(without, "\"prompt_tokens_details\""), strstr(with, "\"prompt_tokens_details\"")};
    for (int i = 0; i < 2; i++)
        if (ends[i]) *ends[i] = 0;
    bool same = !strcmp(answer_in(without), answer_in(with));
    xfree(without);
    xfree(with);
    return same;
}

static void expect_refused(const struct house *h, enum api_kind kind, const char *name, const char *value)
{
    char *body, wanted[120];
    int status = ask_body(h, kind, NULL, name, value, &body);
    snprintf(wanted, sizeof wanted, "\"message\":\"%s", name);
    if (status != 400 || !strstr(body, wanted)) fail_msg("%s = %s: %d: %s", name, value, status, body);
    xfree(body);
}

/* ---- what is done ---- */

#define HALF                                                                                                           \
    "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38"
static const struct {
    const char *name, *also, *value; /* value NULL: see why */
    enum api_kind of;
    const char *why;
} done[] = {
    {"model", NULL, NULL, API_BOTH, "test_models asks"},
    {"prompt", NULL, "\"5\"", API_TEXT, NULL},
    {"messages", NULL, "[{\"role\":\"user\",\"content\":\"5\"}]", API_CHAT, NULL},
    {"tools", NULL, "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", API_CHAT, NULL},
    {"documents", NULL, "[{\"title\":\"1\",\"text\":\"2\"}]", API_CHAT, NULL},
    {"chat_template_kwargs", NULL, "{\"enable_thinking\":true}", API_CHAT, NULL},
    {"reasoning_effort", NULL, "\"1\"", API_CHAT, NULL},
    {"add_generation_prompt", NULL, "false", API_CHAT, NULL},
    {"continue_final_message", NULL, "true", API_CHAT, NULL},
    {"max_tokens", NULL, "3", API_BOTH, NULL},
    {"max_completion_tokens", NULL, "3", API_BOTH, NULL},
    {"min_tokens", "\"stop_token_ids\":[" HALF "]", "14", API_BOTH, NULL},
    {"temperature", NULL, "0", API_BOTH, NULL},
    {"top_p", NULL, "0.01", API_BOTH, NULL},
    {"top_k", NULL, "1", API_BOTH, NULL},
    {"min_p", NULL, "1", API_BOTH, NULL},
    {"presence_penalty", NULL, "2", API_BOTH, NULL},
    {"frequency_penalty", NULL, "2", API_BOTH, NULL},
    {"repetition_penalty", NULL, "50", API_BOTH, NULL},
    {"logit_bias", NULL, "{\"5\":100}", API_BOTH, NULL},
    {"seed", NULL, "2", API_BOTH, NULL},
    {"n", NULL, "2", API_BOTH, NULL},
    {"stop", NULL, "[\"0\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\" \",\":\",\"-\"]", API_BOTH, NULL},
    {"stop_token_ids", NULL, "[" HALF "]", API_BOTH, NULL},
    {"ignore_eos", NULL, NULL, API_BOTH, "the model of this test has no end of a text; decode/test_batching asks"},
    {"logprobs", NULL, "1", API_TEXT, NULL},
    {"logprobs", NULL, "true", API_CHAT, NULL},
    {"top_logprobs", "\"logprobs\":true", "2", API_CHAT, NULL},
    {"echo", NULL, "true", API_TEXT, NULL},
    {"stream", NULL, "true", API_BOTH, NULL},
    {"stream_options", "\"stream\":true", "{\"include_usage\":true}", API_BOTH, NULL},
};

static void expect_done(const struct house *h, enum api_kind kind, const char *name)
{
    bool known = false;
    for (size_t i = 0; i < sizeof done / sizeof *done; i++) {
        if (strcmp(done[i].name, name) != 0 || !(done[i].of & kind)) continue;
        known = true;
        if (done[i].value && same_answer(h, kind, done[i].also, name, done[i].value))
            fail_msg("%s = %s changes nothing", name, done[i].value);
    }
    if (!known) fail_msg("%s is said to be done, and nothing here asks for it", name);
}

static void expect_neutral(const struct house *h, enum api_kind kind, const struct api_member *m)
{
    char word[40];
    for (const char *at = m->neutral ? m->neutral : ""; *at; at += strlen(word) + (at[strlen(word)] == ' ')) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
        if (!same_answer(h, kind, NULL, m->name, word)) fail_msg("%s = %s changes the answer", m->name, word);
    }
}

static void test_each_alone(void **state)
{
    (void)state;
    struct house h;
    open_house_by(&h, &(struct house_rules){.template = TEMPLATE, .queue = 50});
    for (enum api_kind kind = API_TEXT; kind <= API_CHAT; kind++)
        for (int i = 0; i < api_n_members; i++) {
            const struct api_member *m = &api_members[i];
            if (!(m->of & kind)) continue;
            if (m->fate == MEMBER_DONE) expect_done(&h, kind, m->name);
            if (m->fate == MEMBER_IDLE && !same_answer(&h, kind, NULL, m->name, "\"x\""))
                fail_msg("%s changes the answer", m->name);
            if (m->fate == MEMBER_REFUSED) expect_refused(&h, kind, m->name, "{\"a\":1}");
            expect_neutral(&h, kind, m);
            bool needed = !strcmp(m->name, "prompt") || !strcmp(m->name, "messages");
            bool base = !strcmp(m->name, "max_tokens") || !strcmp(m->name, "temperature") || !strcmp(m->name, "seed");
            if (!needed && !base && !same_answer(&h, kind, NULL, m->name, "null"))
                fail_msg("%s = null changes the answer", m->name);
        }
    static const char *const unknown[] = {"tempreature", "max_new_tokens", "repeat_penalty", "Temperature", "",
                                          "x\\u0000"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char *body;
        if (ask_body(&h, API_TEXT, NULL, unknown[i], "1", &body) != 400 || !strstr(body, "is no member"))
            fail_msg("%s: %s", unknown[i], body);
        xfree(body);
    }
    char *body;
    ask_body(&h, API_CHAT, NULL, "tempreature", "1", &body);
    assert_non_null(strstr(body, "did you mean temperature?"));
    xfree(body);
    close_house(&h);
}

/* members.txt: "chat NAME" or "text NAME" a line. */
static void test_list(void **state)
{
    (void)state;
    char line[200], kind[8], name[100];
    int n = 0;
    FILE *f = fopen(TEST_DIR "/serve/members.txt", "r");
    if (!f) fail_msg("members.txt cannot be opened");
    while (fgets(line, sizeof line, f)) {
        if (*line == '#') continue;
        assert_int_equal(sscanf(line, "%7s %99s", kind, name), 2);
        enum api_kind of = !strcmp(kind, "chat") ? API_CHAT : API_TEXT;
        int rows = 0;
        for (int i = 0; i < api_n_members; i++) rows += api_members[i].of & of && !strcmp(api_members[i].name, name);
        if (rows != 1) fail_msg("%s of a %s request has %d rows in the table", name, kind, rows);
        n++;
    }
    fclose(f);
    assert_true(n > 100);
}

/* ---- messages ---- */

#define CALL "{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"

static int64_t prompt_tokens(const struct house *h, const char *also, const char *messages)
{
    char *body, *at;
    if (ask_body(h, API_CHAT, also, "messages", messages, &body) != 200) fail_msg("%s: %s", messages, body);
    at = strstr(body, "\"prompt_tokens\":");
    assert_non_null(at);
    int64_t n = atoll(at + 16);
    xfree(body);
    return n;
}

static void test_messages(void **state)
{
    (void)state;
    struct house h;
    open_house_by(&h, &(struct house_rules){.template = TEMPLATE, .queue = 50});
    static const struct {
        const char *messages, *also, *text; /* that the template makes of them */
    } good[] = {
        {"[{\"role\":\"user\",\"content\":\"12\"}]", NULL, "12 : "},
        {"[{\"role\":\"user\",\"content\":\"12\",\"name\":\"345\"}]", NULL, "12345 : "},
        {"[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" CALL "," CALL "]}]", NULL, "-<2> : "},
        {"[{\"role\":\"assistant\",\"tool_calls\":[" CALL "],\"refusal\":null,\"audio\":null,\"annotations\":[],"
         "\"function_call\":null}]",
         NULL, "-<1> : "},
        {"[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL "]},{\"role\":\"tool\",\"content\":\"4\","
         "\"tool_call_id\":\"11\"}]",
         NULL, "-<1> 411 : "},
        {"[{\"role\":\"assistant\",\"content\":\"5\",\"tool_calls\":[]}]", NULL, "5 : "},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"1\"},{\"type\":\"text\",\"text\":\"2\","
         "\"prompt_cache_breakpoint\":{}}]}]",
         NULL, "12 : "},
        {"[{\"role\":\"user\",\"content\":\"12\"}]", "\"add_generation_prompt\":false", "12 "},
        {"[{\"role\":\"user\",\"content\":\"1\"},{\"role\":\"assistant\",\"content\":\"34\"}]",
         "\"continue_final_message\":true,\"add_generation_prompt\":false", "1 34"},
        {"[{\"role\":\"user\",\"content\":\"12\"}]",
         "\"chat_template_kwargs\":{\"enable_thinking\":true,\"reasoning_effort\":\"66\"}", "12 966: "},
        {"[{\"role\":\"user\",\"content\":\"12\"}]", "\"chat_template_kwargs\":{\"enable_thinking\":false}", "12 : "},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t n = prompt_tokens(&h, good[i].also, good[i].messages);
        if (n != (int64_t)strlen(good[i].text))
            fail_msg("%s: %lld tokens, wanted those of '%s'", good[i].messages, (long long)n, good[i].text);
    }
    static const char *const wrong[][3] = {
        {"[{\"role\":\"user\",\"content\":null}]", NULL, "messages[0].content"},
        {"[{\"role\":\"user\"}]", NULL, "messages[0].content"},
        {"[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]}]", NULL, "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":\"1\",\"tool_calls\":[" CALL "]}]", NULL, "messages[0].tool_calls"},
        {"[{\"role\":\"user\",\"content\":\"1\",\"contnet\":\"2\"}]", NULL, "messages[0].contnet"},
        {"[{\"role\":\"user\",\"content\":\"1\",\"refusal\":\"2\"}]", NULL, "messages[0].refusal"},
        {"[{\"role\":\"user\",\"content\":\"1\",\"name\":\"\\u0000\"}]", NULL, "messages[0]"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"1\",\"detail\":2}]}]", NULL,
         "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":\"1\"}]", "\"chat_template_kwargs\":{\"enable_thinkin\":true}",
         "chat_template_kwargs.enable_thinkin"},
        {"[{\"role\":\"user\",\"content\":\"1\"}]", "\"chat_template_kwargs\":{\"messages\":[]}",
         "chat_template_kwargs.messages"},
        {"[{\"role\":\"user\",\"content\":\"1\"}]", "\"continue_final_message\":true,\"add_generation_prompt\":true",
         "continue_final_message"},
        {"[{\"role\":\"user\",\"content\":\"1\"}]", "\"tools\":[{}],\"tool_choice\":\"none\"", "tool_choice"},
        {"[{\"role\":\"user\",\"content\":\"1\"}]", "\"stream_options\":{\"include_usage\":true,\"x\":1}",
         "stream_options.x"},
        {"[{\"role\":\"user\",\"content\":\"1\"}]", "\"logit_bias\":{\"67\":1}", "logit_bias"},
        {"[{\"role\":\"user\",\"content\":\"1\"}]", "\"logit_bias\":{\"5\":101}", "logit_bias"},
        {"[{\"role\":\"user\",\"content\":\"1\"}]", "\"stop_token_ids\":[67]", "stop_token_ids"},
        {"[{\"role\":\"user\",\"content\":\"1\"}]", "\"min_tokens\":17", "min_tokens"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *body, wanted[100];
        int status = ask_body(&h, API_CHAT, wrong[i][1], "messages", wrong[i][0], &body);
        snprintf(wanted, sizeof wanted, "\"message\":\"%s", wrong[i][2]);
        if (status != 400 || !strstr(body, wanted))
            fail_msg("%s %s: %d: %s", wrong[i][0], wrong[i][1] ? wrong[i][1] : "", status, body);
        xfree(body);
    }
    close_house(&h);
}

/* A template that reads contents alone does not swallow what else a conversation has. */
static void test_deaf_template(void **state)
{
    (void)state;
    struct house h;
    open_house(&h, NULL, 50);
    static const char *const wrong[][2] =
        {{"\"tools\":[{}]", "tools"},
         {"\"documents\":[{}]", "documents"},
         {"\"reasoning_effort\":\"low\"", "reasoning_effort"},
         {"\"chat_template_kwargs\":{\"enable_thinking\":false}", "chat_template_kwargs.enable_thinking"},
         {"\"messages\":[{\"role\":\"assistant\",\"content\":\"1\",\"tool_calls\":[" CALL "]}]",
          "messages[0].tool_calls"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *body, wanted[100];
        int status = ask_body(&h, API_CHAT, wrong[i][0], NULL, NULL, &body);
        snprintf(wanted, sizeof wanted, "\"message\":\"%s", wrong[i][1]);
        if (status != 400 || !strstr(body, wanted)) fail_msg("%s: %d: %s", wrong[i][0], status, body);
        xfree(body);
    }
    /* Nothing of them is nothing. */
    assert_true(same_answer(&h, API_CHAT, NULL, "tools", "[]"));
    assert_true(same_answer(&h, API_CHAT, NULL, "chat_template_kwargs", "{}"));
    close_house(&h);
}

static void test_models(void **state)
{
    (void)state;
    struct house h;
    int status;
    open_house(&h, NULL, 50);
    static const struct {
        const char *path;
        int status;
    } models[] = {{"/v1/models/toy", 200}, {"/v1/models/t%6fy", 200}, {"/v1/models/other", 404}, {"/v1/models/", 404}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char *body = ask_with(&h, "GET", models[i].path, "", NULL, &status);
        if (status != models[i].status) fail_msg("%s: %d: %s", models[i].path, status, body);
        if (status == 200) assert_non_null(strstr(body, "\"id\":\"toy\",\"object\":\"model\""));
        xfree(body);
    }
    for (enum api_kind kind = API_TEXT; kind <= API_CHAT; kind++) {
        char *body;
        assert_int_equal(ask_body(&h, kind, NULL, "model", "\"other\"", &body), 404);
        assert_non_null(strstr(body, "there is no other here"));
        xfree(body);
        assert_true(same_answer(&h, kind, NULL, "model", "\"toy\""));
    }
    close_house(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),          cmocka_unit_test(test_each_alone), cmocka_unit_test(test_messages),
        cmocka_unit_test(test_deaf_template), cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
