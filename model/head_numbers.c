/* All elements of a head, row by row. */
#include "model/head_numbers.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/checkpoint/head.h"

/* Infinities and NaNs have all bits of the exponent. */
static bool is_finite_row(const uint16_t *row, int n)
{
    enum { EXPONENT = 0x7f80 };
    int n_wrong = 0;
    for (int i = 0; i < n; i++) {
        n_wrong += (row[i] & EXPONENT) == EXPONENT;
    }
    return n_wrong == 0;
}

static int check_tensor(const struct checkpoint *ck, const struct tensor_spec *spec,
                        struct error *err)
{
    struct weight weight;
    uint16_t *row = NULL;
    int rc = 0;
    TRY(mem_array(&row, (size_t)spec->n_cols, sizeof *row, err));
    TRY(checkpoint_find(ck, spec->name, spec->n_rows, spec->n_cols, &weight, err));
    for (int i = 0; i < spec->n_rows; i++) {
        weight_read_bf16(&weight, i, 0, spec->n_cols, row);
        if (is_finite_row(row, spec->n_cols)) continue;
        rc = error_set(err, ERR_FORMAT,
                       "%s: %s has an element that is no number, in row %d, so the file is damaged",
                       checkpoint_name(ck), spec->name, i);
        goto out;
    }
out:
    free(row);
    return rc;
}

static bool is_shared(const struct head_config *head, const struct tensor_spec *spec)
{
    bool is_mtp = head->format == HEAD_MTP;
    bool is_embedding = strcmp(spec->name, head->names[HEAD_EMBEDDING]) == 0;
    bool is_head = strcmp(spec->name, head->names[HEAD_LOGITS]) == 0;
    if (is_embedding) return is_mtp || head->embedding_from != HEAD_OWN;
    return is_head && (is_mtp || head->logits_from != HEAD_OWN);
}

int head_numbers_check(const struct checkpoint *ck, struct error *err)
{
    const struct head_config *head = checkpoint_head(ck);
    size_t n = 0;
    const struct tensor_spec *specs = checkpoint_tensors(ck, &n);
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_shared(head, &specs[i])) TRY(check_tensor(ck, &specs[i], err));
    }
out:
    return rc;
}
