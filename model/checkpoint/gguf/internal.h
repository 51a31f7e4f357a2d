/* Metadata as the config.json that a folder of the model would have. */
#pragma once

#include <jansson.h>

#include "model/checkpoint/gguf/arch.h"

struct gguf_config; /* config.h */

enum { GGUF_KEY_BYTES = 128, GGUF_INT_MOST = 1 << 30 };

/* A config that is being written. */
struct gguf_writing {
    const struct gguf *gguf;
    const struct gguf_arch *arch;
    json_t *root;
    struct gguf_config *out;
};

/* Writes "ARCHITECTURE.TAIL" into key. */
const char *gguf_arch_key(const struct gguf_writing *w, const char *tail, char key[GGUF_KEY_BYTES]);

/* Sets a member of an object and takes the value over. Errors: ERR_NO_MEMORY. */
int gguf_set(json_t *object, const char *key, json_t *value, struct error *err);

/* Sets the names that a folder's config.json has for the class of the model. */
int gguf_set_class(const struct gguf_writing *w, const char *architecture, const char *model_type,
                   struct error *err);

/* Adds a value to a list and takes it over. Errors: ERR_NO_MEMORY. */
int gguf_append(json_t *list, json_t *value, struct error *err);

/* A number of the metadata, most of which are fp32: the one with the fewest digits that is the same
 * in fp32, because the folder's config.json had those. */
json_t *gguf_json_number(double value);

/* Reads an integer that may be an array with an element for each layer, which then must all be the
 * same. *out stays as it is where the key is missing. */
int gguf_read_equal(const struct gguf_writing *w, const char *tail, int least, int most, int *out,
                    struct error *err);

/* rope.c: how positions rotate. head_dim: of a head. */
int gguf_write_rope(const struct gguf_writing *w, int head_dim, int max_positions,
                    struct error *err);
/* layers.c: in what the layers differ: windows, and those that do not rotate. */
int gguf_write_layers(const struct gguf_writing *w, int n_layers, struct error *err);
/* tokens.c: the first token and those that end a text. */
int gguf_write_tokens(const struct gguf_writing *w, int n_vocab, struct error *err);
/* tokens.c: how texts are sampled, as generation_config.json has it. */
int gguf_write_sampling(const struct gguf *gguf, json_t *root, struct error *err);
