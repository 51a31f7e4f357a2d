/* A team of threads that work on one loop at a time: fork, run and join take microseconds. Threads
 * divide the outputs among them, never a sum, so results do not depend on the number of threads.
 * Owned by the thread that opened it, which is member 0. */
#pragma once

#include "base/error.h"

struct team;

/* The work of one member: the parts that belong to member `member` of `n_members`. */
typedef void team_fn(void *arg, int member, int n_members);

/* n_members >= 1; 1 starts no thread. After a job, members spin for spin_us microseconds and then
 * sleep (0: they sleep at once), so that an idle team uses no CPU. */
int team_open(struct team **team, int n_members, int spin_us, struct error *err);
void team_close(struct team *team);

/* Keeps member i on cpus[i] (cpus[n_members]). Member 0, the caller's own thread, is left alone,
 * because every thread that it starts later would inherit its CPU (base/placement.h).
 * Errors: ERR_IO. */
int team_pin(struct team *team, const int *cpus, struct error *err);

int team_size(const struct team *team);

/* Calls fn(arg, member, n) on every member and returns when all have returned. */
void team_run(struct team *team, team_fn *fn, void *arg);

/* Divides n_items into n_members ranges whose bounds are multiples of `unit` (the last range may be
 * shorter). */
void team_range(int n_items, int unit, int member, int n_members, int *begin, int *end);
