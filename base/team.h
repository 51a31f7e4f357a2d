/* A team of threads that share out one loop at a time: fork, run, join in microseconds.
 * Threads share out outputs, never sums, so results do not depend on the number of threads.
 * Owned by the thread that opened it, which is member 0. */
#pragma once

#include "base/error.h"

struct team;

/* Work of one member: do the parts that belong to member `member` of `n_members`. */
typedef void team_fn(void *arg, int member, int n_members);

/* n_members >= 1; 1 starts no thread. Members spin for spin_us microseconds after a job, then sleep
 * (0: sleep at once), so that an idle team costs no CPU. */
int team_open(struct team **team, int n_members, int spin_us, struct error *err);
void team_close(struct team *team);

/* Keeps member i on cpus[i] (cpus[n_members]). Member 0 is the caller's own thread and is left alone:
 * whatever it starts later would be kept there too (base/placement.h). Errors: ERR_IO. */
int team_pin(struct team *team, const int *cpus, struct error *err);

int team_size(const struct team *team);

/* Calls fn(arg, member, n) on every member and returns when all have returned. */
void team_run(struct team *team, team_fn *fn, void *arg);

/* Cuts n items into n_members runs whose bounds are multiples of `unit` (the last may be shorter). */
void team_range(int n_items, int unit, int member, int n_members, int *begin, int *end);
