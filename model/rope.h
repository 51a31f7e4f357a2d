/* Rotary position embedding: the inverse frequencies of a config, and cos and sin of positions,
 * computed as transformers' modeling_rope_utils.py does: frequencies in fp32, the angle as the fp32
 * product of frequency and position, then cos and sin of that. */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "model/checkpoint/config/config.h"

struct rope {
    int half; /* E / 2 */
    float frequency[HEAD_DIM_MAX / 2];
    float attention_factor; /* multiplies cos and sin; 1 for all but yarn */
};

/* Errors: ERR_UNSUPPORTED head_dim is odd or over HEAD_DIM_MAX. */
int rope_init(struct rope *rope, const struct model_config *cfg, struct error *err);

/* cos[half], sin[half] of one position. */
void rope_position(const struct rope *rope, int position, float *cos, float *sin);
