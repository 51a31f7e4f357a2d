#include "launch/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { YOUNG_S = 60, PARENT_BYTES_MAX = 60 }; /* there are sockets below: 107 bytes at most */

static const char prefix[] = "outrider-mpirun.";

/* Removes a folder with everything in it, as far as that can be done. Links are not followed. */
static void remove_tree(int parent, const char *name)
{
    if (unlinkat(parent, name, 0) == 0) return;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder) {
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            bool is_self = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
            if (!is_self) remove_tree(fd, entry->d_name);
        }
        closedir(folder);
    }
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* True if the folder is ours and no process uses it any more. One that is young may not be locked
 * yet. */
static bool is_stale(int parent, const char *name)
{
    struct stat st;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    bool is_ours = fstat(fd, &st) == 0 && st.st_uid == geteuid();
    bool is_old = is_ours && time(NULL) - st.st_mtime > YOUNG_S;
    bool is_free = is_old && flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return is_free;
}

static void sweep(const char *parent)
{
    DIR *folder = opendir(parent);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0) continue;
        if (is_stale(dirfd(folder), entry->d_name)) remove_tree(dirfd(folder), entry->d_name);
    }
    closedir(folder);
}

/* The descriptor stays open, and the processes that are started hold the lock, too. */
static int make(char path[SCRATCH_PATH_BYTES], const char *parent, const char *suffix)
{
    unsigned number = 0;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) return -1;
    snprintf(path, SCRATCH_PATH_BYTES, "%s/%s%ld.%u.%s", parent, prefix, (long)getpid(), number,
             suffix);
    if (mkdir(path, 0700)) return -1;
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    return fd < 0 || flock(fd, LOCK_EX | LOCK_NB) ? -1 : 0;
}

static const char *files_folder(void)
{
    const char *files = getenv("TMPDIR");
    return files && *files && strlen(files) <= PARENT_BYTES_MAX ? files : "/tmp";
}

int scratch_open(struct scratch *scratch)
{
    const char *files = files_folder(), *memory = "/dev/shm";
    if (access(memory, W_OK | X_OK)) memory = files;
    sweep(memory);
    sweep(files);
    if (make(scratch->memory, memory, "m")) return -1;
    return make(scratch->session, files, "s");
}

void scratch_remove(const struct scratch *scratch)
{
    remove_tree(AT_FDCWD, scratch->memory);
    remove_tree(AT_FDCWD, scratch->session);
}

int scratch_open_folder(char path[SCRATCH_PATH_BYTES])
{
    const char *files = files_folder();
    sweep(files);
    return make(path, files, "f");
}

void scratch_remove_folder(const char *path)
{
    remove_tree(AT_FDCWD, path);
}
