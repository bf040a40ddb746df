/* SPDX-License-Identifier: Apache-2.0 */
/* tutti train CONFIG [-n RANKS] [key=value ...] */
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "base/log.h"
#include "base/str.h"
#include "base/crowd.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "train/trainer.h"

static void tell_keys(struct str *out)
{
    str_puts(out, "\nKeys:\n");
    conf_print_help(config_rows, out);
}

static const struct cli_option options[] = {
    CLI_RANKS(struct cli_args, ranks, 1 << 20, "ranks as threads of this process"),
    CLI_CROWD(struct cli_args, crowd),
    {"--json", NULL, CLI_FLAG, offsetof(struct cli_args, json), .help = NULL}, /* read, to say why there is none */
};
static const struct cli_word words[] = {{.name = "CONFIG", .at = offsetof(struct cli_args, config)}};
static const struct cli_table table = {
    .command = "train",
    .usage = "CONFIG [-n RANKS] [key=value ...]",
    .about = "Trains the model that CONFIG (YAML) describes. Keys may be given or changed on the command line:\n"
             "  tutti train examples/quickstart.yaml run.steps=100 data.train=docs\n"
             "Everything goes to run.dir; started again, the run goes on from its newest checkpoint. Under mpirun or "
             "srun the\n"
             "ranks are the processes.\n\n"
             "Signals: Ctrl-C (SIGINT), SIGTERM, SIGHUP (unless nohup), SIGUSR1, SIGUSR2 and SIGXCPU, to any of the "
             "ranks, let\n"
             "all finish the step, save and stop, with status 0. Before the first step there is nothing to save: the "
             "run ends\n"
             "within seconds, with status 128 + the signal's number. So does a second SIGINT or SIGTERM, more than a "
             "second\n"
             "after the first: at once, without saving. When nobody reads stderr any more (| head), the run goes on;\n"
             "metrics.jsonl has it all. SIGQUIT (Ctrl-\\): the stacks of all threads are written into run.dir, and the "
             "run goes on.\n"
             "Status: 0 done, or stopped and saved; 2 the request was wrong; 1 it failed while running.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
    .takes_keys = true,
    .keys = offsetof(struct cli_args, keys),
    .tell = tell_keys,
};

static void say_end(const struct trainer_result *r)
{
    char rate[32], time[32], valid[48] = "", loss[32] = "-"; /* the last step may have been left out */
    char speed[64] = "simulated";
    if (!isnan(r->tokens_per_s))
        snprintf(speed, sizeof speed, "%s %s/s", str_count(rate, r->tokens_per_s / (r->places ? (double)r->places : 1)),
                 r->places ? "pictures" : "tok");
    if (!isnan(r->loss)) snprintf(loss, sizeof loss, "%.4f", r->loss);
    if (isfinite(r->valid_loss)) snprintf(valid, sizeof valid, ", validation loss %.4f", r->valid_loss);
    log_info("%s after step %lld of %lld, loss %s%s, %s, %s; checkpoint %s",
             r->stopped ? "stopped"
             : r->early ? "stopped early"
                        : "done",
             (long long)r->steps, (long long)r->wanted, loss, valid, speed, str_duration(time, r->seconds),
             r->checkpoint);
}

int cmd_train(int argc, char **argv)
{
    struct cli_args a = {0};
    int rc;
    if (!cli_read(&table, argc, argv, &a, &rc)) return rc;
    if (a.json) return cli_usage("train", "there is no option --json: run.dir/metrics.jsonl has every step");
    struct trainer_result r;
    struct err e = {0};
    if (!comm_launched() && crowd_check(a.ranks, a.crowd, &e)) return cli_fail(&e);
    signal(SIGPIPE, SIG_IGN); /* who reads our lines may go, the run stays: its work is in files */
    rc = trainer_run(a.config, a.keys.p, a.keys.n, (int)a.ranks, &r, &e);
    if (rc && r.rank == 0 && !r.told) cli_fail(&e); /* one rank speaks */
    if (rc == ERR_SIGNAL) return 128 + (r.signal ? r.signal : SIGTERM);
    if (rc) return err_exit_status(e.code);
    if (r.rank > 0) return 0;
    if (r.stopped && r.first_step == r.steps) {
        log_info("stopped before the first step; nothing is lost");
        return 128 + r.signal;
    }
    if (r.first_step == r.steps && r.early)
        log_info("nothing left to do: evaluations ended the run after step %lld (run.stop_early; %s)",
                 (long long)r.steps, r.checkpoint);
    else if (r.first_step == r.steps)
        log_info("nothing left to do: all %lld steps are done (%s)", (long long)r.steps, r.checkpoint);
    else say_end(&r);
    return 0;
}
