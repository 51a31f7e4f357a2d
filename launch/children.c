#include "launch/children.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* /proc/PID/stat: "12 (name) S 1 ..."; a name may hold brackets and blanks, but ends with the last
 * bracket. */
static bool is_child(const char *pid, pid_t parent, const char *name)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    bool is_read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    char *begin = strchr(line, '('), *end = strrchr(line, ')');
    char state;
    int of;
    if (!is_read || !begin || !end || sscanf(end + 1, " %c %d", &state, &of) != 2) return false;
    *end = '\0';
    return of == (int)parent && state != 'Z' && strcmp(begin + 1, name) == 0;
}

void children_find(struct children *children, pid_t parent, const char *name)
{
    children->n = 0;
    DIR *proc = opendir("/proc");
    if (!proc) return;
    for (struct dirent *entry; children->n < CHILDREN_MAX && (entry = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        if (pid <= 0 || !is_child(entry->d_name, parent, name)) continue;
        children->pids[children->n++] = pid;
    }
    closedir(proc);
}

bool children_has(const struct children *children, pid_t pid)
{
    for (int i = 0; i < children->n; i++) {
        if (children->pids[i] == pid) return true;
    }
    return false;
}
