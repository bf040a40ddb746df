/* SPDX-License-Identifier: Apache-2.0 */
/* The table, and whatever is asked of a row. Rejected: passing over what is not known, as servers commonly do: a
 * misspelt temperature then is 1, and nobody hears of it. */
#include "serve/api_members.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

#define NO_GRAMMAR "nothing here holds an answer to a grammar or a schema"
#define NO_BEAMS "answers are drawn, not searched for; tutti generate --beams searches"
#define NO_MEDIA "only text is understood here"
#define WHO "only says who asks"
#define KEPT "nothing of a request is kept here"

// clang-format off
const struct api_member api_members[] = {
    /* -- what is done -- */
    {"model", API_BOTH, MEMBER_DONE, NULL, "404 unless it is the one that is served"},
    {"prompt", API_TEXT, MEMBER_DONE, NULL, NULL},
    {"messages", API_CHAT, MEMBER_DONE, NULL, NULL},
    {"tools", API_CHAT, MEMBER_DONE, NULL, "by the chat template, if it reads them"},
    {"documents", API_CHAT, MEMBER_DONE, NULL, "by the chat template, if it reads them"},
    {"chat_template_kwargs", API_CHAT, MEMBER_DONE, NULL, "by the chat template, if it reads them"},
    {"reasoning_effort", API_CHAT, MEMBER_DONE, NULL, "by the chat template, if it reads it"},
    {"add_generation_prompt", API_CHAT, MEMBER_DONE, NULL, NULL},
    {"continue_final_message", API_CHAT, MEMBER_DONE, NULL, NULL},
    {"max_tokens", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"max_completion_tokens", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"min_tokens", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"temperature", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"top_p", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"top_k", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"min_p", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"presence_penalty", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"frequency_penalty", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"repetition_penalty", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"logit_bias", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"seed", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"n", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"stop", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"stop_token_ids", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"ignore_eos", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"logprobs", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"top_logprobs", API_CHAT, MEMBER_DONE, NULL, NULL},
    {"echo", API_TEXT, MEMBER_DONE, NULL, NULL},
    {"stream", API_BOTH, MEMBER_DONE, NULL, NULL},
    {"stream_options", API_BOTH, MEMBER_DONE, NULL, "its members: api_request.c"},

    /* -- what changes no answer -- */
    {"user", API_BOTH, MEMBER_IDLE, NULL, WHO},
    {"safety_identifier", API_CHAT, MEMBER_IDLE, NULL, WHO},
    {"session_id", API_BOTH, MEMBER_IDLE, NULL, WHO},
    {"request_id", API_BOTH, MEMBER_IDLE, NULL, "only names the request"},
    {"metadata", API_CHAT, MEMBER_IDLE, NULL, KEPT},
    {"store", API_CHAT, MEMBER_IDLE, NULL, KEPT},
    {"service_tier", API_CHAT, MEMBER_IDLE, NULL, "all requests wait in one line"},
    {"prompt_cache_key", API_CHAT, MEMBER_IDLE, NULL, "what is in the cache is found by its tokens"},
    {"prompt_cache_retention", API_CHAT, MEMBER_IDLE, NULL, "what is in the cache stays as long as there is room"},
    {"prompt_cache_options", API_CHAT, MEMBER_IDLE, NULL, "what is in the cache stays as long as there is room"},
    {"prediction", API_CHAT, MEMBER_IDLE, NULL, "only guesses the answer, so that it may come faster"},
    {"parallel_tool_calls", API_CHAT, MEMBER_REFUSED, "true", "nothing here holds an answer to one call"},
    {"spaces_between_special_tokens", API_BOTH, MEMBER_IDLE, NULL, "special tokens are not told"},
    {"stream_interval", API_BOTH, MEMBER_IDLE, NULL, "only says in how many pieces a stream comes"},
    {"return_token_offsets", API_BOTH, MEMBER_IDLE, NULL, "is of a route that is not here"},
    {"return_mm_kwargs", API_BOTH, MEMBER_IDLE, NULL, "is of a route that is not here"},

    /* -- what is refused -- */
    {"tool_choice", API_CHAT, MEMBER_REFUSED, "\"auto\" \"none\"", "nothing here holds an answer to a call"},
    {"functions", API_CHAT, MEMBER_REFUSED, "[]", "say tools"},
    {"function_call", API_CHAT, MEMBER_REFUSED, "\"auto\" \"none\"", "say tools"},
    {"response_format", API_BOTH, MEMBER_REFUSED, NULL, NO_GRAMMAR},
    {"structured_outputs", API_BOTH, MEMBER_REFUSED, "{}", NO_GRAMMAR},
    {"guided_json", API_BOTH, MEMBER_REFUSED, NULL, NO_GRAMMAR},
    {"guided_regex", API_BOTH, MEMBER_REFUSED, NULL, NO_GRAMMAR},
    {"guided_choice", API_BOTH, MEMBER_REFUSED, "[]", NO_GRAMMAR},
    {"guided_grammar", API_BOTH, MEMBER_REFUSED, NULL, NO_GRAMMAR},
    {"guided_decoding_backend", API_BOTH, MEMBER_REFUSED, NULL, NO_GRAMMAR},
    {"guided_whitespace_pattern", API_BOTH, MEMBER_REFUSED, NULL, NO_GRAMMAR},
    {"structural_tag", API_BOTH, MEMBER_REFUSED, NULL, NO_GRAMMAR},
    {"grammar", API_BOTH, MEMBER_REFUSED, "\"\"", NO_GRAMMAR},
    {"verbosity", API_CHAT, MEMBER_REFUSED, "\"medium\"", "say it in a message, or limit max_tokens"},
    {"moderation", API_CHAT, MEMBER_REFUSED, NULL, "nothing here looks at what an answer says"},
    {"modalities", API_CHAT, MEMBER_REFUSED, NULL, NO_MEDIA},
    {"audio", API_CHAT, MEMBER_REFUSED, NULL, NO_MEDIA},
    {"mm_processor_kwargs", API_CHAT, MEMBER_REFUSED, "{}", NO_MEDIA},
    {"mm_payload", API_BOTH, MEMBER_REFUSED, NULL, NO_MEDIA},
    {"media_io_kwargs", API_CHAT, MEMBER_REFUSED, "{}", NO_MEDIA},
    {"web_search_options", API_CHAT, MEMBER_REFUSED, NULL, "nothing here searches"},
    {"suffix", API_TEXT, MEMBER_REFUSED, "\"\"", "write the model's marks of a middle into the prompt"},
    {"prompt_embeds", API_TEXT, MEMBER_REFUSED, "[]", "give a text or tokens"},
    {"best_of", API_TEXT, MEMBER_REFUSED, "1", NO_BEAMS},
    {"use_beam_search", API_BOTH, MEMBER_REFUSED, "false", NO_BEAMS},
    {"num_beams", API_BOTH, MEMBER_REFUSED, "1", NO_BEAMS},
    {"beam_width", API_BOTH, MEMBER_REFUSED, "1", NO_BEAMS},
    {"length_penalty", API_BOTH, MEMBER_REFUSED, "1", NO_BEAMS},
    {"echo", API_CHAT, MEMBER_REFUSED, "false", "/v1/completions has it"},
    {"include_stop_str_in_output", API_BOTH, MEMBER_REFUSED, "false", "an answer ends before its stop text"},
    {"skip_special_tokens", API_BOTH, MEMBER_REFUSED, "true", "special tokens are not told; logprobs names tokens"},
    {"truncate_prompt_tokens", API_BOTH, MEMBER_REFUSED, "-1", "a prompt is fed whole; shorten it"},
    {"truncation_side", API_BOTH, MEMBER_REFUSED, NULL, "a prompt is fed whole; shorten it"},
    {"prompt_logprobs", API_BOTH, MEMBER_REFUSED, NULL, "echo and logprobs of /v1/completions tell them"},
    {"logprob_token_ids", API_BOTH, MEMBER_REFUSED, "[]", "the likeliest tokens alone are told"},
    {"allowed_token_ids", API_BOTH, MEMBER_REFUSED, "[]", "logit_bias of -100 keeps tokens out"},
    {"bad_words", API_BOTH, MEMBER_REFUSED, "[]", "logit_bias of -100 keeps tokens out"},
    {"watermarking", API_BOTH, MEMBER_REFUSED, "false", "nothing here marks answers"},
    {"logits_processors", API_BOTH, MEMBER_REFUSED, "[]", "no code of a client runs here"},
    {"repetition_detection", API_BOTH, MEMBER_REFUSED, NULL, "repetition_penalty and frequency_penalty are here"},
    {"thinking_token_budget", API_BOTH, MEMBER_REFUSED, "-1", "what a model thinks is part of its answer; say max_tokens"},
    {"include_reasoning", API_CHAT, MEMBER_REFUSED, "true", "what a model thinks is part of its answer"},
    {"add_special_tokens", API_TEXT, MEMBER_REFUSED, "true", "give tokens as the prompt"},
    {"add_special_tokens", API_CHAT, MEMBER_REFUSED, "false", "the chat template writes them"},
    {"chat_template", API_CHAT, MEMBER_REFUSED, NULL, "the server's is used (--chat-template)"},
    {"return_tokens_as_token_ids", API_BOTH, MEMBER_REFUSED, "false", "tokens are told as text, and bytes beside it"},
    {"return_token_ids", API_BOTH, MEMBER_REFUSED, "false", "tokens are told as text, and bytes beside it"},
    {"return_weight_versions", API_BOTH, MEMBER_REFUSED, "false", "the weights never change here"},
    {"return_prompt_text", API_CHAT, MEMBER_REFUSED, "false", "answers do not repeat what was asked"},
    {"routed_experts_prompt_start", API_BOTH, MEMBER_REFUSED, "0", "which experts were asked is not told"},
    {"priority", API_BOTH, MEMBER_REFUSED, "0", "all requests wait in one line"},
    {"cache_salt", API_BOTH, MEMBER_REFUSED, NULL, "all clients share one cache"},
    {"kv_transfer_params", API_BOTH, MEMBER_REFUSED, "{}", "keys and values stay in this server"},
    {"ec_transfer_params", API_BOTH, MEMBER_REFUSED, "{}", "keys and values stay in this server"},
    {"vllm_xargs", API_BOTH, MEMBER_REFUSED, "{}", "there are no extensions here"},
};
// clang-format on
const int api_n_members = (int)(sizeof api_members / sizeof *api_members);

