/* Reads what a coordinator has measured from a file of `outrider plan --cluster`. */
#include <stdlib.h>
#include <string.h>

#include "base/system/file.h"
#include "client/client.h"
#include "client/plan/cluster.h"
#include "client/plan/file.h"
#include "proto/generation_wire.h"
#include "speculation/theory/rising.h"

enum {
    ASKED_TOKENS = 100,
    INDENT = 1,
    DIGITS = 6 /* of what is a float */
};

/* The points with ascending rows; their times never fall. */
static json_t *table_json(const struct time_table *table)
{
    json_t *list = json_array();
    double rows[CLUSTER_POINTS_MAX], us[CLUSTER_POINTS_MAX];
    int n = 0;
    for (int i = 0; i < table->n && n < CLUSTER_POINTS_MAX; i++) {
        rows[n] = (double)table->points[i].rows;
        us[n] = (double)table->points[i].us;
        if (rows[n] >= 1 && (n == 0 || rows[n] > rows[n - 1])) n++;
    }
    rising_fit(us, n);
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("[ff]", rows[i], us[i]));
    return list;
}

/* The value at one row, and what each further row adds up to the last point. */
static void line_of(const struct time_table *table, double *first, double *slope)
{
    *first = *slope = 0;
    if (table->n == 0) return;
    const struct time_point *a = &table->points[0], *b = &table->points[table->n - 1];
    *first = (double)a->us;
    if (b->rows > a->rows) *slope = (double)(b->us - a->us) / (double)(b->rows - a->rows);
    if (*slope < 0) *slope = 0;
}

static json_t *alphas_json(const struct estimates *e)
{
    json_t *list = json_array();
    for (int i = 0; i < e->n_positions; i++) {
        json_array_append_new(list, json_real((double)e->alpha_at[i]));
    }
    if (e->n_positions == 0) json_array_append_new(list, json_real(0));
    return list;
}

static json_t *guess_json(const struct time_tables *times)
{
    return times->draft.n ? table_json(&times->draft) : json_pack("[[if]]", 1, 0.0);
}

/* A step's collectives are in its time already, and so are they with the same T; another T needs
 * `collectives`. What is not draft and not step is all charged to the coordinator, which then looks
 * saturated sooner than it is: the coordinator does not say how much of it was the wire. */
static json_t *file_json(const struct service_description *desc)
{
    double rest, row;
    line_of(&desc->times.rest, &rest, &row);
    json_t *assumptions = json_pack(
        "[sss]",
        "the step's time includes the collectives of the ranks that were measured; another number "
        "of ranks needs \"collectives\", with per_step and hop_us or measured",
        "all of a round that is neither draft nor step is the coordinator's own time; move the "
        "wire's part to \"wire\" if it is known",
        "the links are as they were when this was measured");
    json_t *question = json_pack("{si si si si ss}", "groups", 1, "ranks", desc->n_ranks, "clients",
                                 1, "tokens", ASKED_TOKENS, "k", "best");
    return json_pack("{ss so so so so si si s{sf sf} s{sf} s[o]}", "name", desc->target_model,
                     "assumptions", assumptions, "alpha", alphas_json(&desc->estimates), "guess_us",
                     guess_json(&desc->times), "step_us", table_json(&desc->times.step), "ranks",
                     desc->n_ranks, "lanes_per_group", desc->load.sequences_max, "coordinator",
                     "us_per_round", rest, "us_per_row", row, "wire", "us_per_step", 0.0,
                     "questions", question);
}

int plan_cluster_write(const char *path, const struct service_description *desc, struct error *err)
{
    int rc = 0;
    if (desc->times.step.n == 0) {
        return error_set(err, ERR_NOT_FOUND,
                         "the coordinator has measured no step yet: run `outrider generate -n 100 "
                         "--strategy planned` on it first");
    }
    json_t *file = file_json(desc);
    char *text = file ? json_dumps(file, JSON_INDENT(INDENT) | JSON_REAL_PRECISION(DIGITS)) : NULL;
    json_decref(file);
    if (!text) return error_set(err, ERR_NO_MEMORY, "no memory for %.200s", path);
    rc = file_replace(path, text, strlen(text), err);
    free(text);
    return rc;
}
