/* tutti plan CONFIG [--json] [key=value ...] */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"
#include "plan/plan.h"

int cmd_plan(int argc, char **argv)
{
    if (cli_wants_help(argc, argv)) {
        printf("tutti plan CONFIG [-n RANKS] [--json] [key=value ...]\n\n"
               "Builds and steps the training program of CONFIG on a device that only counts, and prints memory by\n"
               "category, its peak, and floating-point operations. The bytes are those that training allocates,\n"
               "exactly; nothing is loaded and no data is read. CONFIG may leave out data.train.\n");
        return 0;
    }
    struct cli_args a;
    int rc = cli_config_args("plan", argc, argv, &a);
    if (rc) return rc;
    if (a.word) return cli_usage("plan", "one argument too many: %s", a.word);
    struct err e = {0};
    struct config c;
    struct plan p;
    struct arena *arena = arena_new();
    struct str out = {0};
    rc = cli_config(&c, NULL, arena, a.config, a.overrides, a.n_overrides, (int)a.ranks, &e);
    if (!rc) rc = plan_make(&p, &c, &e);
    if (!rc) {
        if (a.json)
            plan_json(&p, &out);
        else
            plan_print(&p, &c, &out);
        fputs(str_text(&out), stdout);
        plan_free(&p);
    }
    str_free(&out);
    arena_free(arena);
    return rc ? cli_fail(&e) : 0;
}