const struct json *api_member(const struct json *o, const char *name)
{
    const struct json *v = json_get(o, name);
    return v && json_kind(v) != JSON_NULL ? v : NULL;
}

static bool is_word(const char *word, size_t n, const struct json *v)
{
    size_t size;
    const char *text;
    switch (json_kind(v)) {
    case JSON_NULL: return true;
    case JSON_BOOL:
        return json_bool(v, false) ? n == 4 && !strncmp(word, "true", 4) : n == 5 && !strncmp(word, "false", 5);
    case JSON_INT:
    case JSON_REAL: return (*word == '-' || (*word >= '0' && *word <= '9')) && json_real(v, NAN) == strtod(word, NULL);
    case JSON_STRING:
        text = json_string(v, &size, "");
        return *word == '"' && size + 2 == n && !memcmp(text, word + 1, size);
    case JSON_ARRAY: return !strncmp(word, "[]", 2) && !json_size(v);
    case JSON_OBJECT: return !strncmp(word, "{}", 2) && !json_size(v);
    }
    return false;
}

bool api_member_neutral(const char *neutral, const struct json *v)
{
    if (json_kind(v) == JSON_NULL) return true;
    for (const char *at = neutral ? neutral : ""; *at;) {
        size_t n = strcspn(at, " ");
        if (is_word(at, n, v)) return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

/* {"type": "text"} and ["text"] are what there is. */
static bool asks_for_text(const char *name, const struct json *v)
{
    bool format = !strcmp(name, "response_format"), modalities = !strcmp(name, "modalities");
    const struct json *word = format ? json_get(v, "type") : modalities ? json_at(v, 0) : NULL;
    return word && json_size(v) == 1 && !strcmp(json_string(word, NULL, ""), "text");
}

static const struct api_member *find(const char *name, enum api_kind kind)
{
    for (int i = 0; i < api_n_members; i++)
        if (api_members[i].of & kind && !strcmp(api_members[i].name, name)) return &api_members[i];
    return NULL;
}

static int not_known(const char *name, enum api_kind kind, struct err *e)
{
    const char *names[sizeof api_members / sizeof *api_members];
    int n = 0;
    for (int i = 0; i < api_n_members; i++)
        if (api_members[i].of & kind) names[n++] = api_members[i].name;
    const char *near = str_nearest(name, names, n);
    return err_set(e, ERR_REQUEST, "%.100s: is no member of a request that is known here%s%s%s", name,
                   near ? "; did you mean " : "; leave it out", near ? near : "", near ? "?" : "");
}

int api_members_check(const struct json *o, enum api_kind kind, struct err *e)
{
    for (void *it = json_iter(o); it; it = json_iter_next(o, it)) {
        const char *name = json_iter_key(it);
        const struct json *v = json_iter_value(it);
        const struct api_member *m = find(name, kind);
        if (!m) return not_known(name, kind, e);
        if (m->fate == MEMBER_REFUSED && !api_member_neutral(m->neutral, v) && !asks_for_text(name, v))
            return err_set(e, ERR_REQUEST, "%s: is not supported here: %s; leave it out", name, m->why);
    }
    return OK;
}
