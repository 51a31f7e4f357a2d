/* Look-ahead tokens in a step (struct look_ahead_wish in coordinator/draft/lookup.h): how many a
 * lane has, and where. */
#include "coordinator/schedule/parts.h"

#include <string.h>

#include "base/least.h"

/* Times the step without them: as for windows, and further in proportion to what they promise, of
 * which the rest is for the rows of the guesses that they lead to. */
static const double free_stretch = 1.01, share_of_worth = 0.5;

void lane_look_ahead_add(const struct lane_look_ahead *l, int32_t first_id, struct guess_tree *tree)
{
    for (int i = 0; i < l->n; i++) {
        int place = l->places[i];
        if (place > tree->n_chain) continue;
        int at = place > 0 ? tree->chain[place - 1] : -1;
        for (int t = 0; t < l->length; t++) {
            at = guess_tree_add(tree, at, GUESS_LOOK_AHEAD, first_id < 0 ? -1 : first_id + t, NULL);
        }
    }
}

/* Takes as many of the wish's chains as fit in `room` rows beside a plan of n_nodes nodes and
 * n_paths paths with a chain of k, and before the text's last token. They are no longer than the
 * guesses that the next round may have. */
static struct lane_look_ahead take(const struct planning *p, const struct sequence *seq,
                                   const struct look_ahead_wish *wish, int k, int n_nodes,
                                   int n_paths, int room)
{
    struct lane_look_ahead l = {.n_top = wish->n_top};
    int deepest = least(seq->end - seq->n_tokens - 1, DRAFT_MAX);
    room = least(room, TREE_NODES_MAX - n_nodes);
    l.length = least(least(wish->length, planning_guess_room(p, seq)), room);
    for (int i = 0; l.length > 0 && i <= k && n_paths + l.n < TREE_PATHS_MAX; i++) {
        if ((l.n + 1) * l.length > room) break;
        if (wish->places[i] + l.length <= deepest) l.places[l.n++] = wish->places[i];
    }
    return l;
}

void planning_look_ahead_own(const struct planning *p, const struct sequence *seq, int k,
                             struct lane_look_ahead *look_ahead)
{
    const struct drafter *finder = drafters_look_ahead(p->s->drafters);
    const struct target_description *target = p->s->target;
    struct look_ahead_wish wish;
    *look_ahead = (struct lane_look_ahead){0};
    if (!finder || finder != drafters_first(p->s->drafters)) return; /* a model guesses */
    int room = least(target->max_step_tokens, target->max_step_rows) - 1 - k;
    finder->row->lookup->extra.look_ahead(finder, seq, k, &wish);
    *look_ahead = take(p, seq, &wish, k, k, 1, room);
}

/* Rows that the lanes may add to the step for what they promise. */
static int worth_rows(const struct planning *p, const struct look_ahead_wish *wishes, int n)
{
    int used = p->tokens_max - p->n_tokens, room = least(p->n_tokens, p->n_rows);
    double worth = 0;
    if (used <= 0 || room <= 0) return 0;
    for (int i = 0; i < n; i++) {
        worth += (double)wishes[i].worth;
    }
    double stretch = free_stretch + share_of_worth * worth / n;
    return planner_rows_within(p->s->planner, used, stretch, used, used + room) - used;
}

void planning_share_look_ahead(struct planning *p, struct lane_plan **lanes, int n)
{
    const struct drafter *finder = drafters_look_ahead(p->s->drafters);
    struct look_ahead_wish wishes[SEQUENCES_MAX];
    if (!finder || n == 0) return;
    for (int i = 0; i < n; i++) {
        finder->row->lookup->extra.look_ahead(finder, lanes[i]->seq, lanes[i]->tree.n_chain,
                                              &wishes[i]);
    }
    int room = worth_rows(p, wishes, n);
    for (int i = 0; i < n; i++) {
        struct lane_plan *lane = lanes[i];
        const struct guess_tree *tree = &lane->tree;
        lane->look_ahead = take(p, lane->seq, &wishes[i], tree->n_chain, tree->n,
                                1 + tree->n - tree->n_chain, room / (n - i));
        int n_rows = lane_look_ahead_rows(&lane->look_ahead);
        room -= n_rows;
        p->n_tokens -= n_rows;
        p->n_rows -= n_rows;
    }
}
