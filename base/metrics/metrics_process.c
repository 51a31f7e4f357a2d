/* /proc/self as a table of metrics (proc(5)). */
#include "base/metrics/metrics_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/metrics/metrics_rows.h"

enum { STAT_BYTES = 1024 };

enum process_family {
    PROCESS_CPU,
    PROCESS_RESIDENT,
    PROCESS_VIRTUAL,
    PROCESS_THREADS,
    PROCESS_OPEN_FDS,
    PROCESS_MAX_FDS,
    PROCESS_START,
    PROCESS_FAMILIES
};

static const struct metric_family families[PROCESS_FAMILIES] = {
    COUNTER(PROCESS_CPU, "process_cpu_seconds_total", "User and system CPU time, of all threads.",
            .scale = METRIC_US),
    GAUGE(PROCESS_RESIDENT, "process_resident_memory_bytes", "Memory that is in RAM."),
    GAUGE(PROCESS_VIRTUAL, "process_virtual_memory_bytes", "Address space."),
    GAUGE(PROCESS_THREADS, "process_threads", "Threads."),
    GAUGE(PROCESS_OPEN_FDS, "process_open_fds", "Open file descriptors."),
    GAUGE(PROCESS_MAX_FDS, "process_max_fds", "File descriptors that may be open."),
    GAUGE(PROCESS_START, "process_start_time_seconds",
          "When the process was started, in seconds since 1970.", .scale = METRIC_MS),
};

struct metrics_process {
    struct metrics *metrics; /* only its numbers change */
    struct metrics_page *page;
    int stat_fd; /* /proc/self/stat; -1 = it cannot be read */
};

/* The fields of /proc/self/stat that are shown. */
struct stat_figures {
    long threads, resident_pages;
    unsigned long virtual_bytes;
    unsigned long long start_ticks; /* after boot */
};

/* The second field is the program's name in parentheses, with anything in it. */
static struct stat_figures read_stat(int fd)
{
    char text[STAT_BYTES];
    struct stat_figures f = {0};
    ssize_t len = fd < 0 ? 0 : pread(fd, text, sizeof text - 1, 0);
    text[len > 0 ? len : 0] = '\0';
    const char *rest = strrchr(text, ')');
    int n = rest ? sscanf(rest,
                          ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                          "%ld %*d %llu %lu %ld",
                          &f.threads, &f.start_ticks, &f.virtual_bytes, &f.resident_pages)
                 : 0;
    return n == 4 ? f : (struct stat_figures){0};
}

static int64_t microseconds(clockid_t clock)
{
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

/* Since 1970. Read once, because the two clocks drift apart and a new value means a new process. */
static int64_t start_ms(int stat_fd)
{
    long ticks = sysconf(_SC_CLK_TCK);
    unsigned long long start_ticks = read_stat(stat_fd).start_ticks;
    if (ticks <= 0 || !start_ticks) return 0;
    int64_t boot_ms = (microseconds(CLOCK_REALTIME) - microseconds(CLOCK_BOOTTIME)) / 1000;
    return boot_ms + (int64_t)(start_ticks * 1000 / (unsigned long long)ticks);
}

/* Linux says the number as the folder's size since 6.2. A server with a thousand clients should not
 * list them all for each scrape. */
static int64_t count_fds(void)
{
    int64_t n = 0;
    struct stat known;
    if (stat("/proc/self/fd", &known) == 0 && known.st_size > 0) return known.st_size;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return 0;
    while (readdir(folder)) {
        n++;
    }
    closedir(folder);
    return n - 3; /* ".", ".." and the folder itself */
}

static int64_t max_fds(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    return limit.rlim_cur > INT64_MAX ? INT64_MAX : (int64_t)limit.rlim_cur;
}

int metrics_process_open(struct metrics_process **process, struct error *err)
{
    int rc = 0;
    const struct metrics_view view = {.prefix = "", .labels = "", .n = PROCESS_FAMILIES};
    struct metrics_process *p = NULL;
    *process = NULL;
    TRY(mem_array(&p, 1, sizeof *p, err));
    p->stat_fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    TRY(metrics_open(&p->metrics, families, PROCESS_FAMILIES, err));
    TRY(metrics_page_open(&p->page, p->metrics, &view, err));
    metrics_set(p->metrics, PROCESS_START, 0, start_ms(p->stat_fd));
    *process = p;
    p = NULL;
out:
    metrics_process_close(p);
    return rc;
}

void metrics_process_close(struct metrics_process *p)
{
    if (!p) return;
    if (p->stat_fd >= 0) close(p->stat_fd);
    metrics_page_close(p->page);
    metrics_close(p->metrics);
    free(p);
}

int metrics_process_write(struct metrics_process *p, struct buffer *out, struct error *err)
{
    const struct stat_figures f = read_stat(p->stat_fd);
    struct metrics *m = p->metrics;
    metrics_set(m, PROCESS_CPU, 0, microseconds(CLOCK_PROCESS_CPUTIME_ID));
    metrics_set(m, PROCESS_RESIDENT, 0, (int64_t)f.resident_pages * sysconf(_SC_PAGESIZE));
    metrics_set(m, PROCESS_VIRTUAL, 0, (int64_t)f.virtual_bytes);
    metrics_set(m, PROCESS_THREADS, 0, f.threads);
    metrics_set(m, PROCESS_OPEN_FDS, 0, count_fds());
    metrics_set(m, PROCESS_MAX_FDS, 0, max_fds());
    return metrics_page_write(p->page, out, err);
}
