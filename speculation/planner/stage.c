/* How much the draft reads ahead. The constants are choices and not measurements. */
#include "speculation/planner/stage.h"

#include <stddef.h>

#include "speculation/planner/cost.h"

/* Ratio of predicted times of all passes: reading ahead must promise this much. */
static const double worth_ratio = 0.98;
/* Share of comparisons that agree, in texts for which it is worth looking in each pass; tests from
 * which on it is known. */
static const float likely_share = 0.25F, likely_tests = 16;
/* Share of lanes with expectations for which nothing is read ahead, from which on reading ahead
 * counts as unused; lanes over which it is averaged. */
static const double unused_share = 0.95, unused_lanes = 64;
/* Chance: a guess that agrees more seldom is never read ahead. */
static const float least_survival = 0.02F;

/* Chances of the expected tokens, as if they were an offer for the draft. */
static struct planner_chain agreement(struct planner *p, const struct planner_sequence *seq,
                                      int evidence)
{
    const struct planner_offer offer = {.finder = PLANNER_STAGED, .evidence = evidence};
    return planner_offer_chain(&p->reasons, &seq->trust[PLANNER_STAGED], &offer);
}

void planner_observe_stage(struct planner *p, struct planner_sequence *seq, int evidence,
                           int n_tested, int n_equal)
{
    const struct planner_offer offer = {.finder = PLANNER_STAGED, .evidence = evidence};
    planner_offer_observe(&p->reasons, &seq->trust[PLANNER_STAGED], &offer, n_tested, n_equal);
}

bool planner_stage_is_likely(const struct planner_sequence *seq)
{
    const struct planner_trust *trust = &seq->trust[PLANNER_STAGED];
    return trust->tested < likely_tests || trust->accepted >= likely_share * trust->tested;
}

bool planner_stage_is_used(const struct planner *p)
{
    return p->stage_unused < unused_share;
}

static void note_use(struct planner *p, const struct planner_stage_lane *lanes, int n_lanes)
{
    for (int i = 0; i < n_lanes; i++) {
        if (lanes[i].n_known == 0 || lanes[i].n_wanted < 2) continue;
        p->stage_unused += ((lanes[i].n_fed > 0 ? 0 : 1) - p->stage_unused) / unused_lanes;
    }
}

void planner_stage_chances(struct planner *p, const struct planner_sequence *seq, int evidence,
                           int n_known, float *chances)
{
    struct planner_chain chain = agreement(p, seq, evidence);
    float survival = 1;
    chances[0] = 0;
    for (int i = 1; i < DRAFT_MAX; i++) {
        if (i <= n_known) survival *= planner_chain_next(&chain);
        chances[i] = i <= n_known && survival >= least_survival ? survival : 0;
    }
}

/* State of one lane: the chance that the draft agrees with all expected tokens up to the next one
 * that may be read ahead; 0 = there is none. */
struct agreeing {
    struct planner_chain chain;
    float survival;
    int n; /* that are read ahead */
};

static void go_on(struct agreeing *a, const struct planner_stage_lane *lane)
{
    int n_most = lane->n_known < lane->n_wanted ? lane->n_known : lane->n_wanted - 1;
    a->survival = a->n < n_most ? a->survival * planner_chain_next(&a->chain) : 0;
    if (a->survival < least_survival) a->survival = 0;
}

static int likeliest(const struct agreeing *agreeing, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (agreeing[i].survival > agreeing[best].survival) best = i;
    }
    return best;
}

/* Passes from the next one on: the time of all, and how many lanes are expected to need each. */
struct passes {
    double us, lanes[DRAFT_MAX];
};

/* Without reading ahead. */
static struct passes passes_of(const struct planner_model *model,
                               const struct planner_stage_lane *lanes, int n_lanes)
{
    struct passes passes = {0};
    for (int i = 0; i < n_lanes; i++) {
        for (int j = 0; j < lanes[i].n_wanted && j < DRAFT_MAX; j++) {
            passes.lanes[j]++;
        }
    }
    for (int j = 0; j < DRAFT_MAX; j++) {
        passes.us += planner_pass_us(model, passes.lanes[j]);
    }
    return passes;
}

/* A lane that wants k guesses needs pass k - n, counted from 0, unless the draft agrees with the
 * first n expected tokens; so it is the n-th of them that may save it. The next pass has one more
 * row. */
static void add_row(const struct planner_model *model, struct passes *passes, int rows, int pass,
                    double survival)
{
    double *lanes = &passes->lanes[pass];
    passes->us += planner_pass_us(model, rows + 1) - planner_pass_us(model, rows);
    passes->us += planner_pass_us(model, *lanes - survival) - planner_pass_us(model, *lanes);
    *lanes -= survival;
}

/* Adds token after token, the likeliest first, and keeps as many as give the least time. */
void planner_stage(struct planner *p, int model, struct planner_stage_lane *lanes, int n_lanes)
{
    const struct planner_model *m = &p->models[model];
    struct agreeing agreeing[PLANNER_LANES_MAX];
    struct passes passes = passes_of(m, lanes, n_lanes);
    int n_most = planner_near(m->draft.largest) - n_lanes;
    double best_us = worth_ratio * passes.us;
    for (int i = 0; i < n_lanes; i++) {
        agreeing[i] = (struct agreeing){agreement(p, lanes[i].seq, lanes[i].evidence), 1, 0};
        go_on(&agreeing[i], &lanes[i]);
        lanes[i].n_fed = 0;
    }
    for (int n = 0; n < n_most && m->draft.largest > 0; n++) {
        int at = likeliest(agreeing, n_lanes);
        struct agreeing *next = &agreeing[at];
        if (next->survival <= 0) break;
        next->n++;
        add_row(m, &passes, n_lanes + n, lanes[at].n_wanted - next->n, (double)next->survival);
        go_on(next, &lanes[at]);
        if (passes.us >= best_us) continue;
        best_us = passes.us;
        for (int i = 0; i < n_lanes; i++) {
            lanes[i].n_fed = agreeing[i].n;
        }
    }
    note_use(p, lanes, n_lanes);
}
