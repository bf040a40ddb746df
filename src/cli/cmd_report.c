/* SPDX-License-Identifier: Apache-2.0 */
/* tutti report RUN [--html FILE] [--beside RUN,...]: what a run did, as one page. The numbers are the run's own files
 * (report/history.h); memory and pictures come from the plans of its config, made again on the null device. Where the
 * config cannot be planned any more (a schedule's file moved away, say), the page says so and shows the rest. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "explain/layout_picture.h"
#include "plan/plan.h"
#include "report/exponent_picture.h"
#include "report/several.h"
#include "report/page.h"
#include "engine/build.h"
#include "remote/remote.h"
#include "schedule/schedule.h"

enum { CONFIG_BYTES = 1 << 20 };

struct request {
    const char *run, *html, *beside, *svg, *exponents;
    int64_t step;
};
static const struct cli_option options[] =
    {{"--html", "FILE", CLI_TEXT, offsetof(struct request, html),
      .help = "where the page goes (default: RUN/report.html)"},
     {"--beside", "RUN,...", CLI_TEXT, offsetof(struct request, beside),
      .help = "other runs, with commas between: no page, a table of their last validation"},
     {"--svg", "FILE", CLI_TEXT, offsetof(struct request, svg), .help = "with --beside: their validation as a picture"},
     {"--exponents", "FILE", CLI_TEXT, offsetof(struct request, exponents),
      .help = "no page: activations, weights and gradients by exponent as a picture\n(run.exponents_every)"},
     {"--step", "N", CLI_INT, offsetof(struct request, step), .lo = 0, .hi = INT64_MAX,
      .help = "with --exponents: of that step; 0: of the last"}};
static const struct cli_word words[] = {{.name = "RUN", .at = offsetof(struct request, run)}};
static const struct cli_table table = {
    .command = "report",
    .usage = "RUN [--html FILE] [--beside RUN,... [--svg FILE]] [--exponents FILE [--step N]]",
    .about =
        "Makes one self-contained page of a run, finished or under way: loss and validation, learning rate, gradient\n"
        "norm, speed, what it wrote (run.sample_every), memory by category, pictures of layout and schedule, machine,\n"
        "config. RUN is a run's directory (run.dir).\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
};

/* What the page borrows from while it is written. */
struct material {
    struct history history;
    char *config_path, *config_text;
    struct arena *arena;
    struct config cfg;
    struct plan plan;
    bool planned;
    struct str layout, schedule, model, why;
};

/* The ranks that a resolved config is for. */
static int64_t ranks_of(const struct config *c)
{
    return c->parallel.dp_replicate * c->parallel.dp_shard * c->parallel.tp * c->parallel.cp * c->parallel.pp +
           c->parallel.servers;
}

/* The schedule that the engine carries out, as long as forward, backward and weight gradients take the same time. */
static int draw_schedule(const struct config *c, struct str *out, struct err *e)
{
    struct engine_config ec = config_engine(c);
    struct schedule *s;
    struct schedule_timeline t;
    int rc = build_plan(&s, &ec.pipeline, (int)c->parallel.pp, to_int(ec.n_microbatches), e);
    if (!rc) {
        schedule_simulate(s, &(struct schedule_cost){.f = 1, .b = 1, .w = 1}, &t);
        schedule_svg(s, &t, out);
        schedule_timeline_fini(&t);
    }
    schedule_free(s);
    return rc;
}

static void add_picture(struct page *p, const char *title, const char *about, struct str *svg)
{
    p->picture[p->n_pictures++] = (struct page_picture){title, about, str_text(svg)};
}

static void add_plan(struct page *p, struct material *m, struct err *e)
{
    const struct config *c = &m->cfg;
    char params[32];
    const struct plan_rank *r = &m->plan.role[0];
    str_printf(&m->model,
               "%s, %s parameters, %lld layers of %lld, sequences of %lld tokens, %lld in a batch; %d rank%s",
               model_family_name((enum model_family)c->model.family), str_count(params, (double)m->plan.params),
               (long long)c->model.layers, (long long)c->model.hidden, (long long)c->model.seq_len,
               (long long)c->batch.global, m->plan.n_ranks, m->plan.n_ranks == 1 ? "" : "s");
    p->model = str_text(&m->model);
    for (int i = 0; i < MEM_N && p->n_memory < PAGE_ROWS; i++)
        p->memory[p->n_memory++] = (struct page_memory){mem_cat_name((enum mem_cat)i), (double)r->bytes[i]};
    if (m->plan.n_ranks > 1) {
        if (!layout_picture(c, m->plan.n_ranks, &m->layout, e))
            add_picture(p, "Layout", "which rank has which tokens, layers and parts of parameters", &m->layout);
        else p->notes[p->n_notes++] = arena_printf(m->arena, "No picture of the layout: %s", e->text);
    }
    if (c->parallel.pp > 1) {
        if (!draw_schedule(c, &m->schedule, e))
            add_picture(p, "Schedule",
                        "what each pipeline rank does when; forward, backward and weight gradients drawn as equally "
                        "long",
                        &m->schedule);
        else p->notes[p->n_notes++] = arena_printf(m->arena, "No picture of the schedule: %s", e->text);
    }
}

