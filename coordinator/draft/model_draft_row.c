/* How a draft model's guess and its siblings are chosen from a row of logits. */
#include <math.h>
#include <string.h>

#include "base/least.h"
#include "coordinator/draft/model_draft.h"
#include "speculation/accept/multi_draft.h"
#include "speculation/accept/rules.h"

/* Coupled rules pick among q's tokens with the noise of the position, so q becomes one-hot. */
static void pick_coupled(struct model_draft *d, const struct sequence *seq,
                         const struct guess_row *row, struct guess *guess)
{
    struct sparse_dist *q = guess->q;
    select_sort_ids(row->best, row->n_best); /* q's ids ascend too, and all are among these */
    for (int i = 0, j = 0; i < q->n; i++, j++) {
        while (row->best[j].id != q->ids[i])
            j++;
        d->logits[i] = (float)row->best[j].score;
    }
    int32_t best[1 + SIBLINGS_MAX];
    const struct rng_address at = {.seed = seq->seed, .position = (uint32_t)guess->position};
    int n = multi_draft_coupled(q->ids, d->logits, q->n, seq->sampling.temperature, &at,
                                1 + guess->siblings_max, best);
    guess->id = best[0];
    guess->chance = sparse_prob(q, guess->id);
    guess->n_siblings = n - 1;
    for (int i = 0; i < guess->n_siblings; i++) {
        guess->siblings[i] = best[1 + i];
        guess->sibling_chances[i] = sparse_prob(q, best[1 + i]);
    }
    q->n = 1;
    q->ids[0] = guess->id;
    q->p[0] = 1.0f;
}

/* Chances that the draft gives its best tokens at temperature 1, among row->best. At temperature 0
 * q is one-hot and does not say. Writes up to n chances; returns how many. */
static int greedy_chances(const struct guess_row *row, float *chances, int n)
{
    double sum = 0;
    if (row->n_best < n) n = row->n_best;
    for (int i = 0; i < row->n_best; i++) {
        sum += exp(row->best[i].score - row->best[0].score);
    }
    for (int i = 0; i < n; i++) {
        chances[i] = (float)(exp(row->best[i].score - row->best[0].score) / sum);
    }
    return n;
}

int model_draft_row_chances(const struct sequence *seq, const struct guess_row *row,
                            float chances[TREE_CHILDREN_MAX])
{
    if (seq->sampling.temperature > 0) return tree_follow_best(&row->q, chances);
    return greedy_chances(row, chances, TREE_CHILDREN_MAX);
}

/* The n best of the row that exist for the target, too, into d->best; *n_best is how many. A mask
 * is no token of a text. */
static int best_of_row(struct model_draft *d, int row, int n, struct arena *arena, int *n_best,
                       struct error *err)
{
    int n_kept = 0;
    bool may_be_mask = d->mask_token >= 0 && d->mask_token < d->n_vocab;
    int n_asked = may_be_mask ? least(n + 1, d->base.n_choices) : n;
    int rc = model_best(d->model, row, n_asked, arena, d->best, n_best, err);
    if (rc || (!may_be_mask && d->n_vocab_target >= d->n_vocab)) return rc;
    for (int i = 0; i < *n_best && n_kept < n; i++) {
        bool is_mask = d->best[i].id == d->mask_token;
        if (d->best[i].id < d->n_vocab_target && !is_mask) d->best[n_kept++] = d->best[i];
    }
    *n_best = n_kept;
    return 0;
}

/* Siblings of a guess that was drawn from q or, at temperature 0, is the first of row->best, whose
 * chances are chances[n_chances]. */
