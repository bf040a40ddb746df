/* SPDX-License-Identifier: Apache-2.0 */
/* One child at a time, and a loop that waits for signals, SIGCHLD among them: no handler runs, nothing is polled but
 * the run's last step, once a second. What the job does is known from its exit status and from the files that it writes
 * for everybody (metrics.jsonl, ends.jsonl), so any launcher may stand between. */
#include "train/relaunch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stacks.h"
#include "base/str.h"
#include "watch/hang_groups.h"

#define LOOK_S 0.5   /* between looks at the run's last step */
#define LOCK_S 60.0  /* for what is left of a job to leave the run's directory */
#define STACKS_S 8.0 /* for a job that is quiet to say where it is */
#define TAIL_BYTES 65536
#define ENDS_MOST ((size_t)16 << 20)

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
enum { N_PASSED = sizeof passed_on / sizeof *passed_on };

/* ---- what the run's files say ---- */
/* What cannot be read is not taken for what is not there: it is told. */
static void say_unread(const struct err *e) { log_warn("launch: what the run has done is not known: %s", e->text); }

/* The last whole line, NULL: there is none. */
static int last_line(struct json **v, const char *run_dir, const char *name, struct err *e)
{
    *v = NULL;
    char *path = fs_join(run_dir, name), *text;
    struct fs_file f;
    bool none = fs_absent(path);
    int code = none ? OK : fs_file_open(&f, path, e);
    xfree(path);
    if (none || code) return code;
    text = xmalloc(TAIL_BYTES + 1);
    int64_t at = f.bytes > TAIL_BYTES ? f.bytes - TAIL_BYTES : 0, n = f.bytes - at;
    code = fs_file_read(&f, at, (size_t)n, text, e);
    fs_file_close(&f);
    while (!code && n && text[n - 1] != '\n') n--; /* being written */
    int64_t end = n ? n - 1 : 0, begin = end;
    while (!code && begin && text[begin - 1] != '\n') begin--;
    if (!code && end > begin && json_parse(v, text + begin, (size_t)(end - begin), name, NULL)) *v = NULL;
    xfree(text);
    return code;
}

/* In metrics.jsonl, 0 none; < 0: it cannot be read. */
static int64_t last_step(const char *run_dir, struct err *e)
{
    struct json *v = NULL;
    int code = run_dir ? last_line(&v, run_dir, "metrics.jsonl", e) : OK;
    int64_t step = v ? json_int(json_get(v, "step"), 0) : 0;
    json_free(v);
    return code ? code : step;
}

static bool is_finished(const char *run_dir)
{
    struct err e;
    struct json *v = NULL;
    if (run_dir && last_line(&v, run_dir, "ends.jsonl", &e)) say_unread(&e);
    bool finished = v && json_bool(json_get(v, "finished"), false);
    json_free(v);
    return finished;
}

enum { ENDS_UNKNOWN = -1 };
static int64_t count_ends(const char *run_dir)
{
    char *path = fs_join(run_dir, "ends.jsonl"), *text = NULL;
    size_t n = 0;
    struct err e;
    int64_t lines = 0;
    int code = fs_absent(path) ? OK : fs_read_all(path, ENDS_MOST, &text, &n, &e);
    for (size_t i = 0; i < n; i++) lines += text[i] == '\n';
    if (code) say_unread(&e);
    xfree(text);
    xfree(path);
    return code ? ENDS_UNKNOWN : lines;
}

/* ---- the job ---- */
struct job_run {
    const struct relaunch *l;
    sigset_t watched, before;
    pid_t child, self;
    int64_t ends;  /* of the run, when the job was started */
    int64_t step;  /* the last that was read */
    bool unread;   /* what came after it cannot be */
    int asked;     /* the signal that this process got, 0 none */
    bool silenced; /* killed for being quiet */
};

__attribute__((noreturn)) static void become(const struct job_run *j)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != j->self) _exit(128 + SIGTERM); /* it was gone before that */
    sigprocmask(SIG_SETMASK, &j->before, NULL);
    if (isatty(STDIN_FILENO)) { /* a process group behind the terminal is stopped when it reads from it */
        int none = open("/dev/null", O_RDONLY);
        if (none >= 0) dup2(none, STDIN_FILENO);
    }
    execvp(j->l->argv[0], j->l->argv);
    int why = errno;
    fprintf(stderr, "tutti launch: %s: cannot be started: %s\n", j->l->argv[0], strerror(why));
    _exit(why == ENOENT ? 127 : 126);
}

static int start(struct job_run *j, struct err *e)
{
    fflush(NULL);
    j->silenced = false;
    j->ends = j->l->run_dir ? count_ends(j->l->run_dir) : 0;
    j->child = fork();
    if (j->child < 0) return err_errno(e, ERR_IO, errno, "%s: cannot be started", j->l->argv[0]);
    if (j->child == 0) become(j);
    setpgid(j->child, j->child); /* whoever is first */
    return OK;
}

