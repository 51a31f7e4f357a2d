/* The target group as the engine sees it: one stream to each of its T ranks, used as one. Sends the
 * same step to every rank, gathers the slices of every row, and merges them into target_rows. Owned
 * by the engine thread. */
#pragma once

#include "coordinator/discovery/discovery.h"
#include "proto/target_wire.h"
#include "speculation/rows/target_row.h"

struct certificates; /* access/certificates.h */
struct target;

struct target_options {
    uint64_t tokenizer_fingerprint; /* the group must have the same */
    int step_timeout_s;
    struct certificates *certificates; /* TLS to the workers, but for unix sockets; NULL = plain */
    const char *server_name; /* that theirs must have in place of their addresses'; kept */
    const char *group_key;   /* shown to them; NULL = none */
};

/* Where the time of a step went, and what it cost on the wire. */
struct target_cost {
    int64_t total_us;                    /* first send to last reply */
    int64_t compute_us;                  /* of the slowest rank, without collectives */
    int64_t collective_us;               /* of that rank */
    int64_t step_us;                     /* both, of the step alone, without further questions */
    uint64_t bytes_sent, bytes_received; /* all ranks */
    uint64_t more_rows;                  /* rows asked for a second time */
    int64_t feature_us;                  /* of rank 0's computing: reading the features */
    uint64_t feature_bytes;              /* of bytes_received */
};

/* Does not connect. */
int target_open(struct target **target, const struct target_options *options, struct error *err);
void target_close(struct target *target);

/* While a step's answer is not there, look(arg) is called every 20 ms on the engine's thread, which
 * has other things to do as well. is_overdue: the step takes seconds longer than it was expected to
 * (coordinator/target/step_watch.h). False: the group is let go, because nobody wants the answer
 * any more. It must not touch the target, and what the step holds of sequences, their slots and
 * blocks, must stay. */
typedef bool target_look_fn(void *arg, bool is_overdue);
void target_set_look(struct target *target, target_look_fn *look, void *arg);

/* Asks all ranks for their descriptions, checks that they are one group with our tokenizer, and
 * opens the streams. The group is copied. Errors: ERR_UNAVAILABLE try again; ERR_ARGUMENT the group
 * does not fit, so trying again is of no use until somebody changes an option. */
int target_connect(struct target *target, const struct found_group *group, int64_t deadline_us,
                   struct error *err);
void target_disconnect(struct target *target);
bool target_is_connected(const struct target *target);

/* A rank says that it is going to end (grpc.health.v1, as polls and steps have seen): it goes on
 * with what it has for a while. */
bool target_is_leaving(const struct target *target);

/* For idle times: answers keepalives and notices a lost rank (ERR_UNAVAILABLE, disconnected). */
int target_poll(struct target *target, struct error *err);

/* Valid once the group has been connected, also after it was lost. */
const struct target_description *target_description(const struct target *target);
/* The conventions in its folder, beside its weights; valid until the next connection. Before the
 * first one they are empty. */
const struct target_conventions *target_conventions(const struct target *target);
/* Names of the kernels of ranks 0 .. *n - 1, which may differ; none before that. They are valid
 * until the next connection. */
void target_kernels(const struct target *target, const char *kernels[RANKS_MAX], int *n);

/* A row that a rank has no answer for has a failure instead of slices: ERR_EXHAUSTED the replies
 * had no room for it, so it can be asked for again (struct step_more); ERR_INTERNAL its logits are
 * not numbers, or whatever else the rank says. */
struct target_answer {
    int n_rows, n_slices;
    struct slice_row *slices;      /* [n_rows][n_slices] ascending */
    const struct error **failures; /* [n_rows] NULL: the row is answered */
    const int *row_lanes; /* [n_rows] the step's lane of each row; -1: of a lane in the past */
    int n_refused;        /* lanes that the ranks left out, ascending, with the reason */
    const struct lane_refusal *refused;
    struct lane_features *features; /* [n_lanes] of the step; n = 0: none */
    const char *feature_error;      /* why lanes that wanted some have none; NULL = they have */
};

