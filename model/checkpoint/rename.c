/* The tensors of families that name them in another way than Llama: several matrices in one tensor
 * are several tensors here, each with its rows, and the text part of a model that also sees has the
 * names of a model of its own. All other code so knows one set of names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/checkpoint/config/family.h"
#include "model/checkpoint/internal.h"

enum { PARTS_MAX = 3, RENAMED_BYTES = 2 * TENSOR_NAME_BYTES };

struct renamed_tensor {
    char name[RENAMED_BYTES];
    struct safetensors_entry entry;
};

enum rows { ROWS_Q, ROWS_KV, ROWS_FFN, ROWS_ALL };

/* A tensor of a layer, without the ending that says what of the matrix it holds, and the matrices
 * whose rows it has one after the other. */
static const struct fused {
    enum family_tensors tensors;
    const char *name;
    struct {
        const char *name;
        enum rows rows;
    } parts[PARTS_MAX];
} fused_names[] = {
    {TENSORS_FUSED,
     "self_attn.qkv_proj.",
     {{"self_attn.q_proj.", ROWS_Q},
      {"self_attn.k_proj.", ROWS_KV},
      {"self_attn.v_proj.", ROWS_KV}}},
    {TENSORS_FUSED,
     "mlp.gate_up_proj.",
     {{"mlp.gate_proj.", ROWS_FFN}, {"mlp.up_proj.", ROWS_FFN}}},
    {TENSORS_OF_SHARED_MLP,
     "shared_mlp.input_linear.",
     {{"mlp.gate_proj.", ROWS_FFN}, {"mlp.up_proj.", ROWS_FFN}}},
    {TENSORS_OF_SHARED_MLP, "shared_mlp.output_linear.", {{"mlp.down_proj.", ROWS_ALL}}},
};

struct renaming {
    struct checkpoint *ck;
    enum family_tensors tensors;
    bool is_text_part;
    struct tensor *out;
    size_t n;
};

static bool begins_with(const char *name, const char *head)
{
    return strncmp(name, head, strlen(head)) == 0;
}

/* The name within the text part, whose layers may be below either of two names; NULL: the tensor is
 * of another part. */
static const char *text_name(const struct renaming *r, const char *name, char own[RENAMED_BYTES])
{
    static const char *const others[] = {"vision_tower.", "multi_modal_projector.",
                                         "model.vision_tower.", "model.multi_modal_projector."};
    static const char outer[] = "language_model.", inner[] = "model.language_model.";
    if (!r->is_text_part) return name;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (begins_with(name, others[i])) return NULL;
    }
    if (begins_with(name, outer)) return name + sizeof outer - 1;
    if (!begins_with(name, inner)) return name;
    snprintf(own, RENAMED_BYTES, "model.%s", name + sizeof inner - 1);
    return own;
}

static const struct fused *find_fused(const struct renaming *r, const char *tail)
{
    for (size_t i = 0; i < sizeof fused_names / sizeof *fused_names; i++) {
        const struct fused *fused = &fused_names[i];
        if (fused->tensors == r->tensors && begins_with(tail, fused->name)) return fused;
    }
    return NULL;
}

static uint64_t rows_of(const struct renaming *r, const struct tensor *tensor, enum rows rows)
{
    const struct model_config *cfg = &r->ck->cfg;
    switch (rows) {
    case ROWS_Q:
        return (uint64_t)cfg->n_heads * (uint64_t)cfg->head_dim;
    case ROWS_KV:
        return (uint64_t)cfg->n_kv_heads * (uint64_t)cfg->head_dim;
    case ROWS_FFN:
        return (uint64_t)cfg->ffn_dim;
    case ROWS_ALL:
        break;
    }
    return tensor->entry->dims[0];
}

/* A tensor of `name` with `n` of the dims[1] columns of the given one from `first` on, for matrices
 * that are stored with their outputs as columns. */
static void add_columns(struct renaming *r, const struct tensor *tensor, const char *name,
                        uint64_t first, uint64_t n)
{
    struct renamed_tensor *renamed = &r->ck->renamed[r->n];
    struct tensor *out = &r->out[r->n++];
    const struct safetensors_entry *entry = tensor->entry;
    uint64_t n_elements = entry->dims[0] * entry->dims[1];
    renamed->entry = *entry;
    snprintf(renamed->name, sizeof renamed->name, "%s", name);
    renamed->entry.name = renamed->name;
    renamed->entry.dims[1] = n;
    *out = *tensor;
    out->name = renamed->name;
    out->entry = &renamed->entry;
    out->line = entry->dims[1];
    if (n_elements) out->weight.data += first * ((entry->end - entry->begin) / n_elements);
}

/* A tensor of `name` with `rows` rows of the given one from `first` on, or all of it. */
static void add(struct renaming *r, const struct tensor *tensor, const char *name, uint64_t first,
                uint64_t rows)
{
    struct renamed_tensor *renamed = &r->ck->renamed[r->n];
    struct safetensors_entry *entry = &renamed->entry;
    *entry = *tensor->entry;
    snprintf(renamed->name, sizeof renamed->name, "%s", name);
    entry->name = renamed->name;
    uint64_t row_bytes = entry->dims[0] ? (entry->end - entry->begin) / entry->dims[0] : 0;
    if (entry->n_dims > 0 && rows != entry->dims[0]) {
        entry->begin += first * row_bytes;
        entry->end = entry->begin + rows * row_bytes;
        entry->dims[0] = rows;
    }
    struct tensor *out = &r->out[r->n++];
    *out = *tensor;
    out->name = renamed->name;
    out->entry = entry;
    out->weight.data += entry->begin - tensor->entry->begin;
}

