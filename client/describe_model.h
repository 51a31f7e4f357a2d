/* outrider describe MODEL: a model on this machine's disk, without a server. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Prints what the folder or GGUF file holds, for people or as one JSON object. Errors: those of
 * checkpoint_open; ERR_IO. */
int describe_model(const char *model, bool is_json, struct error *err);

struct model_facts {
    char architecture[64];
    uint64_t weight_bytes, n_parameters;
    bool is_head, is_gguf;
};

/* Errors: as above. */
int describe_model_facts(struct model_facts *facts, const char *model, struct error *err);
