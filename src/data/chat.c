/* SPDX-License-Identifier: Apache-2.0 */
/* chat.c: opening: the template's text from the table, from a file, or from beside the tokenizer; and which tokens are
 * control tokens. */
#include "data/chat.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/chat_impl.h"
#include "data/chat_templates.h"
#include "token/tokenizer_impl.h"

enum { FILE_MAX = 16 << 20, CHAT_VERSION = 4 };

/* -- the template's text --------------------------------------------------------------------------------------- */

/* tokenizer_config.json's chat_template: a text, or a list of {"name", "template"} of which "default" is taken. */
static int from_config(const struct json *root, const char *path, struct str *text, struct err *e)
{
    const struct json *v = json_get(root, "chat_template");
    for (size_t i = 0; v && json_kind(v) == JSON_ARRAY && i < json_size(v); i++) {
        const struct json *item = json_at(v, i);
        if (strcmp(json_string(json_get(item, "name"), NULL, ""), "default")) continue;
        v = json_get(item, "template");
        break;
    }
    size_t n = 0;
    const char *p = json_string(v, &n, NULL);
    if (!p) return err_set(e, ERR_REQUEST, "%s: has no chat_template; name one of tutti's, or a file with one", path);
    str_add(text, p, n);
    return OK;
}

static int from_file(const char *path, struct str *text, struct err *e)
{
    char *p;
    size_t n;
    int code = fs_read_all(path, FILE_MAX, &p, &n, e);
    if (code) return code;
    struct json *root = NULL;
    if (str_ends(path, ".json")) {
        code = json_parse_published(&root, p, n, path, e);
        if (!code) code = from_config(root, path, text, e);
    } else {
        str_add(text, p, n);
    }
    json_free(root);
    xfree(p);
    return code;
}

/* chat_template.jinja or tokenizer_config.json in the tokenizer's folder. */
static int from_tokenizer(const char *tokenizer, struct str *path, struct str *text, struct err *e)
{
    if (!tokenizer || !strcmp(tokenizer, "byte"))
        return err_set(e, ERR_REQUEST,
                       "the byte tokenizer has no chat template of its own; name one of tutti's, or a file");
    const char *slash = strrchr(tokenizer, '/');
    int what = fs_what(tokenizer, e);
    if (what < 0) return what;
    char *dir = what == FS_FOLDER ? xstrdup(tokenizer)
                : !slash          ? xstrdup(".")
                                  : xstrndup(tokenizer, (size_t)(slash - tokenizer) + (slash == tokenizer));
    str_printf(path, "%s/chat_template.jinja", dir);
    if (fs_absent(path->p)) {
        str_clear(path);
        str_printf(path, "%s/tokenizer_config.json", dir);
    }
    xfree(dir);
    return from_file(path->p, text, e);
}

static int no_such_template(const char *name, struct err *e)
{
    struct str names = {0};
    const char *all[64];
    int n = 0;
    for (const struct chat_template *t = chat_templates; t->name; t++) {
        str_printf(&names, "%s%s", n ? ", " : "", t->name);
        all[n++] = t->name;
    }
    const char *near = str_nearest(name, all, n);
    int code = err_set(e, ERR_REQUEST, "%s: is no chat template: wanted %s, tokenizer (its own), or a file%s%s%s", name,
                       str_text(&names), near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    str_free(&names);
    return code;
}

static int read_template(const struct chat_rules *r, struct str *name, struct str *text, struct err *e)
{
    if (!strcmp(r->template_name, "tokenizer")) return from_tokenizer(r->tokenizer_path, name, text, e);
    str_puts(name, r->template_name);
    for (const struct chat_template *t = chat_templates; t->name; t++)
        if (!strcmp(t->name, r->template_name)) {
            str_puts(text, t->text);
            return OK;
        }
    if (fs_absent(r->template_name)) return no_such_template(r->template_name, e);
    return from_file(r->template_name, text, e);
}

/* -- the tokenizer's part ---------------------------------------------------------------------------------------- */

/* As the tokenizer cuts it out of a text, so with the white space it takes along. */
static void add_control(struct chat *c, int32_t id)
{
    size_t n;
    const char *p = tokenizer_piece(c->t, id, &n);
    struct added_token token = {.text = (char *)(uintptr_t)p, .n = n, .id = id, .special = true};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < c->t->cut.added[k].n; i++)
            if (c->t->cut.added[k].tokens[i].id == id) {
                token.strip_before = c->t->cut.added[k].tokens[i].strip_before;
                token.strip_after = c->t->cut.added[k].tokens[i].strip_after;
                token.text = c->t->cut.added[k].tokens[i].text;
                token.n = c->t->cut.added[k].tokens[i].n;
            }
    if (token.n) added_put(&c->control, &token);
}

/* The id of a token that the tokenizer cuts out of a text before anything else; -1: it has none of that text. */
static int32_t added_id(const struct tokenizer *t, const char *text)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < t->cut.added[k].n; i++)
            if (!strcmp(t->cut.added[k].tokens[i].text, text)) return t->cut.added[k].tokens[i].id;
    return -1;
}

/* The marks of a template by name are control tokens, also where tokenizer.json does not call them special (DeepSeek's
 * does not). Without them in the vocabulary nothing would tell them from what a user wrote. */
static int add_marks(struct chat *c, const char *name, struct err *e)
{
    const struct chat_template *t = chat_templates;
    while (t->name && strcmp(t->name, name) != 0) t++;
    for (int i = 0; t->name && i < CHAT_MARKS && t->marks[i]; i++) {
        int32_t id = added_id(c->t, t->marks[i]);
        if (id < 0)
            return err_set(e, ERR_REQUEST,
                           "the chat template %s is written with the token %s, which this tokenizer lacks; choose a "
                           "template of its family (tokenizer: its own), plain, which needs no such tokens, or put it "
                           "among the added_tokens of tokenizer.json",
                           name, t->marks[i]);
        if (!tokenizer_is_special(c->t, id)) add_control(c, id);
    }
    return OK;
}

