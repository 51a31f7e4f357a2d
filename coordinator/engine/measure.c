/* Times of a pair of models: kept from an earlier start, or measured between requests while the
 * group serves. Requests come first, so one measurement is made at a time, after a look at the
 * queue of jobs that has found none. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/engine/calibration.h"
#include "coordinator/engine/internal.h"

enum {
    CALM_US = 100000, /* without requests, after which a pair is measured */
    PAUSE_US = 1000   /* between two measurements, for requests that come */
};

/* Uses what an earlier start has measured of this pair; false: there is nothing. */
static bool take_saved(struct engine *e)
{
    const struct drafters *drafters = e->options.drafters;
    const char *kernels = drafters->n_models > 0 ? drafters->models[0]->kernels : NULL;
    struct error err;
    e->times_file.path[0] = '\0';
    const char *folder = e->options.pack_cache;
    if (!folder || strcmp(folder, "off") == 0 || !drafters_any(e->options.drafters)) {
        return false;
    }
    int rc = times_file_find(&e->times_file, folder, e->options.drafts, kernels ? kernels : "",
                             engine_group(e), &err);
    if (!rc) rc = times_file_read(&e->times_file, &e->planner, &err);
    if (rc && rc != ERR_NOT_FOUND) {
        log_line(LOG_LEVEL_WARN, "times_not_read", "text=\"%s\"", err.text);
    }
    return rc == 0;
}

void engine_keep_times(const struct engine *e)
{
    struct error err;
    if (e->options.calibrate_us > 0 && !e->is_measured) return;
    if (!e->times_file.path[0] || !times_file_write(&e->times_file, &e->planner, &err)) return;
    log_line(LOG_LEVEL_WARN, "times_not_kept", "text=\"%s\"", err.text);
}

int engine_begin_measuring(struct engine *e, bool is_new, struct error *err)
{
    const struct calibration_options options = {.target = e->options.target,
                                                .drafters = e->options.drafters,
                                                .pool = &e->target_pool,
                                                .planner = &e->planner,
                                                .n_lanes = e->n_places,
                                                .budget_us = e->options.calibrate_us};
    if (is_new) e->is_measured = take_saved(e);
    e->served_us = clock_now_us();
    if (e->is_measured || options.budget_us <= 0) return 0;
    int rc = calibration_open(&e->calibration, &options, err);
    if (!rc) log_line(LOG_LEVEL_INFO, "calibrating", "group=%s", engine_group(e)->group);
    return rc;
}

void engine_end_measuring(struct engine *e)
{
    engine_end_proof(e);
    calibration_close(e->calibration);
    e->calibration = NULL;
}

static bool can_measure(struct engine *e)
{
    bool has_work = e->n_active > 0 || waiting_count(e->waiting) > 0;
    if (has_work) engine_served(e);
    if (has_work) proving_rest(e->proving);
    return (e->calibration || e->proving) && !has_work && !e->is_leaving &&
           target_is_connected(e->options.target) && !groups_are_shut(e->options.groups);
}

void engine_served(struct engine *e)
{
    e->served_us = clock_now_us();
}

int64_t engine_patience_us(struct engine *e, int64_t most_us)
{
    if (!can_measure(e)) return most_us;
    int64_t left_us = e->served_us + CALM_US - clock_now_us();
    if (left_us < PAUSE_US) left_us = PAUSE_US;
    return left_us < most_us ? left_us : most_us;
}

/* Makes the next measurement, unless another engine makes one: they would measure each other. */
static int measure_next(struct engine *e, struct error *err)
{
    bool is_done = false;
    if (!groups_enter_calibration(e->options.groups)) return 0;
    int rc = calibration_next(e->calibration, &is_done, err);
    groups_leave_calibration(e->options.groups);
    if (rc || !is_done) return rc;
    e->is_measured = calibration_is_whole(e->calibration);
    engine_end_measuring(e);
    engine_keep_times(e);
    engine_show_load(e);
    log_line(LOG_LEVEL_INFO, "measured", "group=%s sizes=%s", engine_group(e)->group,
             e->is_measured ? "all" : "some");
    return 0;
}

/* Goes on with the proof of a head. When the head guesses, the pair is a new one. */
static int prove_next(struct engine *e, struct error *err)
{
    bool is_new;
    int rc = engine_prove(e, &is_new, err);
    if (rc || !is_new) return rc;
    engine_end_measuring(e);
    return engine_begin_measuring(e, true, err);
}

int engine_measure(struct engine *e, struct error *err)
{
    if (!can_measure(e) || clock_now_us() - e->served_us < CALM_US) return 0;
    int rc = e->proving ? prove_next(e, err) : measure_next(e, err);
    if (rc && target_is_connected(e->options.target)) { /* rounds will tell what they take */
        log_line(LOG_LEVEL_WARN, "not_measured", "text=\"%s\"", err->text);
        engine_end_measuring(e);
        rc = 0;
    }
    return rc;
}
