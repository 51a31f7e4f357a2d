/* Opens a GGUF file, or the files of a split one. Its metadata become a config, and its tensors get
 * the names that a folder of the same model has. A tensor whose name says nothing here keeps it
 * with a mark before it, so that it is found to be unread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/checkpoint/gguf/config.h"
#include "model/checkpoint/gguf/names.h"
#include "model/checkpoint/internal.h"
#include "model/numerics/block.h"

static const char mark[] = "gguf:";

static void take_divisors(struct model_config *cfg, const struct gguf_config *texts)
{
    struct rope_config *rope = &cfg->ropes[0];
    if (!texts->n_divisors) return;
    rope->kind = ROPE_LONG;
    rope->factor = rope->attention_factor = 1;
    rope->original_max_positions = cfg->max_positions;
    memcpy(rope->divisors, texts->divisors, (size_t)texts->n_divisors * sizeof *rope->divisors);
}

static int read_config(struct checkpoint *ck, struct config_rest *rest, struct error *err)
{
    struct gguf_config texts = {0};
    int rc = 0;
    TRY(gguf_arch_find(&ck->arch, ck->gguf, err));
    TRY(gguf_config_write(&texts, ck->gguf, ck->arch, err));
    TRY(config_parse(&ck->cfg, texts.config, strlen(texts.config), texts.sampling,
                     strlen(texts.sampling), ck->name, rest, err));
    take_divisors(&ck->cfg, &texts);
    if (ck->arch->has_whole_norms) ck->cfg.norm_offset = false;
out:
    gguf_config_free(&texts);
    return rc;
}

/* The views of the files, which stay the gguf's own, for hints and stamps. */
static int lend_files(struct checkpoint *ck, struct error *err)
{
    size_t n = gguf_n_files(ck->gguf);
    int rc = 0;
    TRY(mem_array(&ck->files, n, sizeof *ck->files, err));
    while (ck->n_files < n) {
        const char *name;
        struct weight_file *file = &ck->files[ck->n_files];
        file->view = *gguf_file(ck->gguf, ck->n_files++, &name);
        file->is_lent = true;
        file->name = strdup(name);
        if (!file->name) return error_set(err, ERR_NO_MEMORY, "no memory for a file name");
    }
out:
    return rc;
}

static void name_tensor(const struct checkpoint *ck, const struct gguf_tensor *tensor,
                        char name[GGUF_NAME_BYTES + sizeof mark])
{
    if (gguf_folder_name(ck->arch, tensor->name, name)) return;
    snprintf(name, GGUF_NAME_BYTES + sizeof mark, "%s%s", mark, tensor->name);
}

/* The dimensions in the order of folders: rows first. */
static void set_entry(struct safetensors_entry *entry, const struct gguf_tensor *tensor)
{
    snprintf(entry->dtype, sizeof entry->dtype, "%s", block_type_find(tensor->type)->name);
    entry->n_dims = tensor->n_dims;
    for (int i = 0; i < tensor->n_dims; i++) {
        entry->dims[i] = tensor->dims[tensor->n_dims - 1 - i];
    }
    entry->end = tensor->bytes;
}

static void set_weight(const struct checkpoint *ck, struct weight *weight,
                       const struct gguf_tensor *tensor)
{
    const struct block_type *type = block_type_find(tensor->type);
    *weight = (struct weight){.data = tensor->data};
    switch (type->kind) {
    case BLOCK_F32:
        weight->dtype = DTYPE_F32;
        break;
    case BLOCK_F16:
        weight->dtype = DTYPE_F16;
        break;
    case BLOCK_BF16:
        weight->dtype = DTYPE_BF16;
        break;
    default:
        weight->dtype = DTYPE_BLOCKS;
        weight->block = type->kind;
    }
    if (ck->arch->is_paired && gguf_is_of_q_or_k(tensor->name)) {
        weight->paired_rows = ck->cfg.head_dim;
    }
}

/* The name of the file that has these bytes. */
static const char *file_of(const struct checkpoint *ck, const uint8_t *data)
{
    size_t i = 0;
    while (i + 1 < ck->n_files && (data < ck->files[i].view.data ||
                                   data > ck->files[i].view.data + ck->files[i].view.size_bytes)) {
        i++;
    }
    return ck->files[i].name;
}

/* Vectors are no matrices, whatever they are stored in. */
static bool is_matrix_of_blocks(const struct tensor *tensor)
{
    return tensor->weight.dtype == DTYPE_BLOCKS && tensor->entry->n_dims > 1;
}

/* All tensors but the tables that the config has. Their names are in one block. */
static int add_tensors(struct checkpoint *ck, struct error *err)
{
    char name[GGUF_NAME_BYTES + sizeof mark];
    size_t n = 0, bytes = 0;
    int rc = 0;
    const struct gguf_tensor *tensors = gguf_tensors(ck->gguf, &n);
    struct safetensors *table = &ck->files[0].table;
    for (size_t i = 0; i < n; i++) {
        name_tensor(ck, &tensors[i], name);
        bytes += strlen(name) + 1;
    }
    TRY(mem_array(&table->entries, n, sizeof *table->entries, err));
    TRY(mem_array(&table->names, bytes, 1, err));
    TRY(mem_array(&ck->tensors, n, sizeof *ck->tensors, err));
    char *at = table->names;
    for (size_t i = 0; i < n; i++) {
        if (gguf_is_table(tensors[i].name)) continue;
        struct safetensors_entry *entry = &table->entries[table->n_entries++];
        struct tensor *tensor = &ck->tensors[ck->n_tensors++];
        name_tensor(ck, &tensors[i], name);
        strcpy(at, name);
        *entry = (struct safetensors_entry){.name = at};
        set_entry(entry, &tensors[i]);
        *tensor = (struct tensor){.name = at,
                                  .shown = tensors[i].name,
                                  .entry = entry,
                                  .file = file_of(ck, tensors[i].data)};
        set_weight(ck, &tensor->weight, &tensors[i]);
        if (is_matrix_of_blocks(tensor)) ck->cfg.stored = WEIGHTS_BLOCKS;
        at += strlen(name) + 1;
    }
out:
    return rc;
}

int checkpoint_open_gguf(struct checkpoint *ck, struct config_rest *rest, struct error *err)
{
    int rc = 0;
    TRY(gguf_open(&ck->gguf, ck->name, err));
    TRY(read_config(ck, rest, err));
    TRY(checkpoint_layout(&ck->cfg, &ck->layout, &ck->n_layout, err));
    TRY(lend_files(ck, err));
    TRY(add_tensors(ck, err));
    TRY(checkpoint_rename_tensors(ck, false, err));
out:
    return rc;
}
