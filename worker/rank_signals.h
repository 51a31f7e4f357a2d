/* Counters and times of a rank's steps, for /metrics. The engine thread records with relaxed atomic
 * additions, after a step's reply has left; a scrape only reads, on any thread. */
#pragma once

#include "base/text/buffer.h"
#include "proto/target_wire.h"

struct rank_signals;

struct rank_signals_options {
    const struct target_description *description; /* of the rank; what is needed is copied */
    const char *version, *collectives;
    size_t weight_bytes, kv_bytes;
};

/* Errors: ERR_NO_MEMORY. */
int rank_signals_open(struct rank_signals **signals, const struct rank_signals_options *options,
                      struct error *err);
void rank_signals_close(struct rank_signals *signals);

/* Appends the page. Errors: ERR_NO_MEMORY. */
int rank_signals_write(struct rank_signals *signals, struct buffer *out, struct error *err);

/* ---- the engine thread ---- */

/* A coordinator has begun a stream. */
void rank_signals_stream(struct rank_signals *signals);

/* A step, or a further question about the last one, and its answer. */
struct rank_signals_step {
    const struct step *step;
    const struct step_reply *reply;
    size_t bytes_in, bytes_out;
    int64_t total_us;     /* from decoding it to the encoded reply */
    int n_blocks_written; /* KV blocks that hold something */
};

void rank_signals_step(struct rank_signals *signals, const struct rank_signals_step *step);

/* A message that could not be read, or a reply that nobody takes any more. */
void rank_signals_bad_message(struct rank_signals *signals);
void rank_signals_lost_reply(struct rank_signals *signals);
