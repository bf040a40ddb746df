/* SPDX-License-Identifier: Apache-2.0 */
#include "run/starts.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/thread.h"
#include "run/append.h"

/* The first "model name" of /proc/cpuinfo; "" where the system tells none (ARM). */
static void cpu_name(char out[128])
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    out[0] = 0;
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon += strspn(colon, ": \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, 128, "%s", colon);
    }
    if (f) fclose(f);
}

int starts_write(const char *dir, const struct starts_note *s, struct err *e)
{
    char host[256] = "", cpu[128], now[32] = "";
    time_t t = time(NULL);
    struct tm utc;
    if (gethostname(host, sizeof host - 1)) host[0] = 0;
    if (gmtime_r(&t, &utc)) strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", &utc);
    cpu_name(cpu);
    struct str line = {0};
    struct json_out o = {.s = &line};
    json_begin_object(&o, NULL);
    json_put_string(&o, "time", now);
    json_put_string(&o, "version", TUTTI_VERSION);
    json_put_string(&o, "host", host);
    json_put_string(&o, "cpu", cpu);
    json_put_int(&o, "cores", thread_n_cores());
    json_put_int(&o, "memory_bytes", (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE));
    json_put_int(&o, "ranks", s->ranks);
    json_put_int(&o, "threads", s->threads);
    json_put_string(&o, "kernels", s->kernels);
    json_put_string(&o, "transport", s->transport ? s->transport : "");
    json_put_int(&o, "step", s->step);
    json_end_object(&o);
    int rc = append_line(dir, "starts.jsonl", &line, e);
    str_free(&line);
    return rc;
}
