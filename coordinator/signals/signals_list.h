/* The coordinator's metrics by name, in the order of the page, and what their labels are indexed
 * by. */
#pragma once

#include "coordinator/draft/drafter_table.h"

/* SIGNAL_RUNNING and so on: the index of each row of coordinator/signals/signals_rows.h. Those
 * before SIGNALS_OF_VLLM have the meaning of vLLM's metric of the same name. */
enum signal {
#define SIGNAL(KIND, ID, ...) SIGNAL_##ID,
#define SIGNALS_END(PART)     SIGNALS_##PART, SIGNALS_LAST_##PART = SIGNALS_##PART - 1,
#include "coordinator/signals/signals_rows.h"
#undef SIGNAL
#undef SIGNALS_END
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

/* Sources of guesses: SIGNALS_MODEL and so on, one for each row of the table of drafters. */
#define SIGNALS_OF_ROW(id, ...) SIGNALS_##id,
enum signals_drafter {
    DRAFTERS(SIGNALS_OF_ROW, SIGNALS_OF_ROW, SIGNALS_OF_ROW, SIGNALS_OF_ROW) SIGNALS_DRAFTERS
};
#undef SIGNALS_OF_ROW
