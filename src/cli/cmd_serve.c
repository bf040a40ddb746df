/* SPDX-License-Identifier: Apache-2.0 */
/* tutti serve MODEL [--port P]: a model behind OpenAI's API. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/open_model.h"
#include "train/signals.h"
#include "serve/service.h"

enum { KEY_LEAST = 16, KEY_MOST = 512, GRACE_S = 10 };

struct request {
    const char *address, *key_file, *name, *template, *date;
    int64_t port, sequences, positions, rows, queue, max_tokens, max_body, time_s, idle_s, receive_s, clients, logprobs;
    double cache;
    struct cli_model model;
    char *key;               /* what is in key_file */
    struct signals *signals; /* open before there is another thread that a signal could go to */
};
#define AT(field) offsetof(struct request, field)
static const struct cli_option options[] = {
    {"--port", "P", CLI_INT, AT(port), .lo = 0, .hi = 65535, .help = "0: a free one, which is told"},
    {"--address", "A", CLI_TEXT, AT(address), .help = "any other than this host wants --key-file"},
    {"--key-file", "FILE", CLI_TEXT, AT(key_file),
     .help = "clients must send what is in FILE: Authorization: Bearer KEY"},
    {"--name", "NAME", CLI_TEXT, AT(name), .help = "of the model in requests (default: the last part of MODEL's path)"},
    {"--sequences", "N", CLI_INT, AT(sequences), .lo = 1, .hi = 1024, .help = "texts written at once"},
    {"--positions", "N", CLI_INT, AT(positions), .lo = 1, .hi = INT32_MAX,
     .help = "of one text, prompt included (default: as many as the model has)"},
    {"--rows", "N", CLI_INT, AT(rows), .lo = 1, .hi = 2048,
     .help = "tokens of a step: prompts are fed in pieces of at most so many"},
    {"--cache", "GIB", CLI_REAL, AT(cache), .most = 1e6,
     .help = "of keys and values on a rank at most (default: for all texts at their longest)"},
    {"--queue", "N", CLI_INT, AT(queue), .lo = 1, .hi = 100000,
     .help = "answers under way, n of each prompt; more are told to come back"},
    {"--logprobs", "MIB", CLI_INT, AT(logprobs), .lo = 1, .hi = 1 << 20,
     .help = "of log-probabilities that wait for the end of their answers"},
    {"--max-tokens", "N", CLI_INT, AT(max_tokens), .lo = 1, .hi = INT32_MAX, .help = "of an answer at most"},
    {"--max-body", "BYTES", CLI_INT, AT(max_body), .lo = 1024, .hi = 1 << 30, .help = "of a request at most"},
    {"--time", "S", CLI_INT, AT(time_s), .lo = 1, .hi = 1000000, .help = "seconds that a request may take"},
    {"--idle", "S", CLI_INT, AT(idle_s), .lo = 1, .hi = 100000,
     .help = "seconds after which a connection that takes or sends nothing is closed"},
    {"--receive", "S", CLI_INT, AT(receive_s), .lo = 1, .hi = 100000,
     .help = "seconds in which a request must be there, head and body"},
    {"--clients", "N", CLI_INT, AT(clients), .lo = 1, .hi = 10000, .help = "connections at once"},
    {"--chat-template", "T", CLI_TEXT, AT(template), .help = "a name or a file (default: the tokenizer's own)"},
    {"--date", "DAY", CLI_TEXT, AT(date),
     .help = "the day, as YYYY-MM-DD, for a template that asks for it (default: the day that it is)"},
    CLI_MODEL(struct request, model),
    CLI_IGNORE(struct request, model.ignore),
};
static const struct cli_word words[] = {{.name = "MODEL", .at = AT(model.path)}};
static const struct cli_table table = {
    .command = "serve",
    .usage = "MODEL [--port P] [options]",
    .about = "Answers OpenAI's API with MODEL (a tutti checkpoint, a run directory, or a Hugging Face directory):\n"
             "/v1/completions, /v1/chat/completions, /v1/models; /metrics for Prometheus; / is a page to chat with.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
};