/* The run's last step, as far as it can be read. */
static int64_t step_of(struct job_run *j)
{
    struct err e;
    int64_t step = last_step(j->l->run_dir, &e);
    if (step < 0 && !j->unread) say_unread(&e);
    j->unread = step < 0;
    if (step >= 0) j->step = step;
    return j->step;
}

/* A signal that came, 0 none in that time. */
static int next_signal(const struct job_run *j, double wait_s)
{
    struct timespec t = {.tv_sec = (time_t)wait_s, .tv_nsec = (long)(1e9 * (wait_s - (double)(time_t)wait_s))};
    siginfo_t info;
    int n = sigtimedwait(&j->watched, &info, &t);
    return n > 0 ? n : 0;
}

/* ---- all processes below this one, whatever groups and sessions their launchers made ---- */
struct pids {
    pid_t *pid;
    int n, room;
};

static void add_below(struct pids *p, pid_t of)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/task", (long)of);
    char **tasks;
    int n;
    if (fs_list(path, &tasks, &n, NULL)) return;
    for (int i = 0; i < n; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s/%.20s/children", path, tasks[i]);
        FILE *f = fopen(name, "re");
        for (long child; f && fscanf(f, "%ld", &child) == 1;) {
            GROW(p->pid, p->n, p->room, 1);
            p->pid[p->n++] = (pid_t)child;
            add_below(p, (pid_t)child);
        }
        if (f) fclose(f);
    }
    fs_list_free(tasks, n);
}

/* Those that run; a process that has ended stays until somebody asks for its status. */
static struct pids list_below(pid_t of)
{
    struct pids all = {0}, alive = {0};
    add_below(&all, of);
    for (int i = 0; i < all.n; i++) {
        struct stack *list = NULL;
        int n = 0;
        bool is = !stacks_look(all.pid[i], &list, &n, NULL) && n && !strchr("ZX", list[0].state);
        xfree(list);
        if (!is) continue;
        GROW(alive.pid, alive.n, alive.room, 1);
        alive.pid[alive.n++] = all.pid[i];
    }
    xfree(all.pid);
    return alive;
}

static void kill_below(const struct job_run *j)
{
    for (int tries = 0; tries < 50; tries++) {
        struct pids p = list_below(j->self);
        for (int i = 0; i < p.n; i++) kill(p.pid[i], SIGKILL);
        bool none = p.n == 0;
        xfree(p.pid);
        if (none) return;
        clock_sleep_s(0.02);
    }
}

/* A rank that can be asked writes the stacks of all ranks of this host (watch/hang.h). */
static void ask_for_stacks(const struct job_run *j)
{
    struct pids p = list_below(j->self);
    char *path = j->l->run_dir ? fs_join(j->l->run_dir, HANG_SUMMARY) : NULL;
    struct stat s;
    bool asked = false;
    for (int i = 0; path && i < p.n && !asked; i++) {
        struct stack *list = NULL;
        int n = 0;
        bool writes = false;
        if (stacks_look(p.pid[i], &list, &n, NULL)) n = 0;
        for (int k = 0; k < n; k++) writes |= !strcmp(list[k].name, "stacks");
        xfree(list);
        ino_t before = stat(path, &s) ? 0 : s.st_ino;
        asked = writes && stacks_catches(p.pid[i], SIGQUIT) && !kill(p.pid[i], SIGQUIT);
        double until = clock_now_s() + STACKS_S;
        while (asked && (stat(path, &s) || s.st_ino == before) && clock_now_s() < until) clock_sleep_s(0.02);
    }
    xfree(p.pid);
    xfree(path);
}

/* Until the job is over: its wait status. */
static int watch(struct job_run *j)
{
    int status;
    int64_t step = step_of(j);
    double since = clock_now_s();
    for (;;) {
        pid_t over;
        while ((over = waitpid(-1, &status, WNOHANG)) > 0 && over != j->child) continue; /* others came to be below */
        if (over == j->child || (over < 0 && errno != EINTR)) return over < 0 ? 1 << 8 : status;
        int n = next_signal(j, LOOK_S);
        if (n && n != SIGCHLD) {
            j->asked = n;
            kill(j->child, n);
        }
        int64_t now = j->l->quiet_s > 0 ? step_of(j) : step;
        if (now != step || j->unread) since = clock_now_s();
        step = now;
        if (j->l->quiet_s <= 0 || clock_now_s() - since < j->l->quiet_s || j->silenced) continue;
        log_warn("launch: no new step after step %lld for %g s: the job is killed", (long long)step, j->l->quiet_s);
        j->silenced = true;
        ask_for_stacks(j);
        kill_below(j);
    }
}

/* What a launcher that was killed leaves behind notices it (train/signals.h) and may still save: the next start waits
 * until it has left the run's directory. False: a signal came meanwhile. */
