/* The rows of a step in host memory: which lanes, tokens and positions they have, with the angles
 * of the positions. For open.c and forward.c alone. Owned by the model's thread. */
#pragma once

#include "model/backend/attention_lane.h"
#include "model/forward_lane.h"
#include "model/rope.h"

struct placement {
    const struct model_config *cfg;
    const struct rope *ropes; /* [n_ropes] */
    int n_ropes, max_tokens;
    bool lacks_first;             /* rows at position 0 have no token (struct head_entry) */
    int n, n_lanes;               /* rows, and lanes that have some */
    struct attention_lane *lanes; /* [max_lanes] */
    struct attention_tree *trees; /* [max_lanes] of those lanes that have one */
    int *first_rows;              /* [max_lanes] the first row of each lane that was given */
    int32_t *tokens;              /* [max_tokens] */
    float *cos, *sin;             /* [max_tokens][n_ropes][E / 2] */
    float *query_scale;           /* [max_tokens]; NULL: q is not scaled */
    /* Angles of positions that were fed before, because they take longer than the rest of a step:
     * slot position % n_known has those of position known[slot] - 1. */
    int n_known;
    int32_t *known;      /* [n_known] */
    float *known_angles; /* [n_known][n_ropes][cos, sin][E / 2] */
};

/* Keeps cfg and ropes. Errors: ERR_NO_MEMORY. */
int placement_open(struct placement *p, const struct model_config *cfg, const struct rope *ropes,
                   int n_ropes, int max_tokens, int max_lanes, struct error *err);
void placement_close(struct placement *p);

/* Numbers the rows of the lanes' tokens, or of their contexts, one lane after the other. contexts:
 * the features of a block drafter's lanes; NULL: there are no contexts. */
void placement_set(struct placement *p, const struct forward_lane *lanes,
                   const struct forward_features *contexts, int n_lanes, bool is_context);
