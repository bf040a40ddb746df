/* SPDX-License-Identifier: Apache-2.0 */
/* chat_impl.h: what a chat is made of; for chat.c, chat_answers.c and chat_encode.c only. */
#ifndef TUTTI_DATA_CHAT_IMPL_H
#define TUTTI_DATA_CHAT_IMPL_H

#include <time.h>

#include "data/chat.h"
#include "data/chat_record.h"
#include "jinja/jinja.h"
#include "token/added.h"

struct chat {
    const struct tokenizer *t;
    struct jinja *template;
    char *name; /* of the template, for errors */
    char *text; /* of it */
    enum chat_train_on train_on;
    enum chat_side side;
    struct added control; /* the tokens that only a template may write */
    bool spaced;          /* the tokenizer puts a space before every text */
    char *bos, *eos;      /* their texts */
    uint64_t key;
    int64_t patches; /* of a picture; 0: texts have none */
    int32_t image_token;
    int64_t pictures; /* at most */
    bool has_day, today;
    struct tm day; /* where has_day: of 00:00 */
};
/* What the template is told of the day; *room may be where it stands. NULL: nothing. */
const struct tm *chat_day(const struct chat *c, struct tm *room);

struct chat_work {
    const struct chat *chat;
    struct jinja_scope *scope;
    struct encoder *encoder;
    struct tokens part; /* of one part of the text */
};

/* The text of a record and where its answers are: spans in order, apart from each other. */
struct chat_text {
    struct jinja_output out;
    struct jinja_span *answers;
    int64_t n_answers, answers_room;
};
/* Renders the record and finds its answers (chat_answers.c). */
int chat_render(struct chat_work *w, const struct chat_record *r, const char *where, struct chat_text *out,
                struct err *e);
/* Renders what is asked and the beginning of the answer that is to follow. */
int chat_render_prompt(struct chat_work *w, const struct chat_asked *a, const char *where, struct chat_text *out,
                       struct err *e);
void chat_text_fini(struct chat_text *t);

#endif
