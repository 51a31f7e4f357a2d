/* An EAGLE-1 head whose layer does nothing: its output is fc of the embedding and the feature, so a
 * test knows what it guesses. It is written as a folder. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/numerics/numerics.h"
#include "tests/support/check_util.h"
#include "tests/support/write_file.h"

/* Writes config.json and model.safetensors for a target of this width and vocabulary. The diagonals
 * of fc's two halves are `token` and `feature`, everything else is 0. */
static inline void eagle1_write(const char *dir, int dim, int vocab, float token, float feature)
{
    static const char *const zero[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                       "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                       "mlp.down_proj"};
    enum { N_ZERO = sizeof zero / sizeof *zero };
    char text[4096];
    size_t d = (size_t)dim, at = 0, square = d * d * 2;
    int len = snprintf(text, sizeof text,
                       "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "
                       "\"bias\": false, \"hidden_size\": %d, \"intermediate_size\": %d, "
                       "\"num_attention_heads\": %d, \"num_hidden_layers\": 1, "
                       "\"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\", "
                       "\"max_position_embeddings\": 2048, \"vocab_size\": %d}",
                       dim, dim, dim / 32, vocab);
    write_file(dir, "config.json", text, (size_t)len, NULL, 0);
    uint16_t *data = calloc(d * d * (2 + N_ZERO) + d, sizeof *data);
    for (size_t i = 0; i < d; i++) {
        data[i * 2 * d + i] = num_float_to_bf16(token);
        data[i * 2 * d + d + i] = num_float_to_bf16(feature);
    }
    len = 8 + snprintf(text + 8, sizeof text - 8,
                       "{\"fc.weight\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],"
                       "\"data_offsets\":[0,%zu]}",
                       dim, 2 * dim, 2 * square);
    at = 2 * square;
    for (int i = 0; i < N_ZERO; i++, at += square) {
        len += snprintf(text + len, sizeof text - (size_t)len,
                        ",\"layers.0.%s.weight\":{\"dtype\":\"BF16\",\"shape\":[%d,%d],"
                        "\"data_offsets\":[%zu,%zu]}",
                        zero[i], dim, dim, at, at + square);
    }
    len += snprintf(text + len, sizeof text - (size_t)len,
                    ",\"layers.0.post_attention_layernorm.weight\":{\"dtype\":\"BF16\","
                    "\"shape\":[%d],\"data_offsets\":[%zu,%zu]}}",
                    dim, at, at + d * 2);
    for (int i = 0; i < 8; i++) {
        text[i] = (char)((size_t)(len - 8) >> (8 * i));
    }
    write_file(dir, "model.safetensors", text, (size_t)len, data, at + d * 2);
    free(data);
}

static inline void eagle1_remove(const char *dir)
{
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    rmdir(dir);
}
