/* The files and tensors of an exported folder, and their bytes. */
#include "model/export/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { PARTS_MOST = 3 };

static bool is_vector(enum tensor_role role)
{
    return role == ROLE_NORM || role == ROLE_FINAL_NORM || role == ROLE_HEAD_NORM ||
           role == ROLE_BIAS || role == ROLE_RESIDUAL_BIAS;
}

/* Embedding and head stay as they are: other engines do not read them packed. */
static bool is_packed(enum weight_form form, enum tensor_role role)
{
    return form != WEIGHTS_BF16 &&
           (role == ROLE_FROM_DIM || role == ROLE_FROM_HEADS || role == ROLE_FROM_FFN);
}

static struct export_tensor *add(struct export_list *list, const struct tensor_spec *spec,
                                 enum export_part part, const char *suffix, const char *dtype)
{
    struct export_tensor *tensor = &list->tensors[list->n++];
    *tensor = (struct export_tensor){.spec = spec, .part = part, .dtype = dtype};
    snprintf(tensor->name, sizeof tensor->name, "%s%s", spec->name, suffix);
    return tensor;
}

static void set_dims(struct export_tensor *tensor, int n_rows, int n_cols, size_t element_bytes)
{
    tensor->n_dims = 2;
    tensor->dims[0] = n_rows;
    tensor->dims[1] = n_cols;
    tensor->n_bytes = (uint64_t)n_rows * (uint64_t)n_cols * element_bytes;
}

static void set_vector(struct export_tensor *tensor, int n, size_t element_bytes)
{
    tensor->n_dims = 1;
    tensor->dims[0] = n;
    tensor->n_bytes = (uint64_t)n * element_bytes;
}

static void add_whole(struct export_list *list, const struct tensor_spec *spec)
{
    struct export_tensor *tensor = add(list, spec, EXPORT_WHOLE, "", "BF16");
    if (is_vector(spec->role)) {
        set_vector(tensor, spec->n_cols, sizeof(uint16_t));
    } else {
        set_dims(tensor, spec->n_rows, spec->n_cols, sizeof(uint16_t));
    }
}

static void add_parts(struct export_list *list, const struct tensor_spec *spec)
{
    int per_word = list->form == WEIGHTS_INT8 ? 4 : 8, n_rows = spec->n_rows;
    set_dims(add(list, spec, EXPORT_PACKED, "_packed", "I32"), n_rows, spec->n_cols / per_word,
             sizeof(int32_t));
    set_dims(add(list, spec, EXPORT_SCALE, "_scale", "BF16"), n_rows, spec->n_cols / QUANT_GROUP,
             sizeof(uint16_t));
    set_vector(add(list, spec, EXPORT_SHAPE, "_shape", "I64"), 2, sizeof(int64_t));
}

/* The groups of a whole row must be those that loading the model with --weights would make. */
static int check_slices(const struct checkpoint *ck, enum weight_form form,
                        const struct tensor_spec *spec, struct error *err)
{
    int n_slices = spec->role == ROLE_FROM_DIM ? 1 : config_slices(checkpoint_config(ck));
    int width = spec->n_cols / n_slices;
    if (width % QUANT_GROUP == 0) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "%s cannot be stored in %s: %s is computed in slices of %d, which is no "
                     "multiple of the group of %d; run it as it is with --weights %s",
                     checkpoint_name(ck), weight_form_name(form), spec->name, width, QUANT_GROUP,
                     weight_form_name(form));
}

int export_list_init(struct export_list *list, const struct checkpoint *ck, enum weight_form form,
                     struct error *err)
{
    int rc = 0, widest = 0;
    size_t n_specs;
    const struct tensor_spec *specs = checkpoint_tensors(ck, &n_specs);
    *list = (struct export_list){.form = form};
    if (checkpoint_config(ck)->stored != WEIGHTS_BF16) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s is stored in %s; export the model that it was made from",
                         checkpoint_name(ck), weight_form_name(checkpoint_config(ck)->stored));
    }
    TRY(mem_array(&list->tensors, PARTS_MOST * n_specs, sizeof *list->tensors, err));
    for (size_t i = 0; i < n_specs; i++) {
        const struct tensor_spec *spec = &specs[i];
        if (is_packed(form, spec->role)) {
            TRY(check_slices(ck, form, spec, err));
            add_parts(list, spec);
        } else {
            add_whole(list, spec);
        }
        if (spec->n_cols > widest) widest = spec->n_cols;
    }
    for (size_t i = 0; i < list->n; i++) {
        list->n_bytes += list->tensors[i].n_bytes;
    }
    TRY(mem_array(&list->q, (size_t)widest, sizeof *list->q, err));
    TRY(mem_array(&list->scales, (size_t)widest / QUANT_GROUP + 1, sizeof *list->scales, err));
out:
    if (rc) export_list_free(list);
    return rc;
}

void export_list_free(struct export_list *list)
{
    free(list->tensors);
    free(list->q);
    free(list->scales);
    *list = (struct export_list){0};
}

int export_tensor_rows(const struct export_tensor *tensor)
{
    return tensor->n_dims == 2 ? tensor->dims[0] : 1;
}

/* q plus its offset, the lowest k in the lowest bits. */
static void pack_row(enum weight_form form, const int8_t *q, int n, uint8_t *out)
{
    if (form == WEIGHTS_INT8) {
        for (int i = 0; i < n; i++) {
            out[i] = (uint8_t)(q[i] + 128);
        }
        return;
    }
    for (int i = 0; i < n; i += 2) {
        out[i / 2] = (uint8_t)((q[i] + 8) | (q[i + 1] + 8) << 4);
    }
}

static void read_shape(const struct tensor_spec *spec, uint8_t *out)
{
    const int64_t shape[] = {spec->n_rows, spec->n_cols};
    for (int i = 0; i < 16; i++) {
        out[i] = (uint8_t)((uint64_t)shape[i / 8] >> 8 * (i % 8));
    }
}

void export_tensor_read(const struct export_list *list, const struct export_tensor *tensor,
                        const struct weight *weight, int row, int n_rows, uint8_t *out)
{
    const struct tensor_spec *spec = tensor->spec;
    size_t row_bytes = tensor->n_bytes / (size_t)export_tensor_rows(tensor);
    if (tensor->part == EXPORT_SHAPE) {
        read_shape(spec, out);
        return;
    }
    for (int i = row; i < row + n_rows; i++, out += row_bytes) {
        if (tensor->part == EXPORT_WHOLE) {
            weight_read_bf16(weight, i, 0, spec->n_cols, (uint16_t *)(void *)out);
            continue;
        }
        weight_read_groups(weight, list->form, i, 0, spec->n_cols, list->q, list->scales);
        if (tensor->part == EXPORT_PACKED) {
            pack_row(list->form, list->q, spec->n_cols, out);
        } else {
            memcpy(out, list->scales, row_bytes);
        }
    }
}
