/* The engine's state and its parts. */
#pragma once

#include "coordinator/engine/calibration.h"
#include "coordinator/engine/options.h"
#include "coordinator/engine/proof_file.h"
#include "coordinator/engine/proving.h"
#include "coordinator/engine/times_file.h"
#include "coordinator/engine/waiting.h"
#include "coordinator/round/round.h"
#include "coordinator/sequence/sequence.h"

struct engine {
    struct engine_options options;
    struct scheduler scheduler;
    struct round_tools tools;
    struct round *round;
    struct block_pool target_pool;
    struct buffer buffer; /* of the replies of all its jobs */
    struct staged staged;
    struct appended appended;
    struct sequence *active[SEQUENCES_MAX]; /* that have a place, oldest first */
    int n_active, n_places;                 /* n_places: with this group */
    bool slots[SEQUENCES_MAX];              /* that are taken */
    struct waiting *waiting;                /* sequences for which there is no place yet */
    uint64_t blocked_id;                    /* the first of them, which found no room ... */
    int64_t blocked_room;                   /* ... when so many blocks were left for it */
    struct planner planner;                 /* of the draft and the group in planner_group */
    struct target_description planner_group;
    struct acceptance_watch watches[N_DRAFTERS]; /* of the same */
    struct sampling_defaults sampling;           /* of the group's folder */
    bool is_measured; /* the planner has times of that pair, and no size lacked free blocks */
    struct calibration *calibration; /* that is going on; NULL: none */
    struct times_file times_file;    /* where the planner's tables are kept; path "" = nowhere */
    struct drafter *head;         /* that must prove itself: it is no model of the drafters until it
                                    has; NULL: there is none */
    struct head_proof *proof;     /* that is going on, ... */
    struct proving *proving;      /* ... and its texts; NULL: none is */
    struct proof_file proof_file; /* where its result is kept; path "" = nowhere */
    struct head_table proven;     /* of the target in proven_by; n_trials = 0: of none */
    uint64_t proven_by;
    int64_t start_us;
    int64_t drain_until_us; /* 0 = it does not drain */
    int64_t next_drop_us, lost_us;
    int64_t served_us;     /* when a text was served, came or waited last, or the group came */
    int64_t late_us;       /* since when the step that is running is late; 0 = it is not */
    bool is_overdue;       /* it takes seconds longer than expected, and the others know that */
    int64_t busy_us;       /* when it last had work, or looked whether memory is to be given back */
    int64_t trimmed_us;    /* when all that is free was given back, however little it was */
    size_t resident_bytes; /* of the process, when memory was given back last */
    bool was_connected, is_leaving; /* is_leaving: the group is going to end; nothing new begins */
    char refused[ERROR_TEXT_BYTES]; /* why the last group that was offered was not taken */
};

/* The group; valid once one has been connected. */
static inline const struct target_description *engine_group(const struct engine *e)
{
    return target_description(e->options.target);
}

/* The load that it tells the other engines. */
static inline struct seat_load *load_of(const struct engine *e)
{
    return &e->options.groups->seats[e->options.seat].load;
}

/* ---- measure.c ---- */

/* The group was just connected. is_new: the planner knows nothing of it. What an earlier start has
 * kept of the pair is used; otherwise it is to be measured. Errors: ERR_NO_MEMORY. */
int engine_begin_measuring(struct engine *e, bool is_new, struct error *err);
/* Forgets what has been measured so far. */
void engine_end_measuring(struct engine *e);
/* A text was served or has come just now. */
void engine_served(struct engine *e);
/* How long the engine may wait for jobs: at most most_us, and less where a measurement is to
 * follow. */
int64_t engine_patience_us(struct engine *e, int64_t most_us);
/* Makes the next measurement if there is one, and if for a while no text was served and none has
 * come or waited, so that requests that follow each other closely never meet one. Called when all
 * jobs that have come are taken. The calibration may end with sizes left out, because too many
 * blocks held prefixes of texts: then no calibration is left to do, but the pair does not count as
 * measured, so that its times are not kept and a later group or start measures it again. Errors:
 * the group is lost. */
int engine_measure(struct engine *e, struct error *err);
/* Writes the planner's tables to the disk, if they are kept there. Times of a pair of which not all
 * is measured are not kept, because the next start would take them for all of it. */
