/* A team of threads that work on one loop at a time: fork, run and join take microseconds. Threads
 * divide the outputs among them, never a sum, so results do not depend on the number of threads.
 * Owned by the thread that opened it, which is member 0. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct team;

/* The work of one member: the parts that belong to member `member` of `n_members`. */
typedef void team_fn(void *arg, int member, int n_members);

/* n_members >= 1; 1 starts no thread. After a job, members spin for spin_us microseconds and then
 * sleep (0: they sleep at once), so that an idle team uses no CPU. */
int team_open(struct team **team, int n_members, int spin_us, struct error *err);
void team_close(struct team *team);

/* Keeps member i on cpus[i] (cpus[n_members]). Member 0, the caller's own thread, is left alone,
 * because every thread that it starts later would inherit its CPU (base/system/placement.h).
 * Errors: ERR_IO. */
int team_pin(struct team *team, const int *cpus, struct error *err);

int team_size(const struct team *team);

/* Calls fn(arg, member, n) on every member and returns when all have returned. */
void team_run(struct team *team, team_fn *fn, void *arg);

/* Divides n_items into n_members ranges whose bounds are multiples of `unit` (the last range may be
 * shorter). */
void team_range(int n_items, int unit, int member, int n_members, int *begin, int *end);

/* Work of a job that is handed out while it runs: a grid of n_columns times n_rows units of about
 * the same size. Every member owns a range of columns (team_range) and takes it row by row from the
 * front, so in every job of this shape it reads the same memory, as streams. A member that has
 * nothing left of its own takes from the back of the range that has most left. Each time a quarter
 * of what is left of a range is taken, at least one unit. So at the end of a job
 * the others wait at most for what a slow member took last, and the owner alone pays for an atomic
 * operation on a cache line that nobody else touches until then. The join still waits for every
 * member, also for one that begins when nothing is left.
 *
 *   struct team_share share = team_share_begin(team, member, n_members, n_columns, n_rows);
 *   while (team_share_next(&share)) compute columns share.begin .. share.end of share.row
 *
 * What a unit computes must not depend on the member. In a job either no member calls
 * team_share_begin with a team, or each does so once, with the same grid, and goes on until
 * team_share_next is false. Owned by the member. */
struct team_share {
    int owner;                  /* of the range that the units belong to */
    int row, begin, end;        /* the units to compute now: columns begin .. end of a row */
    int range_begin, range_end; /* the columns that the owner has */
    /* The rest is internal: units of the owner's range that were taken together, of which those
     * from `at` on are still to come. */
    int first, at, until;
    struct team *team;
    int member, n_members, n_columns, n_rows;
    uint64_t turn;
};

/* member and n_members are those of team_fn; n_members is 1 where no team runs. With a team of NULL
 * every member computes its own range and no more, which is better for less than about 10 us of
 * work. */
struct team_share team_share_begin(struct team *team, int member, int n_members, int n_columns,
                                   int n_rows);

/* Moves on to the next units; false when nothing is left. */
bool team_share_next(struct team_share *share);

/* To be called when the units of every team_share_next are computed, if it is called at all. True
 * for one member only: the one whose units were the last of the owner's range, so that all rows of
 * columns range_begin .. range_end are complete and visible to it. */
bool team_share_completes(struct team_share *share);
