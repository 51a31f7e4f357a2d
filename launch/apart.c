/* fork instead of posix_spawn, because a child must ask for the signal of its parent's end, and
 * look whether the parent has ended before that. Until it runs its program, it calls only what is
 * safe beside threads. */
#include "launch/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    STATUS_OF_SIGNAL = 128,
    NOT_STARTED = 127,
    STOP_MS = 10000,
    KILL_MS = 3000,
    STOP_LOOK_NS = 20000000
};

int apart_find(char *path, size_t size, const char *name, struct error *err)
{
    ssize_t len = readlink("/proc/self/exe", path, size - 1);
    path[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash + 1 - path) : 0;
    if (folder + strlen(name) >= size) return error_set(err, ERR_NOT_FOUND, "%s: no room", name);
    memcpy(path + folder, name, strlen(name) + 1);
    if (access(path, X_OK) == 0) return 0;
    return error_set(err, ERR_NOT_FOUND, "%.200s is not there, or cannot be run: %s", path,
                     strerror(errno));
}

/* ---- a start, in the child ---- */

static void restore_signals(void)
{
    const struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++)
        sigaction(number, &standard, NULL); /* some cannot be changed */
}

static int set_files(int output, int errors)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0) return -1;
    if (output == APART_NOWHERE) output = nothing;
    if (errors == APART_NOWHERE) errors = nothing;
    bool is_set = dup2(nothing, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 &&
                  dup2(errors, STDERR_FILENO) >= 0;
    return is_set ? 0 : -1;
}

/* failure: the end of a pipe that gets errno, and is closed when the program runs. */
static _Noreturn void become(char *const argv[], pid_t parent, int output, int errors, int failure)
{
    sigset_t none;
    sigemptyset(&none);
    restore_signals();
    bool is_set = setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGTERM) == 0;
    if (getppid() != parent) _exit(NOT_STARTED);
    if (is_set && set_files(output, errors) == 0 && sigprocmask(SIG_SETMASK, &none, NULL) == 0) {
        execvp(argv[0], argv);
    }
    const int cause = errno;
    ssize_t n = write(failure, &cause, sizeof cause);
    (void)n;
    _exit(NOT_STARTED);
}

/* ---- a start ---- */

int apart_start(pid_t *pid, char *const argv[], int output, int errors, struct error *err)
{
    int ends[2], cause = 0;
    pid_t self = getpid();
    *pid = 0;
    if (pipe2(ends, O_CLOEXEC)) return error_set(err, ERR_IO, "no pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child == 0) become(argv, self, output, errors, ends[1]);
    if (child < 0) cause = errno;
    close(ends[1]);
    while (child > 0 && read(ends[0], &cause, sizeof cause) < 0 && errno == EINTR) {
    }
    close(ends[0]);
    if (!cause) {
        *pid = child;
        return 0;
    }
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    return error_set(err, ERR_IO, "cannot start %.200s: %s", argv[0], strerror(cause));
}

int apart_start_piped(pid_t *pid, char *const argv[], int *pipe, struct error *err)
{
    int ends[2];
    *pid = 0;
    *pipe = -1;
    if (pipe2(ends, O_CLOEXEC)) return error_set(err, ERR_IO, "no pipe: %s", strerror(errno));
    int rc = apart_start(pid, argv, ends[1], ends[1], err);
    close(ends[1]);
    if (rc) close(ends[0]);
    if (!rc) *pipe = ends[0];
    return rc;
}

/* ---- the end ---- */

int apart_status(int how)
{
    return WIFEXITED(how) ? WEXITSTATUS(how) : STATUS_OF_SIGNAL + WTERMSIG(how);
}

const char *apart_say_status(int status, char text[APART_STATUS_BYTES])
{
    bool is_signal = status > STATUS_OF_SIGNAL;
    snprintf(text, APART_STATUS_BYTES, "%s %d", is_signal ? "signal" : "status",
             is_signal ? status - STATUS_OF_SIGNAL : status);
    return text;
}

bool apart_has_ended(pid_t pid, int *status)
{
    int how;
    pid_t ended = waitpid(pid, &how, WNOHANG);
    if (ended == pid) *status = apart_status(how);
    return ended == pid || (ended < 0 && errno == ECHILD);
}

/* False when the group still has members after ms. */
static bool wait_group(pid_t pid, int ms)
{
    const struct timespec pause = {.tv_nsec = STOP_LOOK_NS};
    int64_t end_ms = clock_now_ms() + ms;
    for (;;) {
        int status;
        (void)apart_has_ended(pid, &status);
        if (kill(-pid, 0) && errno == ESRCH) return true;
        if (clock_now_ms() >= end_ms) return false;
        nanosleep(&pause, NULL);
    }
}

void apart_stop(pid_t pid)
{
    if (pid <= 0) return;
    kill(-pid, SIGTERM);
    if (wait_group(pid, STOP_MS)) return;
    kill(-pid, SIGKILL);
    wait_group(pid, KILL_MS);
}
