/* The types of a model's tensors. */
#include "model/checkpoint/type_counts.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "model/numerics/block.h"

static const char *name_of(const struct weight *weight)
{
    if (!weight->data && weight->dtype != DTYPE_BLOCKS) return "synthetic";
    switch (weight->dtype) {
    case DTYPE_BF16:
        return "BF16";
    case DTYPE_F16:
        return "F16";
    case DTYPE_F32:
        return "F32";
    case DTYPE_BLOCKS:
        return block_type_of(weight->block)->name;
    default:
        return weight_form_name(weight_form_of(weight));
    }
}

/* Vectors, and rows of the embedding, are computed with as they are. */
static bool is_multiplied(const struct checkpoint *ck, enum tensor_role role)
{
    if (role == ROLE_EMBEDDING) return checkpoint_config(ck)->tied_embeddings;
    return role == ROLE_HEAD || role == ROLE_FROM_DIM || role == ROLE_FROM_HEADS ||
           role == ROLE_FROM_FFN;
}

static struct type_count *find(struct type_count *types, int *n, const char *name)
{
    for (int i = 0; i < *n; i++) {
        if (strcmp(types[i].name, name) == 0) return &types[i];
    }
    if (*n == TYPE_COUNTS_MAX) return NULL;
    types[*n] = (struct type_count){.name = name};
    return &types[(*n)++];
}

int checkpoint_count_types(const struct checkpoint *ck, struct type_count types[TYPE_COUNTS_MAX])
{
    size_t n_specs;
    const struct tensor_spec *specs = checkpoint_tensors(ck, &n_specs);
    int n = 0;
    for (size_t i = 0; i < n_specs; i++) {
        struct weight weight;
        struct error err; /* all of them were found at open */
        if (checkpoint_find(ck, specs[i].name, specs[i].n_rows, specs[i].n_cols, &weight, &err)) {
            continue;
        }
        struct type_count *type = find(types, &n, name_of(&weight));
        if (!type) continue;
        bool is_wide = weight.dtype == DTYPE_F32 || weight.dtype == DTYPE_F16;
        type->n_tensors++;
        if (!weight.data) continue;
        if (is_wide && is_multiplied(ck, specs[i].role)) type->n_rounded++;
        type->n_bytes += weight_data_bytes(&weight);
        if (weight.scales) type->n_bytes += weight_scale_bytes(&weight);
    }
    return n;
}

static void show(char text[TYPE_COUNTS_BYTES], const char *name, int n)
{
    size_t len = strcmp(text, "none") == 0 ? 0 : strlen(text);
    if (n == 0 || len >= TYPE_COUNTS_BYTES) return;
    snprintf(text + len, TYPE_COUNTS_BYTES - len, "%s%s:%d", len ? "," : "", name, n);
}

void checkpoint_show_types(const struct checkpoint *ck, char text[TYPE_COUNTS_BYTES],
                           char rounded[TYPE_COUNTS_BYTES])
{
    struct type_count types[TYPE_COUNTS_MAX];
    int n = checkpoint_count_types(ck, types);
    strcpy(text, "none");
    strcpy(rounded, "none");
    for (int i = 0; i < n; i++) {
        show(text, types[i].name, types[i].n_tensors);
        show(rounded, types[i].name, types[i].n_rounded);
    }
}
