/* Features: which rows of a step want the target's features, for a draft model that reads them or
 * for a request that asks for them, and where they go when they have come. */
#include <string.h>

#include "base/log.h"
#include "coordinator/round/round.h"
#include "coordinator/sequence/sequence.h"

/* The features that a lane's tokens are wanted with; NULL: none. */
static const struct feature_wish *wish_of(const struct round *r, const struct round_lane *lane)
{
    const struct sequence *seq = lane->seq;
    if (seq->is_score) return sequence_features(seq);
    return drafters_features(r->tools->drafters, seq);
}

void round_want_features(struct round *r)
{
    r->query.features = (struct feature_wish){0};
    r->n_features = 0;
    for (int i = 0; i < r->n_lanes; i++) {
        const struct round_lane *lane = &r->lanes[i];
        const struct feature_wish *wish = lane->step_lane < 0 ? NULL : wish_of(r, lane);
        if (!wish) continue;
        struct step_lane *step_lane = &r->step_lanes[lane->step_lane];
        bool is_scored = lane->seq->is_score;
        int n = is_scored ? lane->plan.n_scored : step_lane->n_tokens;
        if (n == 0) continue; /* tokens that are read again, whose scores were sent before */
        step_lane->feature_first = is_scored ? lane->plan.first_scored : 0;
        step_lane->n_features = n;
        r->n_features += n;
        feature_wish_add(&r->query.features, wish);
    }
}

/* Copies the columns of `wish` from a row that has those of `step`. */
static void copy_columns(const struct feature_wish *wish, const struct feature_wish *step,
                         const uint16_t *row, size_t dim, uint16_t *out)
{
    int n_columns = feature_wish_columns(wish);
    for (int c = 0; c < n_columns; c++) {
        int column = c < wish->n ? feature_wish_column(step, wish->boundaries[c]) : step->n;
        memcpy(out, row + (size_t)column * dim, dim * sizeof *out);
        out += dim;
    }
    if (wish->projection.key.digest == 0) return;
    memcpy(out, row + (size_t)feature_wish_columns(step) * dim,
           (size_t)wish->projection.key.width * sizeof *out);
}

const uint16_t *round_features(struct round *r, const struct round_lane *lane,
                               const struct feature_wish *wish, const int *rows, int n,
                               struct error *err)
{
    const struct feature_wish *step = &r->query.features;
    const struct lane_features *came = &r->result.features[lane->step_lane];
    int from = r->step_lanes[lane->step_lane].feature_first;
    size_t dim = (size_t)r->result.feature_dim;
    size_t width = feature_wish_width(wish, r->result.feature_dim);
    size_t step_width = feature_wish_width(step, r->result.feature_dim);
    if (came->n == 0) {
        error_set(err, ERR_INTERNAL,
                  "the workers have no features of this request's tokens: %.300s",
                  r->result.feature_error ? r->result.feature_error : "nothing came");
        return NULL;
    }
    bool is_run = width == step_width;
    for (int i = 1; i < n && is_run; i++) {
        is_run = rows[i] == rows[i - 1] + 1;
    }
    if (is_run) return came->data + (size_t)(rows[0] - from) * width;
    uint16_t *out = arena_take(&r->arena, (size_t)n * width, sizeof *out);
    if (!out) {
        error_set(err, ERR_NO_MEMORY, "no room for the features of %d tokens", n);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        const uint16_t *row = came->data + (size_t)(rows[i] - from) * step_width;
        copy_columns(wish, step, row, dim, out + (size_t)i * width);
    }
    return out;
}

void round_show_features(struct round *r, struct round_lane *lane, int first)
{
    struct sequence *seq = lane->seq;
    const struct drafters *drafters = r->tools->drafters;
    struct drafter *reader = drafters_reader(drafters);
    const struct feature_wish *wish = drafters_features(drafters, seq);
    int n = seq->n_target_kv - first, n_fed = lane->plan.n_tokens;
    struct error err;
    if (!wish || n <= 0 || seq->finish_reason) return;
    int *rows = arena_take(&r->arena, (size_t)n, sizeof *rows);
    for (int i = 0; rows && i < n; i++) {
        rows[i] = i < n_fed ? i : n_fed + lane->accepted[i - n_fed];
    }
    struct draft_features features = draft_features_of(wish, r->result.feature_dim);
    features.first = first;
    features.n = n;
    features.rows = rows ? round_features(r, lane, wish, rows, n, &err) : NULL;
    if (!rows) error_set(&err, ERR_NO_MEMORY, "no room for %d features", n);
    if (features.rows && !drafter_observe(reader, seq, &features, &err)) return;
    log_line(LOG_LEVEL_WARN, "draft_lost", "text=\"%s\"", err.text);
    drafters_lose(drafters, seq, reader->model, "the draft could not read the target's features");
    drafter_forget(reader, seq->slot); /* what waits there is of no use now */
    seq->n_draft_kv[reader->model] = 0;
    seq->draft_forgot = true;
}

int round_list_features(struct round *r, const struct round_lane *lane,
                        struct score_features *features, struct error *err)
{
    const struct feature_wish *wish = sequence_features(lane->seq);
    const struct lane_plan *plan = &lane->plan;
    *features = (struct score_features){0};
    if (!wish) return 0;
    int *rows = arena_take(&r->arena, (size_t)plan->n_scored, sizeof *rows);
    if (!rows) return error_set(err, ERR_NO_MEMORY, "no room for %d features", plan->n_scored);
    for (int i = 0; i < plan->n_scored; i++) {
        rows[i] = plan->first_scored + i;
    }
    *features = (struct score_features){.first = lane->seq->n_target_kv + plan->first_scored,
                                        .n = plan->n_scored,
                                        .n_columns = feature_wish_columns(wish),
                                        .dim = r->result.feature_dim};
    features->rows = round_features(r, lane, wish, rows, plan->n_scored, err);
    return features->rows ? 0 : err->code;
}