static uint64_t n_elements(const struct safetensors_entry *entry)
{
    uint64_t n = 1;
    for (int i = 0; i < entry->n_dims; i++) {
        n *= entry->dims[i];
    }
    return n;
}

static bool is_one_of(const char *ending, const char *const *words)
{
    while (*words && strcmp(ending, *words) != 0) {
        words++;
    }
    return *words;
}

/* The rows of the matrix that one line of the tensor is for, where each part of the matrix has
 * whole lines: 1, or more where integers of several rows are in a word, or share a scale. A line is
 * a row of the tensor, or a column. 0: parts share one. Rows that share a scale are as many as the
 * config says, because the last block of the matrix may be a smaller one; rows that share a word
 * are those of stored_find.c, which checks each part's shape. */
static uint64_t rows_in_line(const struct renaming *r, const struct tensor *tensor,
                             const struct fused *fused, const char *ending, uint64_t n_lines,
                             uint64_t all)
{
    if (n_lines == 0 || all % n_lines) return 0;
    uint64_t per = all / n_lines;
    bool has_blocks = per != 1 && begins_with(ending, "weight_scale");
    if (has_blocks && per != (uint64_t)quant_block_rows(&r->ck->scheme)) return 0;
    for (int i = 0; i < PARTS_MAX && fused->parts[i].name; i++) {
        if (rows_of(r, tensor, fused->parts[i].rows) % per) return 0;
    }
    return per;
}

static int split(struct renaming *r, const struct tensor *tensor, const struct fused *fused,
                 int layer, const char *ending, struct error *err)
{
    static const char *const in_columns[] = {"qweight", "qzeros", "scales", NULL};
    static const char *const of_inputs[] = {"g_idx", "weight_g_idx", NULL};
    const struct safetensors_entry *entry = tensor->entry;
    uint64_t at = 0, all = 0;
    for (int i = 0; i < PARTS_MAX && fused->parts[i].name; i++) {
        all += rows_of(r, tensor, fused->parts[i].rows);
    }
    if (strcmp(ending, "weight_shape") == 0) return 0; /* of all parts, and it is not read */
    bool is_stored = r->ck->cfg.stored != WEIGHTS_BF16;
    bool has_columns = is_stored && entry->n_dims == 2 && is_one_of(ending, in_columns);
    bool is_shared = n_elements(entry) == 1 || (is_stored && is_one_of(ending, of_inputs));
    uint64_t n_lines = entry->n_dims > 0 ? entry->dims[has_columns] : 0;
    uint64_t per = is_shared ? 1 : rows_in_line(r, tensor, fused, ending, n_lines, all);
    if (!per && is_stored) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: %.100s is quantized together with others, which is not supported "
                         "where rows of two of them share scales or words",
                         r->ck->name, tensor->name);
    }
    if (per != 1 && !is_stored) {
        return error_set(err, ERR_FORMAT,
                         "%s: tensor %.100s has not the %llu rows that the config asks for",
                         r->ck->name, tensor->name, (unsigned long long)all);
    }
    for (int i = 0; i < PARTS_MAX && fused->parts[i].name; i++) {
        char name[RENAMED_BYTES];
        uint64_t rows = rows_of(r, tensor, fused->parts[i].rows);
        snprintf(name, sizeof name, "model.layers.%d.%s%s", layer, fused->parts[i].name, ending);
        if (is_shared) {
            add(r, tensor, name, 0, entry->n_dims > 0 ? entry->dims[0] : 0);
        } else if (has_columns) {
            add_columns(r, tensor, name, at / per, rows / per);
        } else {
            add(r, tensor, name, at / per, rows / per);
        }
        at += rows;
    }
    return 0;
}

static int rename_tensor(struct renaming *r, const struct tensor *tensor, struct error *err)
{
    char own[RENAMED_BYTES];
    const char *name = text_name(r, tensor->name, own);
    int layer = 0, len = 0;
    if (!name) return 0;
    if (sscanf(name, "model.layers.%d.%n", &layer, &len) == 1 && len > 0) {
        const struct fused *fused = find_fused(r, name + len);
        const char *ending = fused ? name + len + strlen(fused->name) : "";
        if (fused) return split(r, tensor, fused, layer, ending, err);
    }
    add(r, tensor, name, 0, tensor->entry->n_dims > 0 ? tensor->entry->dims[0] : 0);
    return 0;
}

int checkpoint_rename_tensors(struct checkpoint *ck, bool is_text_part, struct error *err)
{
    const struct model_family *family = family_of_architecture(ck->cfg.architecture);
    struct renaming r = {.ck = ck, .tensors = family->tensors, .is_text_part = is_text_part};
    int rc = 0;
    if (r.tensors == TENSORS_APART && !is_text_part) return 0;
    TRY(mem_array(&ck->renamed, ck->n_tensors * PARTS_MAX, sizeof *ck->renamed, err));
    TRY(mem_array(&r.out, ck->n_tensors * PARTS_MAX, sizeof *r.out, err));
    for (size_t i = 0; i < ck->n_tensors; i++) {
        TRY(rename_tensor(&r, &ck->tensors[i], err));
    }
    free(ck->tensors);
    ck->tensors = r.out;
    ck->n_tensors = r.n;
    r.out = NULL;
    rc = checkpoint_sort_names(ck, err);
out:
    free(r.out);
    return rc;
}
