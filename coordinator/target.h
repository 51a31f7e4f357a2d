/* The target group as the engine sees it: T streams that are one. Sends the same step to every rank,
 * gathers the slices of every row, and turns them into target_rows. Owned by the engine thread. */
#pragma once

#include "proto/target_wire.h"
#include "speculation/target_row.h"

struct target;

struct target_options {
    const char *const *addresses; /* [n] one per rank, any order */
    int n_addresses;
    uint64_t tokenizer_fingerprint; /* the group must have the same */
    int step_timeout_s;
};

/* Where the time of a step went, and what it cost on the wire. */
struct target_cost {
    int64_t total_us;                    /* first send to last reply */
    int64_t compute_us;                  /* of the slowest rank, without collectives */
    int64_t collective_us;               /* of that rank */
    uint64_t bytes_sent, bytes_received; /* all ranks */
    uint64_t more_rows;                  /* rows asked for a second time */
};

/* Copies the addresses; does not connect. */
int target_open(struct target **target, const struct target_options *options, struct error *err);
void target_close(struct target *target);

/* Describes all ranks, checks that they are one group with our tokenizer, opens the streams.
 * Errors: ERR_UNAVAILABLE (try again), ERR_ARGUMENT the group does not fit: trying again is of no
 * use until somebody changes a flag. */
int target_connect(struct target *target, int64_t deadline_us, struct error *err);
void target_disconnect(struct target *target);
bool target_is_connected(const struct target *target);

/* For idle times: answers keepalives and notices a lost rank (ERR_UNAVAILABLE, disconnected). */
int target_poll(struct target *target, struct error *err);

/* Valid once connected; kept after a loss. */
const struct target_description *target_description(const struct target *target);

/* One step. rows[n_rows_of_step][S] of the answer, slices ascending, live in arena.
 * Errors: ERR_UNAVAILABLE, ERR_TIMEOUT: the group is lost (disconnected); ERR_INTERNAL,
 * ERR_FORMAT: a rank refused the step: the text says why and which lane; the group stays. */
struct target_answer {
    int n_rows, n_slices;
    struct slice_row *slices; /* [n_rows][n_slices] */
};

/* What the caller can do while the ranks compute: called again and again until it returns false or the
 * answer is there, which then waits for the call that is under way. */
struct target_meanwhile {
    bool (*work)(void *arg);
    void *arg;
};

/* meanwhile: NULL = nothing. */
int target_step(struct target *target, struct step *step, const struct target_meanwhile *meanwhile,
                struct arena *arena, struct target_answer *answer, struct target_cost *cost,
                struct error *err);

/* Turns the error of an answer that makes no sense into one that does not blame the client
 * (ERR_INTERNAL); others stay. Returns the code. */
int target_blame(struct error *err);

/* What a lane's row is wanted for. */
struct target_want {
    int lane, index; /* the row behind tokens[index] of the lane */
    enum accept_rule rule;
    const struct sampling_params *params;
    const struct sparse_dist *q; /* NULL: bonus position */
    struct rng_address at;
    bool full_rows;
};

/* One step whose rows become p: lanes without rows (they are filled in here) and the wants, grouped by
 * lane in ascending order. Asks again where a truncation needs more. rows[n_wants] live in arena. */
int target_verify(struct target *target, struct step_lane *lanes, int n_lanes,
                  const struct target_want *wants, int n_wants,
                  const struct target_meanwhile *meanwhile, struct arena *arena,
                  struct target_row *rows, struct target_cost *cost, struct error *err);
