/* Edits of the made-up world of lane statistics (tests/support/lane_statistics.h): penalties, a
 * bias, bans that span tokens and an end that may not come yet. The rows of a tree are edited by
 * the edits of a sequence, and how a text must be distributed is computed without them, from the
 * meaning of the options. */
#pragma once

#include "coordinator/sequence/sequence.h"
#include "tests/support/lane_statistics.h"

static const struct edit_bias lane_bias = {.id = 3, .bias = 0.7F};
static const int32_t lane_ban_two[] = {1, 4}, lane_ban_three[] = {2, 0, 5}, lane_end = 2;
static const struct edit_ban lane_bans[] = {{2, lane_ban_two}, {3, lane_ban_three}};
static const struct edit_rules lane_rules = {.repetition_penalty = 1.4F,
                                             .presence_penalty = 0.4F,
                                             .frequency_penalty = 0.6F,
                                             .n_biases = 1,
                                             .biases = &lane_bias,
                                             .n_bans = 2,
                                             .bans = lane_bans,
                                             .min_tokens = 2,
                                             .n_end_ids = 1,
                                             .end_ids = &lane_end};

/* The text whose rows are edited. */
static struct sequence *lane_edited;
static bool lane_edits_miss_guesses; /* wrong: only what is committed counts */

/* Logit of a probability: some are positive. */
static inline double lane_logit(float p)
{
    return log((double)p) + 2;
}

/* A text of n tokens begins anew. */
static inline void begin_lane_edits(struct sequence *seq, int n)
{
    struct error err;
    edits_close(seq->edits);
    CHECK_OK(edits_open(&seq->edits, &lane_rules, N_IDS, seq->tokens, n, 4 * DRAFT_MAX, &err));
    lane_edited = seq;
}

/* p of the row after a node. */
static inline void edit_lane_row(const struct guess_tree *tree, int node, float *p)
{
    struct error err;
    static struct arena arena;
    const struct edit_list *list;
    int32_t path[DRAFT_MAX];
    int n = lane_edits_miss_guesses ? 0 : guess_tree_text(tree, node, path);
    if (!arena.base) CHECK_OK(arena_open(&arena, 1 << 16, &err));
    arena_reset(&arena);
    CHECK_OK(edits_at(lane_edited->edits, path, n, &arena, &list, &err));
    for (int i = 0; i < N_IDS; i++) {
        const struct edit *edit = edit_find(list, i);
        double logit = lane_logit(p[i]);
        p[i] = (float)exp(edit ? (double)edit_apply(edit, (float)logit) : logit);
    }
    tree_normalise(p, N_IDS);
}

static inline bool lane_ends_with(const int32_t *text, int n, const int32_t *ban, int n_ban)
{
    return n >= n_ban && memcmp(text + n - n_ban, ban, (size_t)n_ban * sizeof *ban) == 0;
}

/* The weight of the last of text[n] after the others, of which `begin` are the prompt. */
static inline double lane_weight(const int32_t *text, int begin, int n)
{
    int32_t id = text[n - 1];
    int n_prompt = 0, n_answer = 0;
    for (int i = 0; i < n - 1; i++) {
        if (text[i] != id) continue;
        n_prompt += i < begin ? 1 : 0;
        n_answer += i < begin ? 0 : 1;
    }
    double logit = lane_logit(world.p[tree_context(&world, text[n - 2])][id]);
    if (n_prompt + n_answer > 0) logit = logit > 0 ? logit / 1.4 : logit * 1.4;
    if (n_answer > 0) logit -= 0.6 * n_answer + 0.4;
    if (id == 3) logit += 0.7;
    bool is_banned = lane_ends_with(text, n, lane_ban_two, 2) ||
                     lane_ends_with(text, n, lane_ban_three, 3) ||
                     (id == lane_end && n - 1 - begin < 2);
    return is_banned ? 0 : exp(logit);
}

/* As test_cells, after a prompt. */
static inline struct stats_result test_edited_cells(const int64_t seen[CELLS], const int32_t *begin,
                                                    int n_begin)
{
    double wanted[CELLS];
    int32_t text[64];
    memcpy(text, begin, (size_t)n_begin * sizeof *text);
    for (int c = 0; c < CELLS; c++) {
        int n = n_begin;
        wanted[c] = 1;
        for (int unit = CELLS / N_IDS; unit > 0; unit /= N_IDS) {
            double sum = 0, own = 0;
            n++;
            for (int32_t id = 0; id < N_IDS; id++) {
                text[n - 1] = id;
                double weight = lane_weight(text, n_begin, n);
                sum += weight;
                if (id == c / unit % N_IDS) own = weight;
            }
            text[n - 1] = c / unit % N_IDS;
            wanted[c] *= own / sum;
        }
    }
    return stats_chi_square(seen, wanted, CELLS);
}
