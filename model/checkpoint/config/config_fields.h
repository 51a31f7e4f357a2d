/* The table of the fields of struct model_config: what the fingerprint of a model is made of, how
 * two configs are compared and what export writes all come from it, so that a new field cannot be
 * left out of one of them by mistake. tests/unit/model/checkpoint/test_config_fields.c fails as
 * long as a field of config.h has no row. */
#pragma once

#include <stddef.h>

#include "model/checkpoint/config/config.h"

enum config_field_type {
    CONFIG_TEXT,
    CONFIG_INT, /* enums too */
    CONFIG_BOOL,
    CONFIG_FLOAT,
    CONFIG_DOUBLE,
    CONFIG_FLOATS, /* an array */
    CONFIG_ROPE,   /* struct rope_config as a whole */
    CONFIG_IDS,    /* struct end_ids */
    CONFIG_LAYERS  /* struct layer_table */
};

/* Where an exported config.json has the field. */
enum config_field_place {
    CONFIG_AT_TOP,
    CONFIG_IN_FAMILY,   /* at the top, if the family has the key */
    CONFIG_BESIDE_ROPE, /* at the top, before "rope_scaling" */
    CONFIG_IN_ROPE,     /* in "rope_scaling" of the kinds in `kinds` */
    CONFIG_BY_HAND      /* model/export/config.c has code for it, or it follows from the family */
};

struct config_field {
    const char *name; /* of the member: "dim", "ropes[0].theta" */
    size_t offset, size;
    enum config_field_type type;
    int hashed_at; /* place in what the fingerprint is made of, from 1 on; 0: not in it */
    enum config_field_place place;
    const char *key;      /* of config.json; NULL with CONFIG_BY_HAND */
    unsigned kinds;       /* bit per enum rope_kind */
    const char *left_out; /* JSON of the value that readers assume, which is not written; or NULL */
};

/* [*n] rows, in the order in which config.json has them. */
const struct config_field *config_fields(int *n);

/* The field's value in cfg. */
const void *config_field_value(const struct config_field *field, const struct model_config *cfg);

/* The name of a field in which the two configs differ; NULL when there is none. */
const char *config_difference(const struct model_config *a, const struct model_config *b);

enum { CONFIG_HASHED_BYTES = 8192 + LAYERS_MAX };

/* Writes the bytes of a config that a fingerprint hashes; equal bytes mean equal configs. Returns
 * their number. */
size_t config_hashed_bytes(const struct model_config *cfg, char bytes[CONFIG_HASHED_BYTES]);
