/* Features of a step's rows. */
#include "worker/step_features.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

int step_features_open(struct step_features *f, int n_slots, struct error *err)
{
    int rc = 0;
    *f = (struct step_features){0};
    TRY(mem_array(&f->lanes, (size_t)n_slots, sizeof *f->lanes, err));
    TRY(mem_array(&f->answers, (size_t)n_slots, sizeof *f->answers, err));
out:
    if (rc) step_features_close(f);
    return rc;
}

void step_features_close(struct step_features *f)
{
    free(f->lanes);
    free(f->answers);
    *f = (struct step_features){0};
}

void step_features_begin(struct step_features *f)
{
    f->n = f->n_rows = 0;
    f->error_text[0] = '\0';
}

/* Writes the sentence for the reply and is false, so that a check can return it. */
#define REFUSE(why, ...) (snprintf((why), ERROR_TEXT_BYTES, __VA_ARGS__), false)

bool step_features_check(const struct step_features *f, const struct feature_wish *wish,
                         const struct step_lane *lane, const struct model_config *cfg, char *why)
{
    const struct feature_wish kept = feature_wish_kept(wish);
    int n = lane->n_features, most = features_rows_max(wish, cfg->dim);
    int highest = kept.n ? kept.boundaries[kept.n - 1] : 0;
    if (n == 0) return true;
    if (feature_wish_is_empty(wish)) return REFUSE(why, "features of no boundary are wanted");
    if (lane->feature_first < 0 || n < 0 || lane->feature_first > lane->n_tokens - n) {
        return REFUSE(why, "features of rows %d to %d are wanted of %d tokens", lane->feature_first,
                      lane->feature_first + n - 1, lane->n_tokens);
    }
    if (highest > cfg->n_layers) {
        return REFUSE(why, "features at boundary %d are wanted, but the model has %d layers",
                      highest, cfg->n_layers);
    }
    if (n > most - f->n_rows) {
        return REFUSE(why,
                      "the features of %d rows of %zu numbers are longer than the %d bytes that a "
                      "reply holds: ask for those of at most %d rows at once",
                      f->n_rows + n, feature_wish_width(wish, cfg->dim), FEATURE_BYTES_MAX, most);
    }
    return true;
}

void step_features_take(struct step_features *f, const struct step_lane *lane, int first_row)
{
    if (lane->n_features == 0) return;
    f->lanes[f->n++] = (struct feature_rows){first_row + lane->feature_first, lane->n_features};
    f->n_rows += lane->n_features;
}

static bool is_wanted(const struct step_features *f, const struct model *model)
{
    return f->n > 0 && model_shard(model)->rank == 0;
}

void step_features_keep(struct step_features *f, const struct feature_wish *wish,
                        struct model *model)
{
    struct error err;
    int rc = model_keep_features(model, is_wanted(f, model) ? wish : NULL, &err);
    if (!rc) return;
    if (rc == ERR_ARGUMENT) { /* a projection that rank 0 does not have */
        snprintf(f->error_text, sizeof f->error_text, "%s", err.text);
        return;
    }
    snprintf(f->error_text, sizeof f->error_text, "there is no memory for the features: %.300s",
             err.text);
}

/* Copies one column of all lanes' rows, which the model has side by side, to its place in each row
 * of `row` elements; that of the projection comes after the others. */
static int copy_column(const struct step_features *f, const struct feature_wish *wish,
                       struct model *model, int column, size_t row, uint16_t *out,
                       struct error *err)
{
    const struct feature_rows *last = &f->lanes[f->n - 1];
    int first = f->lanes[0].first, n = last->first + last->n - first;
    size_t dim = (size_t)model_dim(model);
    bool is_projected = column == feature_wish_columns(wish);
    size_t width = is_projected ? (size_t)wish->projection.key.width : dim;
    const uint16_t *rows =
        is_projected ? model_projected(model, first, n) : model_features(model, column, first, n);
    if (!rows) return error_set(err, ERR_UNAVAILABLE, "the device was lost in the last step");
    out += (size_t)column * dim;
    for (int i = 0; i < f->n; i++) {
        const uint16_t *from = rows + (size_t)(f->lanes[i].first - first) * width;
        for (int r = 0; r < f->lanes[i].n; r++, from += width, out += row) {
            memcpy(out, from, width * sizeof *out);
        }
    }
    return 0;
}

int step_features_answer(struct step_features *f, const struct feature_wish *wish,
                         struct model *model, struct arena *arena, struct step_reply *reply,
                         struct error *err)
{
    int rc = 0, n_columns = feature_wish_columns(wish) + (wish->projection.key.digest ? 1 : 0);
    size_t row = feature_wish_width(wish, model_dim(model));
    int64_t start_us = clock_now_us();
    if (!is_wanted(f, model)) return 0;
    uint16_t *data = arena_take(arena, (size_t)f->n_rows * row, sizeof *data);
    if (!data && !f->error_text[0]) {
        snprintf(f->error_text, sizeof f->error_text, "there is no room for the features");
    }
    if (f->error_text[0]) {
        reply->feature_error = f->error_text;
        return 0;
    }
    for (int c = 0; c < n_columns; c++) {
        TRY(copy_column(f, wish, model, c, row, data, err));
    }
    for (int i = 0; i < f->n; i++) {
        f->answers[i] = (struct lane_features){f->lanes[i].n * (int)row, data};
        data += (size_t)f->lanes[i].n * row;
    }
    reply->n_features = f->n;
    reply->features = f->answers;
    reply->feature_us = (uint32_t)(clock_now_us() - start_us);
out:
    return rc;
}