static int ask_tokenizer(struct chat *c, const char *name, struct err *e)
{
    int wrong = add_marks(c, name, e);
    if (wrong) return wrong;
    for (int32_t id = 0; id < tokenizer_vocab(c->t); id++)
        if (tokenizer_is_special(c->t, id)) add_control(c, id);
    added_finish(&c->control);
    c->bos = xstrdup(tokenizer_bos(c->t) >= 0 ? tokenizer_piece(c->t, tokenizer_bos(c->t), NULL) : "");
    c->eos = xstrdup(tokenizer_eos(c->t) >= 0 ? tokenizer_piece(c->t, tokenizer_eos(c->t), NULL) : "");
    struct tokens probe = {0};
    int code = tokenizer_encode(c->t, "a", 1, &probe, e);
    const char *first = !code && probe.n ? tokenizer_piece(c->t, probe.ids[0], NULL) : "";
    c->spaced = *first == ' ' || str_starts(first, "\xE2\x96\x81"); /* as SentencePiece spells a space */
    tokens_free(&probe);
    return code;
}

/* -- the day ----------------------------------------------------------------------------------------------------- */

static int read_day(struct chat *c, const char *day, const char *name, struct err *e)
{
    struct tm t = {0};
    int n = 0;
    char again[16];
    c->today = day && !strcmp(day, CHAT_TODAY);
    if (!day || c->today) return OK;
    bool reads =
        strlen(day) == 10 && sscanf(day, "%4d-%2d-%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday, &n) == 3 && n == 10;
    t.tm_year -= 1900;
    t.tm_mon--;
    time_t at = timegm(&t); /* makes a 1 March of a 30 February */
    c->has_day =
        reads && gmtime_r(&at, &c->day) && strftime(again, sizeof again, "%Y-%m-%d", &c->day) && !strcmp(again, day);
    if (!c->has_day) return err_set(e, ERR_REQUEST, "\"%s\" is no date; wanted a day as YYYY-MM-DD", day);
    if (jinja_names(c->template, "strftime_now")) return OK;
    return err_set(e, ERR_REQUEST, "the chat template %s does not ask for the day (strftime_now); leave the date out",
                   name);
}

const struct tm *chat_day(const struct chat *c, struct tm *room)
{
    time_t now = time(NULL);
    if (c->today) return gmtime_r(&now, room);
    return c->has_day ? &c->day : NULL;
}

int chat_open(struct chat **out, const struct chat_rules *rules, const struct tokenizer *t, struct err *e)
{
    struct str name = {0}, text = {0};
    struct chat *c = xcalloc(1, sizeof *c);
    c->t = t;
    c->train_on = rules->train_on;
    c->side = rules->side;
    c->patches = rules->patches;
    c->image_token = rules->image_token;
    c->pictures = rules->pictures;
    int code = read_template(rules, &name, &text, e);
    if (!code) code = jinja_parse(&c->template, str_text(&text), text.n, str_text(&name), e);
    if (!code) code = read_day(c, rules->day, str_text(&name), e);
    if (!code) code = ask_tokenizer(c, str_text(&name), e);
    if (!code) {
        uint64_t parts[] = {hash64(str_text(&text), text.n), (uint64_t)c->train_on, CHAT_VERSION,
                            hash64(c->bos, strlen(c->bos)), hash64(c->eos, strlen(c->eos))};
        c->key = hash64(parts, sizeof parts) + (uint64_t)c->side;
        uint64_t pictures[] = {c->key, (uint64_t)c->patches, (uint64_t)c->image_token, (uint64_t)c->pictures};
        if (c->patches) c->key = hash64(pictures, sizeof pictures);
        uint64_t day[] = {c->key, c->has_day ? hash64(rules->day, strlen(rules->day)) : 0};
        if (c->has_day) c->key = hash64(day, sizeof day);
        c->name = xstrdup(str_text(&name));
        c->text = xstrdup(str_text(&text));
    }
    str_free(&name);
    str_free(&text);
    if (code) {
        chat_close(c);
        c = NULL;
    }
    *out = c;
    return code;
}

void chat_close(struct chat *c)
{
    if (!c) return;
    jinja_free(c->template);
    added_fini(&c->control);
    xfree(c->name);
    xfree(c->text);
    xfree(c->bos);
    xfree(c->eos);
    xfree(c);
}

int64_t chat_pictures(const struct chat *c) { return c->patches ? c->pictures : 0; }

uint64_t chat_key(const struct chat *c) { return c->key; }

bool chat_names(const struct chat *c, const char *name) { return jinja_names(c->template, name); }

bool chat_reads(const struct chat *c, const char *member) { return jinja_reads(c->template, member); }

struct chat_work *chat_work_new(const struct chat *c)
{
    struct chat_work *w = xcalloc(1, sizeof *w);
    w->chat = c;
    w->scope = jinja_scope_new();
    w->encoder = encoder_new(c->t);
    return w;
}

void chat_work_free(struct chat_work *w)
{
    if (!w) return;
    jinja_scope_free(w->scope);
    encoder_free(w->encoder);
    tokens_free(&w->part);
    xfree(w);
}

void chat_tokens_free(struct chat_tokens *out)
{
    tokens_free(&out->ids);
    str_free(&out->unread);
    xfree(out->trained);
    *out = (struct chat_tokens){0};
}
