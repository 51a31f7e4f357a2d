/* Runs programs to their end. */
#include "client/serve/helper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "launch/apart.h"

enum { RUN_MS = 120000 };

int helper_find(char *path, size_t size, const char *name, struct error *err)
{
    int rc = apart_find(path, size, name, err);
    return rc ? error_wrap(err, "the program %s belongs beside this one", name) : 0;
}

/* Reads until the program closes its output. */
static int read_all(int fd, char *text, size_t size, struct error *err)
{
    int64_t end_ms = clock_now_ms() + RUN_MS;
    size_t len = 0;
    for (;;) {
        char more[1024];
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left_ms = end_ms - clock_now_ms();
        if (left_ms <= 0) return error_set(err, ERR_TIMEOUT, "not done after %d s", RUN_MS / 1000);
        if (poll(&wait, 1, (int)left_ms) < 0 && errno != EINTR) break;
        if (!wait.revents) continue;
        ssize_t n = read(fd, more, sizeof more);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        size_t kept = (size_t)n < size - 1 - len ? (size_t)n : size - 1 - len;
        memcpy(text + len, more, kept);
        len += kept;
    }
    text[len] = '\0';
    return 0;
}

int helper_run(char *const words[], char *text, size_t size, int *status, struct error *err)
{
    int output, how = 0, rc = 0;
    pid_t pid;
    text[0] = '\0';
    TRY(apart_start_piped(&pid, words, &output, err));
    rc = read_all(output, text, size, err);
    close(output);
    if (rc) kill(pid, SIGKILL);
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
    }
    *status = apart_status(how);
out:
    return rc;
}
