/* setpriv (util-linux) makes the kernel send SIGTERM to a program whose parent has ended. */
#include "launch/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

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

static int set_signals(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    return posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF) ||
           posix_spawnattr_setpgroup(attributes, 0) ||
           posix_spawnattr_setsigmask(attributes, &none) ||
           posix_spawnattr_setsigdefault(attributes, &all);
}

static int set_files(posix_spawn_file_actions_t *files, int output)
{
    if (posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0)) return -1;
    if (output < 0) {
        return posix_spawn_file_actions_addopen(files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    }
    return posix_spawn_file_actions_adddup2(files, output, STDOUT_FILENO) ||
           posix_spawn_file_actions_adddup2(files, output, STDERR_FILENO);
}

/* argv after the words that make it end with us; to be freed. */
static char **with_setpriv(char *const argv[])
{
    static char setpriv[] = "setpriv", flag[] = "--pdeathsig", term[] = "TERM", end[] = "--";
    char *const first[] = {setpriv, flag, term, end};
    size_t n = 0, n_first = sizeof first / sizeof *first;
    while (argv[n])
        n++;
    char **words = calloc(n_first + n + 1, sizeof *words);
    if (!words) return NULL;
    memcpy(words, first, sizeof first);
    memcpy(words + n_first, argv, n * sizeof *words);
    return words;
}

/* output: the end of a pipe that the program writes to; -1: there is none. */
static int start(pid_t *pid, char *const argv[], int output, struct error *err)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    char **words = with_setpriv(argv);
    bool has_files = words && posix_spawn_file_actions_init(&files) == 0;
    bool has_both = has_files && posix_spawnattr_init(&attributes) == 0;
    int failure = has_both && !set_files(&files, output) && !set_signals(&attributes) ? 0 : ENOMEM;
    if (!failure) failure = posix_spawnp(pid, words[0], &files, &attributes, words, environ);
    if (has_files) posix_spawn_file_actions_destroy(&files);
    if (has_both) posix_spawnattr_destroy(&attributes);
    free(words);
    if (!failure) return 0;
    *pid = 0;
    if (failure == ENOMEM) return error_set(err, ERR_NO_MEMORY, "no memory to start %s", argv[0]);
    return error_set(err, ERR_IO, "cannot start %.200s by setpriv: %s", argv[0], strerror(failure));
}

int apart_start(pid_t *pid, char *const argv[], int *output, struct error *err)
{
    int ends[2];
    *pid = 0;
    if (!output) return start(pid, argv, -1, err);
    *output = -1;
    if (pipe2(ends, O_CLOEXEC)) return error_set(err, ERR_IO, "no pipe: %s", strerror(errno));
    int rc = start(pid, argv, ends[1], err);
    close(ends[1]);
    if (rc) close(ends[0]);
    if (!rc) *output = ends[0];
    return rc;
}
