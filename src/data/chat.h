/* SPDX-License-Identifier: Apache-2.0 */
/* chat.h: records of conversations and of instructions → tokens, and of which of them a loss is taken.
 *
 * A record is a JSON object with one of
 *   messages                 a list of {"role": ..., "content": ...}, with whatever else the template reads of a
 *                            message; beside it tools, documents and others, which the template sees under their names
 *   conversations            a list of {"from": ..., "value": ...}: human, gpt, system, function_call, observation, ...
 *                            are read as user, assistant, system, assistant, tool
 *   prompt and completion    two such lists of messages; or two texts, which are joined as they are, without a template
 *   instruction and output   texts, and perhaps input and system: a user's message (input below instruction) and an
 *                            answer
 * A template (jinja/jinja.h) makes one text of it. Which bytes of that are answers is told by {% generation %}, where
 * the template has that; else by rendering: the text of the messages before an answer, with the generation prompt, must
 * be the beginning of the text of the messages up to it, and that the beginning of the whole; the answer is what lies
 * between. A template of which that is not so is refused, with the place where the texts part.
 *
 * Invariants
 *   1. An answer's tokens spell the answer and nothing else. The text is cut at the control tokens that the template
 *      wrote, and where answers begin and end, and each part is tokenized by itself: what precedes an answer has the
 *      very tokens that a prompt has when the model is asked, and no token is half an answer's. Tokenizers that put a
 *      space before every text cannot do that: there a run between control tokens is tokenized whole, and a token that
 *      holds any byte of an answer is the answer's.
 *   2. A control token (special: true in tokenizer.json, or a mark of the template by name) comes only of text that the
 *      template wrote (or the roles that it wrote between its own marks). What a user or an answer says is text, even
 *      if it reads like one.
 *   3. The loss of an answer includes the control token that ends its turn, and not the white space behind that, unless
 *      the template's own {% generation %} encloses it: that means here what it means to transformers.
 *   4. What is made is a function of record, template, rules and tokenizer.
 * Includes: base, tokenizer.h. Order: Local; a chat is read-only and shared by threads, a chat_work belongs to one.
 */
#ifndef TUTTI_DATA_CHAT_H
#define TUTTI_DATA_CHAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "token/tokenizer.h"

enum chat_train_on { CHAT_ANSWERS, CHAT_ALL, CHAT_LAST };
#define CHAT_TRAIN_ON "answers|all|last"

/* Of records of preferences ("chosen" and "rejected", below), which of the two answers is read. */
enum chat_side { CHAT_PLAIN, CHAT_CHOSEN, CHAT_REJECTED };

struct chat_rules {
    const char *template_name;  /* of the table (chat_templates.h), "tokenizer", or a file */
    const char *tokenizer_path; /* what data.tokenizer names: its folder is asked for the tokenizer's own template */
    enum chat_train_on train_on;
    enum chat_side side; /* CHAT_PLAIN: records are of the forms above, else of preferences: prompt, chosen and
                            rejected, three texts or three lists of messages, or chosen and rejected, two lists that
                            begin alike and end with an answer each */
    int64_t patches;     /* > 0: texts have pictures, each so many tokens: */
    int32_t image_token; /* of this id, where CHAT_IMAGE stands */
    int64_t pictures;    /* that a record may have, at most */
    const char *day;     /* what strftime_now tells: YYYY-MM-DD, or CHAT_TODAY. NULL: nothing, the name is undefined, as
                            samples must not change from day to day */
};
#define CHAT_TODAY "today"

/* What in a text stands for a picture: so many tokens of this id, of which no loss is taken. */
#define CHAT_IMAGE "<image>"

struct chat;
int chat_open(struct chat **c, const struct chat_rules *rules, const struct tokenizer *t, struct err *e);
void chat_close(struct chat *c); /* NULL is fine */
/* Changes with template, rules and what this file does with them: part of the key of what was made. */
uint64_t chat_key(const struct chat *c);
int64_t chat_pictures(const struct chat *c); /* that a record may have */

/* Tokens of one record, and for each whether a loss is taken of it. */
struct chat_tokens {
    struct tokens ids;
    unsigned char *trained; /* [ids.n] */
    int64_t trained_room;
    int pictures;      /* that stand in them */
    bool ends_trained; /* of the end of text behind them, too */
    struct str unread; /* members of the record that nothing reads (chat_record.h), each with a NUL behind it */
};
void chat_tokens_free(struct chat_tokens *out);

struct chat_work;
struct chat_work *chat_work_new(const struct chat *c);
void chat_work_free(struct chat_work *w);
/* where: "FILE:LINE" of the record, for errors. An end of text that the template wrote last is left to the document's
 * own.
 *   fails   ERR_CORRUPT: the record is of no such form, or the template refuses it; ERR_REQUEST: the template cannot
 *           say what an answer is */
int chat_encode(struct chat_work *w, const struct json *record, const char *where, struct chat_tokens *out,
                struct err *e);

/* An answer that was written to what a record asks (chat_record_answered), as training on preferences has it, or, where
 * it did not come to its end, as it was written: behind the prompt for it, with no end of turn or text.
 *   fails   as chat_encode */
int chat_answered(struct chat_work *w, const struct json *record, const char *answer, size_t n, bool ended,
                  const char *where, struct chat_tokens *out, struct err *e);

/* The tokens that a model is asked with: messages (a list of objects with a role and a content each) and the beginning
 * of the answer. Nothing is taken off their end.
 *   fails   ERR_CORRUPT: the template refuses them */
int chat_prompt(struct chat_work *w, const struct json *messages, const char *where, struct tokens *ids, struct err *e);
/* Those of a record that asks with messages, "prompt" or "messages", and perhaps "system". */
int chat_asked(struct chat_work *w, const struct json *record, const char *where, struct tokens *ids, struct err *e);

/* The same with whatever else a template may be given; each NULL, or false, is nothing. */
struct chat_asked {
    const struct json *messages, *tools, *documents;
    const struct json *others; /* an object: each member is seen under its name; none of them is one of the above */
    bool no_answer;            /* the answer's beginning is not written */
    bool goes_on; /* the last message is the answer's beginning: the text ends behind its content, which is a text */
};
int chat_prompt_asked(struct chat_work *w, const struct chat_asked *a, const char *where, struct tokens *ids,
                      struct err *e);
/* Whether the template reads a variable of that name, or a member of that name of some value. */
bool chat_names(const struct chat *c, const char *name);
bool chat_reads(const struct chat *c, const char *member);

#endif
