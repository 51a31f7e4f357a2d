/* The children of a process by their name, read from /proc. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

enum { CHILDREN_MAX = 64 };

struct children {
    int n;
    pid_t pids[CHILDREN_MAX];
};

/* The living children of `parent` whose program has this name of at most 15 bytes; no more than
 * CHILDREN_MAX. None where /proc cannot be read. */
void children_find(struct children *children, pid_t parent, const char *name);

bool children_has(const struct children *children, pid_t pid);
