/* The table of the coordinator's metrics: their rows (coordinator/signals/signals_rows.h), buckets
 * and label values. */
#include "coordinator/signals/signals_table.h"

#include "base/limits.h"
#include "base/metrics/metrics_rows.h"
#include "proto/job_end.h"

#define BY_POSITION .label = "position", .n_values = DRAFT_MAX

/* ---- buckets, in microseconds or pieces ---- */

/* To the first token, from a warm cache to a queue of minutes. */
static const int64_t first_token_us[] = {
    1000,    5000,    10000,   20000,   40000,    80000,    100000,   250000,   500000,   750000,
    1000000, 2500000, 5000000, 7500000, 10000000, 20000000, 40000000, 80000000, 160000000};
static const int64_t token_us[] = {1000,   2000,    5000,    10000,  20000,  30000,
                                   50000,  75000,   100000,  150000, 200000, 300000,
                                   500000, 1000000, 2500000, 5000000};
static const int64_t request_us[] = {1000,     10000,     50000,     100000,    300000,   500000,
                                     1000000,  2000000,   5000000,   10000000,  20000000, 40000000,
                                     60000000, 120000000, 240000000, 480000000, 960000000};
static const int64_t round_us[] = {10,     20,     50,     100,     200,     500,
                                   1000,   2000,   5000,   10000,   20000,   50000,
                                   100000, 200000, 500000, 1000000, 2000000, 5000000};
static const int64_t sizes[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const int64_t step_sizes[] = {1,  2,  3,  4,   6,   8,   12,  16,   24,   32,
                                     48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096};
static const int64_t draft_lengths[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, DRAFT_MAX};

/* ---- labels ---- */

static const char *const part_names[SIGNALS_PARTS] = {
    [SIGNALS_PLAN] = "plan",     [SIGNALS_DRAFT] = "draft",           [SIGNALS_WIRE] = "wire",
    [SIGNALS_VERIFY] = "verify", [SIGNALS_COLLECTIVE] = "collective", [SIGNALS_ACCEPT] = "accept",
};
static const char *const block_states[SIGNALS_BLOCK_STATES] = {
    [SIGNALS_IN_USE] = "in_use", [SIGNALS_FREE] = "free", [SIGNALS_CACHED] = "cached"};
#define NAME_OF_ROW(id, name, ...) name,
static const char *const drafters[SIGNALS_DRAFTERS] = {
    DRAFTERS(NAME_OF_ROW, NAME_OF_ROW, NAME_OF_ROW, NAME_OF_ROW)};
static const char *const has_guesses[] = {"no", "yes"};
static const char *const directions[] = {"sent", "received"};
static const char *const reasons[SIGNALS_REASONS] = {
    [SIGNALS_STOPPED] = "stop",
    [SIGNALS_LENGTH] = "length",
    [SIGNALS_ABORTED] = "abort",
    [SIGNALS_FAILED] = "error",
};

const struct metric_family signals_families[SIGNALS] = {
#define SIGNAL(KIND, ID, ...) KIND(SIGNAL_##ID, __VA_ARGS__),
#define SIGNALS_END(PART)
#include "coordinator/signals/signals_rows.h"
#undef SIGNAL
#undef SIGNALS_END
};
