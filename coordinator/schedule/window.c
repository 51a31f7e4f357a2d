/* Windows: tokens that a finder wants checked for what their rows teach it (extra_rows of a struct
 * lookup_extra_ops). They promise nothing, so they get rows that cost next to nothing: those by
 * which the step of the round as it is planned becomes hardly longer. */
#include "coordinator/schedule/parts.h"

#include "base/least.h"

enum { WINDOW_MAX = 8 /* tokens: more of them would hardly teach anything */ };

/* Times the step without windows: it may take as long with them. */
static const double free_stretch = 1.01;

/* Rows that cost next to nothing. Where no times are known there are none. */
static int free_rows(const struct planning *p)
{
    int used = p->s->target->max_step_tokens - p->n_tokens;
    int room = least(p->n_tokens, p->n_rows);
    if (used <= 0 || room <= 0) return 0;
    return planner_rows_within(p->s->planner, used, free_stretch, used, used + room) - used;
}

/* A window is a tree, and it takes the place of a branch, which a lane that guesses after siblings
 * does not have. A lane that feeds a prompt has a long step anyway, in which nothing is free. */
static bool may_have_window(const struct lane_plan *lane)
{
    return lane->n_tokens == 1 && guess_tree_count(&lane->tree, GUESS_BRANCH | GUESS_GROWN) == 0 &&
           lane->seq->siblings_max > 0;
}

static int list_lanes(struct lane_plan **lanes, int n, struct lane_plan **list)
{
    int n_listed = 0;
    for (int i = 0; i < n; i++) {
        if (may_have_window(lanes[i])) list[n_listed++] = lanes[i];
    }
    return n_listed;
}

void planning_open_windows(struct planning *p, struct lane_plan **lanes, int n)
{
    struct lane_plan *list[SEQUENCES_MAX];
    const struct drafter *finder = drafters_extra_rows(p->s->drafters);
    if (!finder) return;
    int n_listed = list_lanes(lanes, n, list);
    int room = n_listed > 0 ? free_rows(p) : 0;
    for (int i = 0; i < n_listed; i++) {
        struct lane_plan *lane = list[i];
        int share = room / (n_listed - i);
        int n_nodes = lane->tree.n + lane_look_ahead_rows(&lane->look_ahead);
        int n_window = least(least(share, WINDOW_MAX), planning_guess_room(p, lane->seq));
        n_window = least(n_window, TREE_NODES_MAX - n_nodes);
        lane->window = n_window > 0 ? finder : NULL;
        guess_tree_plan(&lane->tree, n_window, GUESS_BRANCH);
        room -= n_window;
        p->n_tokens -= n_window;
        p->n_rows -= n_window;
    }
}