static int read_key(const char *path, char **key, struct err *e)
{
    size_t n;
    *key = NULL;
    if (!path) return OK;
    int rc = fs_read_all(path, KEY_MOST, key, &n, e);
    if (rc) return rc;
    struct stat st;
    while (n && strchr("\r\n \t", (*key)[n - 1])) (*key)[--n] = 0;
    if (n < KEY_LEAST || strlen(*key) != n)
        return err_set(e, ERR_REQUEST, "%s: wanted a key of %d characters or more on one line", path, KEY_LEAST);
    if (!stat(path, &st) && st.st_mode & 077)
        return err_set(e, ERR_REQUEST, "%s: others may read it; chmod 600 it", path);
    return OK;
}

/* The tokenizer's own template may be missing: then there is no chat, and requests are told so. */
static int open_chat(const struct request *q, const struct tokenizer *t, struct chat **chat, struct err *e)
{
    struct stat st;
    *chat = NULL;
    const char *from = q->model.tokenizer ? q->model.tokenizer : q->model.path;
    struct chat_rules rules = {.template_name = q->template ? q->template : "tokenizer",
                               .tokenizer_path = from,
                               .day = q->date ? q->date : CHAT_TODAY};
    if (!q->template && !q->date && (stat(from, &st) || !S_ISDIR(st.st_mode))) return OK;
    int rc = chat_open(chat, &rules, t, e);
    if (!rc || q->template || q->date) return rc;
    log_info("no chat: %s", e->text);
    *e = (struct err){0};
    return OK;
}

static const char *last_part(const char *path, struct str *room)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from && path[from - 1] != '/') from--;
    str_add(room, path + from, n - from);
    return str_text(room);
}

static bool stop(void *ctx) { return signals_stop_wanted(ctx); }

static int answer(void *ctx, struct model_at_work *m, struct err *e)
{
    const struct request *q = ctx;
    struct chat *chat = NULL;
    struct service *service = NULL;
    struct str name = {0};
    model_job_say_wishes(m);
    int rc = open_chat(q, m->tokenizer, &chat, e);
    struct service_config c = {.decoding = m->decoding,
                               .tokenizer = m->tokenizer,
                               .chat = chat,
                               .model = q->name ? q->name : last_part(q->model.path, &name),
                               .address = q->address,
                               .key = q->key,
                               .port = (int)q->port,
                               .queue = (int)q->queue,
                               .max_tokens = q->max_tokens,
                               .max_body = (size_t)q->max_body,
                               .time_s = (int)q->time_s,
                               .clients = (int)q->clients,
                               .idle_s = (int)q->idle_s,
                               .request_s = (int)q->receive_s,
                               .told_bytes = (size_t)q->logprobs << 20};
    if (!rc) rc = service_open(&service, &c, e);
    if (!rc) {
        bool six = strchr(q->address, ':') != NULL;
        log_info("%s at http://%s%s%s:%d/v1 (a page to chat with: http://%s%s%s:%d/)", c.model, six ? "[" : "",
                 q->address, six ? "]" : "", service_port(service), six ? "[" : "", q->address, six ? "]" : "",
                 service_port(service));
        rc = service_run(service, stop, q->signals, GRACE_S, e);
    }
    service_close(service);
    chat_close(chat);
    str_free(&name);
    return rc;
}

int cmd_serve(int argc, char **argv)
{
    struct request q = {.port = 8000,
                        .address = "127.0.0.1",
                        .model.dtype = "bf16",
                        .sequences = 16,
                        .rows = 256,
                        .queue = 128,
                        .max_tokens = 1024,
                        .max_body = 4 << 20,
                        .time_s = 600,
                        .idle_s = 30,
                        .receive_s = 60,
                        .logprobs = 64,
                        .clients = 256};
    struct err e = {0};
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    if ((rc = cli_model_check("serve", &q.model, false))) return rc;
    struct model_job j = {.options = {.sequences = q.sequences,
                                      .positions = q.positions,
                                      .rows = q.rows > q.sequences ? q.rows : q.sequences,
                                      .cache_bytes = (size_t)(q.cache * 1073741824.0)},
                          .lead = answer,
                          .ctx = &q};
    rc = read_key(q.key_file, &q.key, &e);
    if (!rc) rc = signals_open(&q.signals, &e);
    if (!rc) signals_speak(q.signals, false); /* of steps and what is saved */
    rc = rc ? cli_fail(&e) : cli_model_run(&q.model, &j);
    signals_close(q.signals);
    xfree(q.key);
    return rc;
}