static bool wait_for_the_rest(struct job_run *j)
{
    struct fs_lock lock;
    double from = clock_now_s();
    if (!j->l->run_dir || !fs_is_dir(j->l->run_dir)) return true;
    char *path = fs_join(j->l->run_dir, "lock");
    while (fs_lock_take(&lock, path, NULL)) {
        if (!lock.busy) break;
        if (clock_now_s() - from > LOCK_S) {
            kill(-j->child, SIGKILL);
            log_warn("launch: what is left of the job holds %s for more than %g s", path, LOCK_S);
            break;
        }
        int n = next_signal(j, 0.1);
        if (n && n != SIGCHLD) j->asked = n;
        if (j->asked) break;
    }
    if (lock.fd >= 0 && !lock.busy) fs_lock_release(&lock);
    xfree(path);
    return !j->asked;
}

static void say_how(int status, char out[64])
{
    if (WIFSIGNALED(status))
        snprintf(out, 64, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) > 128 && WEXITSTATUS(status) < 128 + 65)
        snprintf(out, 64, "ended with status %d (%s)", WEXITSTATUS(status), strsignal(WEXITSTATUS(status) - 128));
    else snprintf(out, 64, "ended with status %d", WEXITSTATUS(status));
}

/* The status that needs no other start, -1: it died. */
static int final_status(struct job_run *j, int status)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    bool told = WIFEXITED(status) && (code == 0 || code == 2 || code == 126 || code == 127);
    int64_t ends = code == 1 && j->l->run_dir ? count_ends(j->l->run_dir) : 0;
    bool failed =
        code == 1 && j->l->run_dir && (ends == j->ends || ends == ENDS_UNKNOWN); /* it did not come to its end */
    if (j->asked && failed) {
        log_warn("launch: the job got a signal and failed; it is not started again");
        return 1;
    }
    if (j->asked && (code == 0 || !told)) {
        bool finished = is_finished(j->l->run_dir);
        if (code == 0 && (finished || !j->l->run_dir)) return 0;
        log_info("launch: stopped by a signal after step %lld; the same command goes on from there",
                 (long long)step_of(j));
        return RELAUNCH_AGAIN;
    }
    return told ? code : -1;
}

/* False: a signal came meanwhile. */
static bool pause_for(struct job_run *j, double wait_s)
{
    for (double until = clock_now_s() + wait_s, left; (left = until - clock_now_s()) > 0;) {
        int n = next_signal(j, left);
        if (n && n != SIGCHLD) j->asked = n;
        if (j->asked) return false;
    }
    return true;
}

static void watch_signals(struct job_run *j)
{
    struct sigaction now;
    sigemptyset(&j->watched);
    sigaddset(&j->watched, SIGCHLD);
    for (int i = 0; i < N_PASSED; i++)
        if (!sigaction(passed_on[i], NULL, &now) && now.sa_handler != SIG_IGN) sigaddset(&j->watched, passed_on[i]);
    sigprocmask(SIG_BLOCK, &j->watched, &j->before);
}

int relaunch_run(const struct relaunch *l, int *status, struct err *e)
{
    struct job_run j = {.l = l, .self = getpid()};
    int64_t tries = 0, best = step_of(&j), all = 0;
    int rc = OK;
    watch_signals(&j);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* processes whose launcher dies stay below this one */
    while (!(rc = start(&j, e))) {
        char how[64];
        double from = clock_now_s();
        int ended = watch(&j);
        int64_t step = step_of(&j);
        if ((*status = final_status(&j, ended)) >= 0) break;
        tries = step > best ? 1 : tries + 1;
        best = step > best ? step : best;
        say_how(ended, how);
        if (tries > l->restarts) {
            log_warn("launch: the job %s after %.0f s, at step %lld; that was start %lld without a new step, the last "
                     "(--restarts)",
                     j.silenced ? "was quiet, and was killed" : how, clock_now_s() - from, (long long)step,
                     (long long)tries);
            *status = 1;
            break;
        }
        double wait_s = l->pause_s;
        for (int64_t i = 1; i < tries && wait_s < l->most_s; i++) wait_s *= 2;
        wait_s = wait_s < l->most_s ? wait_s : l->most_s;
        log_warn("launch: the job %s after %.0f s, at step %lld; started again in %g s (restart %lld, %lld of %lld "
                 "without a new step)",
                 j.silenced ? "was quiet, and was killed" : how, clock_now_s() - from, (long long)step, wait_s,
                 (long long)++all, (long long)tries, (long long)l->restarts);
        if (!pause_for(&j, wait_s) || !wait_for_the_rest(&j)) {
            *status = RELAUNCH_AGAIN;
            break;
        }
    }
    sigprocmask(SIG_SETMASK, &j.before, NULL);
    return rc;
}