/* A run's config.yaml says every number of the model: neither its tokenizer nor its starting weights are asked, whose
 * paths are of the folder that the run was started in. */
static void read_plan(struct page *p, struct material *m)
{
    struct err e = {0};
    size_t n;
    int rc = fs_read_all(m->config_path, CONFIG_BYTES, &m->config_text, &n, &e);
    if (!rc) { /* a page is shown to others */
        char *all = m->config_text;
        p->config = m->config_text = remote_hidden(all);
        xfree(all);
    }
    struct conf *f = NULL;
    if (!rc) rc = config_load(&m->cfg, &f, m->arena, m->config_path, NULL, 0, &e);
    if (!rc) rc = config_resolve(&m->cfg, f, m->cfg.model.vocab, (int)ranks_of(&m->cfg), &e);
    if (!rc) rc = plan_choose(&m->cfg, NULL, NULL, &e);
    if (!rc) rc = plan_make(&m->plan, &m->cfg, &e);
    m->planned = !rc;
    if (rc) p->notes[p->n_notes++] = arena_printf(m->arena, "Memory and pictures are left out: %s", e.text);
    else add_plan(p, m, &e);
}

static int write_report(const char *run, const char *file, struct err *e)
{
    struct material m = {.arena = arena_new()};
    struct str html = {0};
    int rc = history_read(&m.history, run, e);
    if (!rc) {
        struct page p = {.title = run, .history = &m.history};
        m.config_path = fs_join(run, "config.yaml");
        read_plan(&p, &m);
        page_html(&p, &html);
        rc = fs_write_atomic(file, str_text(&html), html.n, e);
        history_free(&m.history);
    }
    if (m.planned) plan_free(&m.plan);
    str_free(&m.layout);
    str_free(&m.schedule);
    str_free(&m.model);
    str_free(&html);
    xfree(m.config_text);
    xfree(m.config_path);
    arena_free(m.arena);
    return rc;
}

/* The runs of a list with commas between, after the first. */
static int beside(const struct request *q, struct err *e)
{
    struct arena *a = arena_new();
    struct str svg = {0}, rows = {0};
    const char *runs[CHART_LINES + 1] = {q->run};
    int n = 1;
    for (char *at = arena_strdup(a, q->beside), *word; (word = strsep(&at, ",")) && n <= CHART_LINES;) runs[n++] = word;
    int rc = several_draw(runs, n, &svg, &rows, e);
    if (!rc && q->svg) rc = fs_write_atomic(q->svg, str_text(&svg), svg.n, e);
    if (!rc) fputs(str_text(&rows), stdout);
    str_free(&svg);
    str_free(&rows);
    arena_free(a);
    return rc;
}

static int exponents(const struct request *q, struct err *e)
{
    struct str svg = {0};
    int rc = exponent_picture(q->run, q->step, &svg, e);
    if (!rc) rc = fs_write_atomic(q->exponents, str_text(&svg), svg.n, e);
    if (!rc) printf("%s\n", q->exponents);
    str_free(&svg);
    return rc;
}

int cmd_report(int argc, char **argv)
{
    struct request q = {0};
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    struct err e = {0};
    if (q.exponents) return exponents(&q, &e) ? cli_fail(&e) : 0;
    if (q.svg && !q.beside)
        rc = err_set(&e, ERR_REQUEST, "--svg is a picture of several runs: name others by --beside");
    else if (q.beside) rc = beside(&q, &e);
    if (q.svg || q.beside) return rc ? cli_fail(&e) : 0;
    char *file = q.html ? xstrdup(q.html) : fs_join(q.run, "report.html");
    rc = write_report(q.run, file, &e);
    if (!rc) printf("%s\n", file);
    xfree(file);
    return rc ? cli_fail(&e) : 0;
}