static void choose_siblings(const struct sequence *seq, const struct guess_row *row,
                            const float *chances, int n_chances, const struct rng_address *at,
                            struct guess *guess)
{
    const struct sparse_dist *q = guess->q;
    int32_t taken[1 + SIBLINGS_MAX] = {guess->id};
    bool is_best = seq->rule->is_greedy, is_drawn = seq->sampling.temperature > 0 && !is_best;
    for (int i = 1; i <= guess->siblings_max; i++) {
        taken[i] = -1;
        if (is_best && i < row->n_best) taken[i] = row->best[i].id;
        if (is_drawn) {
            double u = rng_uniform(at, RNG_DRAFT, (uint32_t)(guess->coin + i));
            taken[i] = multi_draft_draw(q, taken, guess->is_independent ? 0 : i, u);
        }
        if (taken[i] < 0) return;
        float chance = is_drawn ? sparse_prob(q, taken[i]) : i < n_chances ? chances[i] : 0;
        guess->sibling_chances[guess->n_siblings] = chance;
        guess->siblings[guess->n_siblings++] = taken[i];
    }
}

int model_draft_row_size(const struct model_draft *d, const struct sequence *seq, int n_siblings)
{
    bool wants_q = seq->sampling.temperature > 0 || seq->threshold > 0 || seq->edits;
    return wants_q ? d->options.support : 1 + n_siblings;
}

/* Edits the best of the row after a node of the draft: its path is before it, and not committed. */
static int edit_row(struct model_draft *d, const struct draft_lane *lane, int node,
                    struct arena *arena, struct guess_row *read, struct error *err)
{
    const struct sequence *seq = lane->seq;
    const struct edit_list *edits;
    int32_t before[DRAFT_MAX];
    int n_before = guess_tree_text(lane->draft, node, before);
    size_t mark = arena->used_bytes;
    int rc = edits_at(seq->edits, before, n_before, arena, &edits, err);
    if (!rc) read->n_best = edits_apply_items(edits, d->best, read->n_best);
    arena->used_bytes = mark; /* a tree has many rows, and a long text many edits */
    return rc;
}

int model_draft_read_row(struct model_draft *d, const struct draft_lane *lane, int row, int node,
                         int n_best, struct arena *arena, struct guess_row *read, struct error *err)
{
    const struct sequence *seq = lane->seq;
    struct sparse_dist *q = &read->q;
    int rc = 0;
    *read = (struct guess_row){.best = d->best};
    *q = (struct sparse_dist){.ids = arena_take(arena, (size_t)n_best, sizeof *q->ids),
                              .p = arena_take(arena, (size_t)n_best, sizeof *q->p)};
    if (!q->ids || !q->p) return error_set(err, ERR_NO_MEMORY, "no room for the draft's q");
    TRY(best_of_row(d, row, n_best, arena, &read->n_best, err));
    if (seq->edits) TRY(edit_row(d, lane, node, arena, read, err));
    memcpy(d->scratch, d->best, (size_t)read->n_best * sizeof *d->best);
    sampling_draft_best(d->scratch, read->n_best, &seq->sampling, q);
out:
    return rc;
}

void model_draft_choose_from(struct model_draft *d, const struct sequence *seq,
                             const struct guess_row *row, struct guess *guess)
{
    float chances[TREE_CHILDREN_MAX] = {0};
    *guess->q = row->q;
    if (seq->rule->is_coupled && row->q.n > 1) {
        pick_coupled(d, seq, row, guess);
        return;
    }
    const struct rng_address at = {seq->seed, (uint32_t)guess->position, (uint32_t)guess->base};
    guess->id = sparse_draw(guess->q, rng_uniform(&at, RNG_DRAFT, (uint32_t)guess->coin));
    int n_chances = 0;
    if (seq->sampling.temperature > 0) {
        guess->chance = sparse_prob(guess->q, guess->id);
    } else {
        n_chances = greedy_chances(row, chances, TREE_CHILDREN_MAX);
        guess->chance = chances[0];
    }
    choose_siblings(seq, row, chances, n_chances, &at, guess);
}

int model_draft_choose(struct model_draft *d, const struct draft_lane *lane, int row,
                       struct arena *arena, struct guess *guess, struct error *err)
{
    int n_best = model_draft_row_size(d, lane->seq, guess->siblings_max);
    struct guess_row read;
    int node = guess_tree_last(lane->draft);
    int rc = model_draft_read_row(d, lane, row, node, n_best, arena, &read, err);
    if (!rc) model_draft_choose_from(d, lane->seq, &read, guess);
    return rc;
}
