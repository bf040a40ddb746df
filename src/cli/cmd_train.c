/* tutti train CONFIG [-n RANKS] [key=value ...] */
#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "cli/cli.h"
#include "run/trainer.h"

static void print_help(void)
{
    struct str s = {0};
    printf("tutti train CONFIG [-n RANKS] [key=value ...]\n\n"
           "Trains the model that CONFIG (YAML) describes. Keys may be given or changed on the command line:\n"
           "  tutti train my.yaml run.steps=100 data.train=texts/\n"
           "Everything goes to run.dir; started again, the run goes on from its newest checkpoint. Ctrl-C finishes\n"
           "the step, saves and stops. -n RANKS trains with RANKS ranks as threads of this process; under mpirun or srun\n"
           "the ranks are the processes.\n\nKeys:\n");
    conf_print_help(config_rows, &s);
    fputs(str_text(&s), stdout);
    str_free(&s);
}

int cmd_train(int argc, char **argv)
{
    if (cli_wants_help(argc, argv)) {
        print_help();
        return 0;
    }
    struct cli_args a;
    int rc = cli_config_args("train", argc, argv, &a);
    if (rc) return rc;
    if (a.word || a.json) return cli_usage("train", "one argument too many: %s", a.word ? a.word : "--json");
    struct trainer_result r;
    struct err e = {0};
    if (trainer_run(a.config, a.overrides, a.n_overrides, (int)a.ranks, &r, &e))
        return r.rank > 0 || r.told ? err_exit_status(e.code) : cli_fail(&e); /* one rank speaks */
    if (r.rank > 0) return 0;
    if (r.first_step == r.steps)
        log_info("nothing left to do: all %lld steps are done (%s)", (long long)r.steps, r.checkpoint);
    else
        log_info("%s after step %lld, loss %.4f; checkpoint %s", r.stopped ? "stopped" : "done", (long long)r.steps, r.loss,
                 r.checkpoint);
    return 0;
}
