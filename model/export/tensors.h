/* The tensors of an exported folder, in the order of the layout: each as it is, in bf16, or a
 * layer's matrix in three parts (model/checkpoint/find.c). Every size is a multiple of 8 bytes,
 * except that of odd vectors of bf16, which a folder with packed parts does not have. Owned by one
 * thread. */
#pragma once

#include "model/checkpoint/checkpoint.h"

enum export_part { EXPORT_WHOLE, EXPORT_PACKED, EXPORT_SCALE, EXPORT_SHAPE };

struct export_tensor {
    char name[2 * TENSOR_NAME_BYTES];
    const struct tensor_spec *spec; /* of the source */
    enum export_part part;
    const char *dtype; /* of the file */
    int n_dims;
    int dims[2];
    uint64_t n_bytes;
};

struct export_list {
    enum weight_form form;
    struct export_tensor *tensors;
    size_t n;
    uint64_t n_bytes;
    int8_t *q; /* a row's integers and scales */
    uint16_t *scales;
};

/* Keeps ck. Errors: ERR_UNSUPPORTED the model is packed already, or a matrix cannot be packed so
 * that groups and slices agree; ERR_NO_MEMORY. */
int export_list_init(struct export_list *list, const struct checkpoint *ck, enum weight_form form,
                     struct error *err);
void export_list_free(struct export_list *list);

/* Rows that a tensor is written in, and the bytes of rows row .. row + n_rows as the file has
 * them. */
int export_tensor_rows(const struct export_tensor *tensor);
void export_tensor_read(const struct export_list *list, const struct export_tensor *tensor,
                        const struct weight *weight, int row, int n_rows, uint8_t *out);
