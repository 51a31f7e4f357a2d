/* What to ask of the workers for a rule, and what acceptance asks of a merged row. */
#include "speculation/target_row.h"

#include <assert.h>
#include <string.h>

/* The first try of a truncation without top-k; most nuclei are smaller. */
enum { FIRST_BEST = 64 };

static const char *const rule_names[RULE_COUNT] = {
    [RULE_REJECTION] = "rejection", [RULE_GREEDY] = "greedy", [RULE_COUPLED] = "coupled",
    [RULE_BLOCK] = "block",         [RULE_NAIVE] = "naive",   [RULE_TYPICAL] = "typical",
};

const char *accept_rule_name(enum accept_rule rule)
{
    return rule_names[rule];
}

int accept_rule_parse(const char *name, enum accept_rule *rule, struct error *err)
{
    for (int i = 0; i < RULE_COUNT; i++) {
        if (strcmp(name, rule_names[i]) == 0) {
            *rule = (enum accept_rule)i;
            return 0;
        }
    }
    return error_set(err, ERR_ARGUMENT,
                     "'%s' is no acceptance rule; there are rejection, greedy, coupled, block, "
                     "naive and typical",
                     name);
}

static void wish_normaliser(struct row_wish *wish, const struct sampling_params *params)
{
    wish->n_temperatures = 1;
    wish->temperatures[0] = params->temperature;
}

void target_row_wish(enum accept_rule rule, const struct sampling_params *params,
                     const struct sparse_dist *q, const struct rng_address *at, bool full_rows,
                     struct row_wish *wish)
{
    *wish = (struct row_wish){.at = *at};
    if (full_rows) {
        wish->full = true;
        return;
    }
    if (rule == RULE_GREEDY || params->temperature == 0) {
        wish->n_best = 1;
        return;
    }
    wish_normaliser(wish, params);
    if (sampling_truncates(params)) {
        wish->n_best = params->top_k > 0 ? params->top_k : FIRST_BEST;
        return;
    }
    if (rule == RULE_COUPLED) {
        wish->n_best = 1;
        wish->best_is_noisy = true;
        return;
    }
    wish->outside = true;
    wish->entropy = rule == RULE_TYPICAL;
    if (q) {
        wish->n_ids = q->n;
        wish->ids = q->ids;
    }
}

float target_row_prob(const struct target_row *row, int32_t id)
{
    int low = 0, high = row->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (row->ids[middle] < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < row->n && row->ids[low] == id) return row->p[low];
    assert(row->outside_mass == 0); /* p of this id was not asked for */
    return 0;
}

int32_t target_row_draw(const struct target_row *row, const struct rng_address *at)
{
    double total = row->outside_mass, sum = 0;
    for (int i = 0; i < row->n; i++) {
        total += (double)row->p[i];
    }
    double left = rng_uniform(at, RNG_RESIDUAL, 0) * total;
    int32_t last = row->outside_id;
    for (int i = 0; i < row->n; i++) {
        if (!(row->p[i] > 0)) continue;
        sum += (double)row->p[i];
        last = row->ids[i];
        if (left < sum) return last;
    }
    return row->outside_mass > 0 ? row->outside_id : last;
}