/* Sends the step to every rank. The answer is made ready for its slices, which will lie in arena.
 * Nothing else may be sent before target_step_receive. Errors: ERR_UNAVAILABLE, ERR_TIMEOUT the
 * group is lost (disconnected); ERR_NO_MEMORY. */
int target_step_send(struct target *target, struct step *step, struct arena *arena,
                     struct target_answer *answer, struct target_cost *cost, struct error *err);

/* True if the step that was sent last can be received without waiting: all replies are here, or a
 * rank is gone. */
bool target_has_answered(struct target *target);

/* Waits for all replies to the step that was sent. What the arrays of the slices point to is valid
 * until the next step or question, and the features until the next step with lanes. Errors:
 * ERR_UNAVAILABLE, ERR_TIMEOUT the group is lost (disconnected); ERR_INTERNAL, ERR_FORMAT a rank
 * refused the step as a whole: the text says why, and the group stays. */
int target_step_receive(struct target *target, const struct step *step, struct arena *arena,
                        struct target_answer *answer, struct target_cost *cost, struct error *err);

/* Both, with nothing done in between. */
int target_step(struct target *target, struct step *step, struct arena *arena,
                struct target_answer *answer, struct target_cost *cost, struct error *err);

/* An answer that makes no sense is the workers' error, not the client's: turns ERR_FORMAT into
 * ERR_INTERNAL and says so in the text; other errors stay. Returns the code. */
int target_answer_error(struct error *err);

/* The row after tokens[index] of a lane, and its purpose. */
struct lane_want {
    int lane, index;
    struct target_want want;
    const struct row_wish *wish; /* what to ask instead; the row is not merged. NULL: by the want */
    bool decides_nothing;        /* without an answer the row alone has failed, and not its lane */
};

/* One step whose rows become p. */
struct target_query {
    /* [n_lanes] Their rows are filled in here. The guesses of a lane with `parents` are a tree,
     * whose blocks are those of coordinator/kv/block_tails.h. A want's index is that of a token, as
     * in a chain, and all rows are merged. */
    struct step_lane *lanes;
    int n_lanes;
    const struct lane_want *wants; /* [n_wants] grouped by lane in ascending order */
    int n_wants;
    struct feature_wish features; /* of the lanes that want some (n_features) */
};

/* A query that the ranks have. */
struct target_question {
    struct step step;
    struct step_row *rows; /* [n_wants] */
    struct target_answer answer;
};

/* The result of a query; arrays in the arena. */
struct target_result {
    struct target_row *rows;          /* [n_wants] p of the wants that have no wish of their own;
                                         empty after a guess that does not stay (rule_keep_fn),
                                         unless drafters learn from it (lists_best) */
    const struct slice_row **slices;  /* [n_wants] what came of the others */
    const struct error **lane_errors; /* [n_lanes] why a lane has no rows; NULL = it has them */
    const struct lane_features *features; /* [n_lanes] until the next step; n = 0: none */
    int feature_dim;                      /* D of the target */
    const char *feature_error; /* why lanes that wanted some have none; NULL = they have them */
};

/* Sends the step of a query. query and question must stay until target_verify_merge; until then
 * the caller may do other work, best as long as target_has_answered says no. Errors: as
 * target_step_send. */
int target_verify_send(struct target *target, const struct target_query *query, struct arena *arena,
                       struct target_question *question, struct target_result *result,
                       struct target_cost *cost, struct error *err);

/* Waits for the answers, merges them, and asks again where a truncation needs more. A lane that the
 * ranks refuse, or one of whose rows has no p, fails alone. Errors: as target_step_receive;
 * ERR_NO_MEMORY. */
int target_verify_merge(struct target *target, const struct target_query *query,
                        struct arena *arena, struct target_question *question,
                        struct target_result *result, struct target_cost *cost, struct error *err);
