/* SPDX-License-Identifier: Apache-2.0 */
/* tutti launch [--restarts K] -- mpirun|srun|tutti ... tutti train CONFIG ... */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cli.h"
#include "train/relaunch.h"

struct args {
    int64_t restarts;
    double pause_s, most_s, quiet_s;
    struct cli_words job;
};
static const struct cli_option options[] = {
    {"--restarts", "K", CLI_INT, offsetof(struct args, restarts), .lo = 0, .hi = 1000000,
     .help = "starts in a row without a step that was not there before, until it gives up"},
    {"--pause", "S", CLI_REAL, offsetof(struct args, pause_s), .least = 0, .most = 86400,
     .help = "seconds before the job is started again; doubled for each start without a new step"},
    {"--pause-most", "S", CLI_REAL, offsetof(struct args, most_s), .least = 0, .most = 86400, .help = "and at most"},
    {"--quiet", "S", CLI_REAL, offsetof(struct args, quiet_s), .least = 0, .most = 1e9,
     .help = "kill a job that has made no step for so long, its set-up included; 0: never"},
};
static const struct cli_word words[] = {{.name = "COMMAND", .at = offsetof(struct args, job), .many = true}};
static const struct cli_table table = {
    .command = "launch",
    .usage = "[--restarts K] [--pause S] [--quiet S] -- COMMAND",
    .about =
        "Starts a training job, and starts it again when it dies: a signal, a rank that is gone, a full disk. COMMAND "
        "is\n"
        "what starts it without launch: tutti train CONFIG -n 8, or mpirun or srun before tutti train. The run goes on "
        "from its\n"
        "newest checkpoint, in memory (checkpoint.memory_every) or on disk.\n\n"
        "Each start is said with its cause. New steps in run.dir/metrics.jsonl reset the count. Signals go on to the "
        "job, which\n"
        "saves and stops, and is not started again.\n"
        "Status: 0 done; 2 the request was wrong; 75 stopped by a signal before the last step (start it again; Slurm:\n"
        "RequeueExit=75); 1 given up, or failed after a signal; 126, 127 there is no such command.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
};

/* ---- where the run's files are ---- */
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The words behind `tutti train`, or NULL: it is another command. */
static char **behind_train(char **argv)
{
    for (; argv[0] && argv[1]; argv++)
        if (str_starts(last_part(argv[0]), "tutti") && !strcmp(argv[1], "train")) return argv + 2;
    return NULL;
}

/* run.dir as the job will have it. What is wrong with its command line or config the job says itself. */
static char *find_run_dir(char **argv)
{
    char *keys[CLI_MAX_KEYS], *dir = NULL, **w = behind_train(argv);
    const char *path = NULL;
    int n = 0;
    for (; w && *w; w++) {
        if (!strcmp(*w, "-n") && w[1]) w++;
        else if (**w == '-') continue;
        else if (cli_is_key(*w) && strchr(*w, '=')) {
            if (n < CLI_MAX_KEYS) keys[n++] = *w;
        } else if (!path) path = *w;
    }
    struct arena *a = arena_new();
    struct config c;
    struct err why;
    if (w && config_load(&c, NULL, a, path, keys, n, &why) == OK) {
        dir = xstrdup(c.run.dir);
        if (strcmp(c.checkpoint.resume, "auto"))
            log_warn("launch: checkpoint.resume: %s: every start goes back to that, and what was done since is lost; "
                     "choose auto",
                     c.checkpoint.resume);
    }
    arena_free(a);
    return dir;
}

int cmd_launch(int argc, char **argv)
{
    struct args a = {.restarts = 10, .pause_s = 1, .most_s = 60};
    struct err e = {0};
    int status;
    if (!cli_read(&table, argc, argv, &a, &status)) return status;
    char **job = xcalloc((size_t)a.job.n + 1, sizeof *job);
    for (int i = 0; i < a.job.n; i++) job[i] = (char *)(uintptr_t)a.job.p[i];
    char *dir = find_run_dir(job);
    if (!dir && a.quiet_s > 0) {
        err_set(&e, ERR_REQUEST,
                "--quiet: no run.dir is found in the command (tutti train CONFIG ...), so no step of the job is seen; "
                "leave --quiet out");
        xfree(job);
        return cli_fail(&e);
    }
    if (!dir)
        log_warn(
            "launch: no run.dir is found in the command (tutti train CONFIG ...): steps are not seen, and --restarts "
            "counts all starts");
    struct relaunch l = {.argv = job,
                         .run_dir = dir,
                         .restarts = a.restarts,
                         .pause_s = a.pause_s,
                         .most_s = a.most_s > a.pause_s ? a.most_s : a.pause_s,
                         .quiet_s = a.quiet_s};
    int rc = relaunch_run(&l, &status, &e);
    xfree(dir);
    xfree(job);
    return rc ? cli_fail(&e) : status;
}
