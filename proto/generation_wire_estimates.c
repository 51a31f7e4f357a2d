/* Strategies and estimates of the planner, in requests, summaries and descriptions. */
#include "proto/generation_wire_estimates.h"

#include <float.h>

#include "base/limits.h"
#include "proto/codec.h"

_Static_assert((int)STRATEGY_PLANNED == (int)OUTRIDER__GENERATION__V1__STRATEGY__PLANNED &&
                   (int)STRATEGY_THRESHOLD == (int)OUTRIDER__GENERATION__V1__STRATEGY__THRESHOLD,
               "strategies are numbered as in generation.proto");

Outrider__Generation__V1__Estimates *estimates_make(struct arena *scratch,
                                                    const struct estimates *estimates)
{
    Outrider__Generation__V1__Estimates *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__estimates__init(out);
    out->rounds = (uint32_t)estimates->n_rounds;
    out->draft_us = estimates->draft_us;
    out->read_us = estimates->read_us;
    out->step_us = estimates->step_us;
    out->row_us = estimates->row_us;
    out->rtt_us = estimates->rtt_us;
    out->alpha = estimates->alpha;
    out->n_alpha_per_position = (size_t)estimates->n_positions;
    out->alpha_per_position = codec_lend(estimates->alpha_at);
    return out;
}

int estimate_check(float value, float most, const char *field, struct error *err)
{
    if (value >= 0 && value <= most) return 0;
    return error_set(err, ERR_FORMAT, "%s is %g, must be >= 0 and <= %g", field, (double)value,
                     (double)most);
}

static int alphas_decode(const Outrider__Generation__V1__Estimates *msg,
                         struct estimates *estimates, struct error *err)
{
    int rc = 0;
    TRY(codec_read_count(&estimates->n_positions, msg->n_alpha_per_position, DRAFT_MAX,
                         "alpha_per_position", err));
    for (int i = 0; i < estimates->n_positions; i++) {
        TRY(estimate_check(msg->alpha_per_position[i], 1, "alpha_per_position", err));
        estimates->alpha_at[i] = msg->alpha_per_position[i];
    }
out:
    return rc;
}

int estimates_decode(const Outrider__Generation__V1__Estimates *msg, struct estimates *estimates,
                     struct error *err)
{
    int rc = 0;
    *estimates = (struct estimates){0};
    if (!msg) return 0;
    const struct {
        float *out, value, most;
        const char *field;
    } numbers[] = {{&estimates->draft_us, msg->draft_us, FLT_MAX, "draft_us"},
                   {&estimates->read_us, msg->read_us, FLT_MAX, "read_us"},
                   {&estimates->step_us, msg->step_us, FLT_MAX, "step_us"},
                   {&estimates->row_us, msg->row_us, FLT_MAX, "row_us"},
                   {&estimates->rtt_us, msg->rtt_us, FLT_MAX, "rtt_us"},
                   {&estimates->alpha, msg->alpha, 1, "alpha"}};
    TRY(codec_read_int(&estimates->n_rounds, msg->rounds, 0, INT32_MAX, "rounds", err));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        TRY(estimate_check(numbers[i].value, numbers[i].most, numbers[i].field, err));
        *numbers[i].out = numbers[i].value;
    }
    TRY(alphas_decode(msg, estimates, err));
out:
    return rc;
}

/* ---- tables of times ---- */

static Outrider__Generation__V1__TimePoint **table_make(struct arena *scratch,
                                                        const struct time_table *table, size_t *n)
{
    *n = (size_t)table->n;
    Outrider__Generation__V1__TimePoint **list = arena_take(scratch, *n, sizeof *list);
    Outrider__Generation__V1__TimePoint *points = arena_take(scratch, *n, sizeof *points);
    if (!list || !points) return NULL;
    for (size_t i = 0; i < *n; i++) {
        outrider__generation__v1__time_point__init(&points[i]);
        points[i].rows = table->points[i].rows;
        points[i].us = table->points[i].us;
        list[i] = &points[i];
    }
    return list;
}

Outrider__Generation__V1__TimeTables *times_make(struct arena *scratch,
                                                 const struct time_tables *times)
{
    Outrider__Generation__V1__TimeTables *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__generation__v1__time_tables__init(out);
    out->draft = table_make(scratch, &times->draft, &out->n_draft);
    out->step = table_make(scratch, &times->step, &out->n_step);
    out->rest = table_make(scratch, &times->rest, &out->n_rest);
    return out->draft && out->step && out->rest ? out : NULL;
}

static int table_decode(Outrider__Generation__V1__TimePoint *const *points, size_t n,
                        struct time_table *table, const char *field, struct error *err)
{
    int rc = 0;
    TRY(codec_read_count(&table->n, n, TIME_POINTS_MAX, field, err));
    for (int i = 0; i < table->n; i++) {
        TRY(estimate_check(points[i]->rows, FLT_MAX, field, err));
        TRY(estimate_check(points[i]->us, FLT_MAX, field, err));
        table->points[i] = (struct time_point){points[i]->rows, points[i]->us};
    }
out:
    return rc;
}

int times_decode(const Outrider__Generation__V1__TimeTables *msg, struct time_tables *times,
                 struct error *err)
{
    int rc = 0;
    if (!msg) return 0;
    TRY(table_decode(msg->draft, msg->n_draft, &times->draft, "times.draft", err));
    TRY(table_decode(msg->step, msg->n_step, &times->step, "times.step", err));
    TRY(table_decode(msg->rest, msg->n_rest, &times->rest, "times.rest", err));
out:
    return rc;
}

int strategy_decode(enum strategy *strategy, int value, struct error *err)
{
    if (value < STRATEGY_DEFAULT || value >= N_STRATEGIES) {
        return error_set(err, ERR_FORMAT, "strategy is %d, must be %d to %d", value,
                         STRATEGY_DEFAULT, N_STRATEGIES - 1);
    }
    *strategy = (enum strategy)value;
    return 0;
}