void engine_keep_times(const struct engine *e);

/* ---- prove.c ---- */

/* The group was just connected. A head that guesses for it must have proven itself with this
 * target: in this process, or in an earlier start that has kept what was shown. Otherwise it proves
 * itself between requests, and until it has there is no draft model. Errors: ERR_NO_MEMORY. */
int engine_begin_proof(struct engine *e, struct error *err);
/* Gives up a proof that is going on. */
void engine_end_proof(struct engine *e);
/* Goes on with it. *is_new: it is over, and the head has become the draft model. Errors: the group
 * is lost. */
int engine_prove(struct engine *e, bool *is_new, struct error *err);

/* ---- look.c ---- */

/* target_look_fn: does in a step what is done between steps, but for what the step holds. */
bool engine_look(void *engine, bool is_overdue);
/* No step is running. */
void engine_is_not_late(struct engine *e);

/* ---- take_jobs.c ---- */

/* Takes the jobs that have come; waits a little when there is nothing to do. Errors: ERR_CLOSED it
 * is time to stop. */
int engine_take_jobs(struct engine *e, int64_t patience_us, struct error *err);
/* Gives places to the sequences in the queue, in its order, as long as there is room. */
void engine_admit(struct engine *e);
/* Starts the other sequences of a job after the prefill of the first one, whose KV of the prompt
 * they share. */
void engine_split_jobs(struct engine *e);
/* Answers what is asked of the coordinator itself: Describe. */
void engine_answer_control(struct engine *e);

/* ---- queue.c ---- */

/* A sequence that has never had a place waits for one. Errors: ERR_EXHAUSTED. */
int engine_queue(struct engine *e, struct sequence *seq, struct error *err);
/* A sequence that had a place, or whose job had one, waits at the head of the queue. Errors:
 * ERR_EXHAUSTED. */
int engine_return_to_queue(struct engine *e, struct sequence *seq, struct error *err);

/* ---- moves.c ---- */

/* Tells the others, and the metrics, what there is at this moment. */
void engine_show_load(struct engine *e);
/* Sends what waits to other engines: all of it where this one has no group to serve it with, and
 * otherwise what has not begun and for which another one has a place free. */
void engine_move_waiting(struct engine *e);
/* Sequences that another group could take lose their places, so that they can go on there. */
void engine_evict_some(struct engine *e);
/* Takes up a job that comes from another engine with its sequences. */
void engine_take_moved(struct engine *e, struct job *job);

/* ---- ends.c ---- */

/* The queue is shut: what was accepted is finished, as long as there is time. */
bool engine_drains(struct engine *e);
/* Why a job must end now; false: it need not. */
bool engine_must_end(const struct job *job, int64_t now_us, enum job_end *end, struct error *why);
/* Ends the job of a sequence with an error, and counts that. */
void engine_fail(struct engine *e, struct sequence *seq, enum job_end end, const struct error *why);
/* As engine_fail, for a job that has no sequence; frees it. */
void engine_refuse(struct engine *e, struct job *job, enum job_end end, const struct error *why);
/* Fails all sequences that have a place; engine_leave lets them go. */
void engine_fail_active(struct engine *e, enum job_end end, const struct error *why);
/* Ends all sequences that wait. */
void engine_end_waiting(struct engine *e, enum job_end end, const struct error *why);
/* Frees the jobs whose clients have left or whose time is over while they waited, so that they take
 * no place in the queue. */
bool engine_drop_if_ended(struct engine *e, struct sequence *seq, int64_t now_us);
void engine_drop_waiting(struct engine *e);
/* Ends the jobs of sequences that have a place, where nobody waits for them any more or their time
 * is over. They keep their places until engine_leave. */
void engine_end_unwanted(struct engine *e);
/* Sequences that have a place and whose jobs have not ended. */
int engine_count_running(const struct engine *e);
/* Ends the sequences that are done and those that nobody waits for any more. */
void engine_end_finished(struct engine *e);
/* After a round: closes the sequences that are over and queues those that have lost their place. */
void engine_leave(struct engine *e);
/* Takes the sequence's place away, if it has one. */
void engine_displace(struct engine *e, struct sequence *seq);
