/* SPDX-License-Identifier: Apache-2.0 */
/* tutti plan CONFIG [--json] [key=value ...] */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "cli/cli.h"
#include "config/afford.h"
#include "config/traps.h"
#include "plan/plan.h"
#include "train/datasets.h"

struct waiting { /* of somebody at a terminal */
    double from;
    int64_t layers;
    bool said;
};

/* Many layers or many roles take seconds: a word after one second, or at once where one role will take that long. */
static void say(void *ctx, int done, int of)
{
    enum { MANY = 2000 };
    struct waiting *w = ctx;
    if (!log_is_terminal() || (w->layers < MANY && clock_now_s() - w->from < 1)) return;
    log_status("planning %lld layers: %d of %d kinds of ranks", (long long)w->layers, done, of);
    w->said = true;
}

/* What a run would refuse before its first step. */
static int within_limit(const struct plan *p, const struct config *c, struct err *e)
{
    int rc = OK;
    for (int i = 0; !rc && i < p->n_roles; i++) rc = afford_limit(c, p->role[i].bytes, p->role[i].peak_bytes, e);
    return rc;
}

static const struct cli_option options[] = {CLI_RANKS(struct cli_args, ranks, 1 << 20, "how many ranks train"),
                                            CLI_JSON(struct cli_args, json)};
static const struct cli_word words[] = {{.name = "CONFIG", .at = offsetof(struct cli_args, config)}};
static const struct cli_table table = {
    .command = "plan",
    .usage = "CONFIG [-n RANKS] [--json] [key=value ...]",
    .about = "Builds and steps the training program of CONFIG on a device that only counts, and prints memory by\n"
             "category, its peak, and floating-point operations. The bytes are those that training allocates,\n"
             "exactly; nothing is loaded and no data is read. CONFIG may leave out data.train. What train\n"
             "refuses of a config is refused here too, memory.limit among it, after the plan is printed.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
    .takes_keys = true,
    .keys = offsetof(struct cli_args, keys),
};

int cmd_plan(int argc, char **argv)
{
    struct cli_args a = {.ranks = 1};
    int rc;
    if (!cli_read(&table, argc, argv, &a, &rc)) return rc;
    struct err e = {0};
    struct config c;
    struct plan p;
    struct chosen chosen = {0};
    struct arena *arena = arena_new();
    struct str out = {0};
    struct conf *f;
    rc = cli_config(&c, &f, arena, a.config, a.keys.p, a.keys.n, (int)a.ranks, &e);
    if (!rc) rc = traps_check(&c, f, &e);
    if (!rc) rc = datasets_check(&c, f, &e);
    struct waiting w = {.from = clock_now_s(), .layers = rc ? 0 : c.model.layers};
    if (!rc) rc = plan_choose(&c, &chosen, &(struct plan_watch){say, &w}, &e);
    if (!rc) rc = plan_make_watched(&p, &c, &(struct plan_watch){say, &w}, &e);
    if (w.said) log_status_end();
    if (!rc) {
        if (a.json) plan_json(&p, &c, &chosen, &out);
        else plan_print(&p, &c, &out);
        if (!a.json) plan_print_chosen(&chosen, &c, &out);
        fputs(str_text(&out), stdout);
        rc = within_limit(&p, &c, &e); /* what it is for is printed, and that it cannot be is said */
        plan_free(&p);
    }
    str_free(&out);
    arena_free(arena);
    return rc ? cli_fail(&e) : 0;
}
