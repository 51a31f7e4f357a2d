/* The types of a model's tensors. */
#include "model/checkpoint/kinds.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "model/numerics/block.h"

static const char *name_of(const struct weight *weight)
{
    if (!weight->data) return "synthetic";
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

static struct kind_count *find(struct kind_count *kinds, int *n, const char *name)
{
    for (int i = 0; i < *n; i++) {
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    }
    if (*n == STORED_KINDS_MAX) return NULL;
    kinds[*n] = (struct kind_count){.name = name};
    return &kinds[(*n)++];
}

int checkpoint_kinds(const struct checkpoint *ck, struct kind_count kinds[STORED_KINDS_MAX])
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
        struct kind_count *kind = find(kinds, &n, name_of(&weight));
        if (!kind) continue;
        bool is_wide = weight.dtype == DTYPE_F32 || weight.dtype == DTYPE_F16;
        kind->n_tensors++;
        if (!weight.data) continue;
        if (is_wide && is_multiplied(ck, specs[i].role)) kind->n_rounded++;
        kind->n_bytes += weight_data_bytes(&weight);
        if (weight.scales) kind->n_bytes += weight_scale_bytes(&weight);
    }
    return n;
}

static void show(char text[STORED_KINDS_BYTES], const char *name, int n)
{
    size_t len = strcmp(text, "none") == 0 ? 0 : strlen(text);
    if (n == 0 || len >= STORED_KINDS_BYTES) return;
    snprintf(text + len, STORED_KINDS_BYTES - len, "%s%s:%d", len ? "," : "", name, n);
}

void checkpoint_show_kinds(const struct checkpoint *ck, char text[STORED_KINDS_BYTES],
                           char rounded[STORED_KINDS_BYTES])
{
    struct kind_count kinds[STORED_KINDS_MAX];
    int n = checkpoint_kinds(ck, kinds);
    strcpy(text, "none");
    strcpy(rounded, "none");
    for (int i = 0; i < n; i++) {
        show(text, kinds[i].name, kinds[i].n_tensors);
        show(rounded, kinds[i].name, kinds[i].n_rounded);
    }
}
