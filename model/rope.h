/* Rotary position embedding: the inverse frequencies of a config, and cos and sin of positions,
 * computed as transformers' modeling_rope_utils.py does: frequencies in fp32, the angle as the fp32
 * product of frequency and position, then cos and sin of that. */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "model/checkpoint/config/config.h"

struct rope {
    int half; /* of the elements that rotate: E / 2 where all do */
    float frequency[HEAD_DIM_MAX / 2];
    float attention_factor; /* multiplies cos and sin; 1 for most kinds */
};

/* The table of one of the config's rotations. Errors: ERR_UNSUPPORTED the number of elements that
 * rotate is odd or over HEAD_DIM_MAX. */
int rope_init(struct rope *rope, const struct rope_config *cfg, int head_dim, struct error *err);

/* cos[half], sin[half] of one position. */
void rope_position(const struct rope *rope, int position, float *cos, float *sin);
