/* The rows of a step in host memory. */
#include "model/placement.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/least.h"
#include "base/memory.h"
#include "model/backend/backend.h"
#include "model/numerics/numerics.h"

enum { KNOWN_MAX = 16384 /* memory is taken by those positions alone that are fed */ };

int placement_open(struct placement *p, const struct model_config *cfg, const struct rope *ropes,
                   int n_ropes, int max_tokens, int max_lanes, struct error *err)
{
    size_t n = (size_t)max_tokens, n_lanes = (size_t)max_lanes;
    size_t n_pairs = n * (size_t)n_ropes * (size_t)(cfg->head_dim / 2);
    int rc = 0;
    *p = (struct placement){.cfg = cfg,
                            .ropes = ropes,
                            .n_ropes = n_ropes,
                            .max_tokens = max_tokens,
                            .n_known = most(1, least(cfg->max_positions, KNOWN_MAX))};
    size_t n_known = (size_t)p->n_known, n_angles = (size_t)n_ropes * (size_t)cfg->head_dim;
    TRY(mem_array(&p->lanes, n_lanes, sizeof *p->lanes, err));
    TRY(mem_array(&p->trees, n_lanes, sizeof *p->trees, err));
    TRY(mem_array(&p->first_rows, n_lanes, sizeof *p->first_rows, err));
    TRY(mem_array(&p->tokens, n, sizeof *p->tokens, err));
    TRY(mem_array(&p->cos, n_pairs, sizeof *p->cos, err));
    TRY(mem_array(&p->sin, n_pairs, sizeof *p->sin, err));
    TRY(mem_array(&p->known, n_known, sizeof *p->known, err));
    TRY(mem_array(&p->known_angles, n_known * n_angles, sizeof *p->known_angles, err));
    if (cfg->query_period) TRY(mem_array(&p->query_scale, n, sizeof *p->query_scale, err));
out:
    return rc;
}

void placement_close(struct placement *p)
{
    free(p->lanes);
    free(p->trees);
    free(p->first_rows);
    free(p->tokens);
    free(p->cos);
    free(p->sin);
    free(p->query_scale);
    free(p->known);
    free(p->known_angles);
    *p = (struct placement){0};
}

/* Places the angles and the scale of q that belong to a row's position. */
static void place_position(struct placement *p, int row, int position)
{
    const struct model_config *cfg = p->cfg;
    size_t n_ropes = (size_t)p->n_ropes, half = (size_t)(cfg->head_dim / 2);
    size_t slot = (size_t)(position % p->n_known), at = (size_t)row * n_ropes * half;
    float *cos = p->known_angles + slot * n_ropes * 2 * half;
    for (size_t i = 0; i < n_ropes; i++, cos += 2 * half, at += half) {
        if (p->known[slot] != position + 1) {
            rope_position(&p->ropes[i], position, cos, cos + half);
        }
        memcpy(p->cos + at, cos, half * sizeof *cos);
        memcpy(p->sin + at, cos + half, half * sizeof *cos);
    }
    p->known[slot] = position + 1;
    if (!p->query_scale) return;
    double whole = position / cfg->query_period;
    p->query_scale[row] = (float)(1 + (double)cfg->query_beta * num_log(1 + whole));
}

/* Makes the lane's tokens the next rows. */
static void place_lane(struct placement *p, const struct forward_lane *lane)
{
    struct attention_tree *tree = lane->tree ? &p->trees[p->n_lanes] : NULL;
    struct attention_lane *out = &p->lanes[p->n_lanes++];
    int first = p->n;
    assert(first + lane->n_tokens <= p->max_tokens);
    if (tree) {
        const struct tree_layout *shape = lane->tree->shape;
        attention_tree_place(tree, shape, lane->blocks, lane->tree->tails, lane->position,
                             lane->n_tokens - shape->n_nodes);
    }
    *out = (struct attention_lane){first, lane->n_tokens, lane->position, lane->blocks, tree};
    for (int t = 0; t < lane->n_tokens; t++) {
        int position = attention_position(out, t);
        bool has_token = lane->tokens && !(position == 0 && p->lacks_first);
        p->tokens[first + t] = has_token ? lane->tokens[t] : STEP_NO_TOKEN;
        place_position(p, first + t, position);
    }
    p->n += lane->n_tokens;
}

void placement_set(struct placement *p, const struct forward_lane *lanes,
                   const struct forward_features *contexts, int n_lanes, bool is_context)
{
    p->n = p->n_lanes = 0;
    for (int i = 0; i < n_lanes; i++) {
        struct forward_lane lane = lanes[i];
        int n_context = contexts ? contexts[i].n_target : 0;
        if (is_context) {
            lane.n_tokens = n_context;
            lane.tokens = NULL;
        } else {
            lane.position += n_context;
        }
        p->first_rows[i] = p->n;
        if (lane.n_tokens > 0) place_lane(p, &lane);
    }
}
