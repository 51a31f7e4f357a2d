/* The coordinator's metrics by name, in the order of the page, and what their labels are indexed
 * by. coordinator/signals/signals_table.c has a row for each. */
#pragma once

/* Those of the first part have the meaning of vLLM's metric of the same name. */
enum signal {
    SIGNAL_RUNNING,
    SIGNAL_WAITING,
    SIGNAL_KV_USAGE, /* millionths */
    SIGNAL_PREFIX_QUERIES,
    SIGNAL_PREFIX_HITS,
    SIGNAL_PREEMPTIONS,
    SIGNAL_PROMPT_TOKENS,
    SIGNAL_GENERATION_TOKENS,
    SIGNAL_SUCCESS, /* by enum signals_reason */
    SIGNAL_FIRST_TOKEN_TIME,
    SIGNAL_INTER_TOKEN_TIME,
    SIGNAL_TOTAL_TIME,
    SIGNAL_QUEUE_TIME,
    SIGNAL_PREFILL_TIME,
    SIGNAL_DECODE_TIME,
    SIGNAL_REQUEST_PROMPT,
    SIGNAL_REQUEST_GENERATION,
    SIGNAL_DRAFTS,
    SIGNAL_DRAFT_TOKENS,
    SIGNAL_ACCEPTED_TOKENS,
    SIGNAL_ACCEPTED_AT, /* by position */
    SIGNALS_OF_VLLM,

    SIGNAL_TESTED_AT = SIGNALS_OF_VLLM, /* by position */
    SIGNAL_ALPHA,                       /* by position; millionths */
    SIGNAL_DRAFTER_TOKENS,              /* by enum signals_drafter */
    SIGNAL_DRAFTER_ACCEPTED,            /* the same */
    SIGNAL_SIBLING_TOKENS,              /* the same */
    SIGNAL_SIBLING_ACCEPTED,            /* the same */
    SIGNAL_DRAFT_LENGTH,
    SIGNAL_ROUND_TIME,
    SIGNAL_ROUND_PART_TIME, /* by enum signals_part */
    SIGNAL_PREDICTED_TIME,  /* 0 of rounds without guesses, 1 with some */
    SIGNAL_PLANNED_TIME,    /* the same */
    SIGNAL_STEP_TOKENS,
    SIGNAL_STEP_ROWS,
    SIGNAL_STEP_LANES,
    SIGNAL_STEP_BYTES, /* 0 sent, 1 received */
    SIGNAL_DRAFT_PREFIX_HITS,
    SIGNAL_ENDS, /* by enum job_end */
    SIGNAL_TARGET_UP,
    SIGNAL_TARGET_CONNECTS,
    SIGNAL_PLACES,
    SIGNAL_WAITING_AGAIN,
    SIGNAL_KV_BLOCKS,       /* by enum signals_blocks_state */
    SIGNAL_DRAFT_KV_BLOCKS, /* the same */
    SIGNAL_QUEUE_CAPACITY,
    SIGNAL_QUEUE_BYTES,
    SIGNAL_QUEUE_BYTES_LIMIT,
    SIGNAL_STORED_JOBS,
    SIGNAL_STORED_BYTES,
    SIGNAL_LOST_LINES,
    SIGNAL_UNAUTHENTICATED,
    SIGNALS
};

enum signals_part {
    SIGNALS_PLAN,
    SIGNALS_DRAFT,
    SIGNALS_WIRE,
    SIGNALS_VERIFY,
    SIGNALS_COLLECTIVE,
    SIGNALS_ACCEPT,
    SIGNALS_PARTS
};

/* Why a request that was served has ended, in vLLM's words. */
enum signals_reason {
    SIGNALS_STOPPED,
    SIGNALS_LENGTH,
    SIGNALS_ABORTED,
    SIGNALS_FAILED,
    SIGNALS_REASONS
};

enum signals_blocks_state { SIGNALS_IN_USE, SIGNALS_FREE, SIGNALS_CACHED, SIGNALS_BLOCK_STATES };

/* Who made guesses (coordinator/draft/internal.h). */
enum signals_drafter {
    SIGNALS_MODEL,
    SIGNALS_SESSION,
    SIGNALS_STORE,
    SIGNALS_DATASTORE,
    SIGNALS_RECYCLED,
    SIGNALS_LOOKAHEAD,
    SIGNALS_PREDICTION,
    SIGNALS_DRAFTERS
};
