/* Finding the tensors that make up a stored matrix, and checking them against each other and
 * against the config. The shapes say how many bits and which groups a matrix has, so that one model
 * may mix them. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/text/ending.h"
#include "model/checkpoint/internal.h"

enum { STEM_BYTES = STORED_NAME_BYTES };

/* A matrix that is looked for. */
struct search {
    const struct checkpoint *ck;
    char stem[STEM_BYTES]; /* X of X.weight */
    int n_rows, n_cols;
    struct weight *out;
};

/* X of X.weight; false: the name has no such end. */
static bool stem_of(const char *name, char stem[STEM_BYTES])
{
    static const char tail[] = ".weight";
    size_t len = strlen(name);
    if (len >= STEM_BYTES || !ending_is(name, tail)) return false;
    snprintf(stem, STEM_BYTES, "%.*s", (int)(len - (sizeof tail - 1)), name);
    return true;
}

static const struct tensor *part_of(const struct checkpoint *ck, const char *stem, const char *part)
{
    char name[STEM_BYTES + 32];
    snprintf(name, sizeof name, "%s.%s", stem, part);
    return checkpoint_tensor(ck, name);
}

static bool has_dtype(const struct tensor *tensor, const char *dtype)
{
    return tensor && strcmp(tensor->entry->dtype, dtype) == 0;
}

bool checkpoint_is_stored(const struct checkpoint *ck, const char *name)
{
    char stem[STEM_BYTES];
    if (!ck->scheme.method || !stem_of(name, stem)) return false;
    if (ck->scheme.method != QUANT_COMPRESSED) return part_of(ck, stem, "qweight");
    const struct tensor *whole = checkpoint_tensor(ck, name);
    return has_dtype(whole, "I8") || has_dtype(whole, "F8_E4M3") ||
           part_of(ck, stem, "weight_packed");
}

bool checkpoint_is_stored_part(const struct checkpoint *ck, const char *name,
                               char matrix[STORED_NAME_BYTES])
{
    static const char *const words[] = {"qweight", "qzeros", "scales", "g_idx"};
    static const char *const compressed[] = {
        "weight_packed",     "weight_scale", "weight_scale_inv", "weight_zero_point",
        "weight_g_idx",      "weight_shape", "input_scale",      "input_zero_point",
        "input_scale_ub",    "output_scale", "activation_scale", "input_global_scale",
        "output_zero_point",
    };
    bool is_compressed = ck->scheme.method == QUANT_COMPRESSED;
    const char *const *parts = is_compressed ? compressed : words;
    size_t n =
        is_compressed ? sizeof compressed / sizeof *compressed : sizeof words / sizeof *words;
    const char *dot = strrchr(name, '.');
    if (!ck->scheme.method || !dot || (size_t)(dot - name) + 8 > STORED_NAME_BYTES) return false;
    snprintf(matrix, STORED_NAME_BYTES, "%.*s.weight", (int)(dot - name), name);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(dot + 1, parts[i]) == 0) return checkpoint_is_stored(ck, matrix);
    }
    return false;
}

/* ---- parts ---- */

/* Finds a part of this type. Its shape is [a][b], and what there is of a scalar is [1][1]. */
static int find_part(const struct search *in, const char *part, const char *dtype,
                     const struct tensor **tensor, struct error *err)
{
    *tensor = part_of(in->ck, in->stem, part);
    if (!*tensor) {
        return error_set(err, ERR_FORMAT, "%s lacks the tensor %.100s.%s", in->ck->name, in->stem,
                         part);
    }
    if (!dtype || has_dtype(*tensor, dtype)) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: tensor %.100s.%s is of dtype %s, which is not supported (%s is)",
                     in->ck->name, in->stem, part, (*tensor)->entry->dtype, dtype);
}

static uint64_t dim_of(const struct tensor *tensor, int i)
{
    const struct safetensors_entry *entry = tensor->entry;
    return i < entry->n_dims ? entry->dims[i] : 1;
}

static bool has_shape(const struct tensor *tensor, int64_t rows, int64_t cols)
{
    return tensor->entry->n_dims <= 2 && dim_of(tensor, 0) == (uint64_t)rows &&
           dim_of(tensor, 1) == (uint64_t)cols;
}

static int wrong_shape(const struct search *in, const struct tensor *tensor, const char *wanted,
                       struct error *err)
{
    return error_set(err, ERR_FORMAT,
                     "%s: tensor %.100s of a matrix of [%d, %d] has shape [%" PRIu64 ", %" PRIu64
                     "], %s",
                     in->ck->name, tensor->name, in->n_rows, in->n_cols, dim_of(tensor, 0),
                     dim_of(tensor, 1), wanted);
}

/* Sets scales, their type and n_groups. The shape is checked by the caller. */
static int find_scales(const struct search *in, const char *part, const struct tensor **tensor,
                       struct error *err)
{
    static const char *const types[] = {"BF16", "F16", "F32"};
    struct stored_matrix *s = &in->out->stored;
    int rc = find_part(in, part, NULL, tensor, err);
    if (rc) return rc;
    for (int i = 0; i < 3; i++) {
        if (!has_dtype(*tensor, types[i])) continue;
        s->scales = (*tensor)->weight.data;
        s->scale_type = (enum stored_scale)i;
        return 0;
    }
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: tensor %.100s is of dtype %s, which is not supported for scales (BF16, "
                     "F16, F32 are)",
                     in->ck->name, (*tensor)->name, (*tensor)->entry->dtype);
}

/* Sets the group's size from the number of groups, and from the config where that gives as many. */
static int set_groups(const struct search *in, const struct tensor *scales, uint64_t n_groups,
                      struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    int wanted = in->ck->scheme.group, n_cols = in->n_cols;
    if (n_groups < 1 || n_groups > (uint64_t)n_cols) {
        return wrong_shape(in, scales, "which is no number of groups", err);
    }
    s->n_groups = (int)n_groups;
    if (wanted && (n_cols + wanted - 1) / wanted == s->n_groups) {
        s->group = wanted;
    } else if (n_cols % s->n_groups == 0) {
        s->group = n_cols / s->n_groups;
    } else {
        return wrong_shape(in, scales, "which does not divide the columns into groups", err);
    }
    if (s->n_groups == 1 || s->group % QUANT_GROUP == 0) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: %.100s is quantized in groups of %d, which is no multiple of %d",
                     in->ck->name, in->stem, s->group, QUANT_GROUP);
}

/* Finds the group of each column, and forgets it where groups are runs of columns.
 * compressed-tensors fills with -1 what was never set. */
static int find_order(const struct search *in, const char *part, struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    const struct tensor *tensor = part_of(in->ck, in->stem, part);
    int rc = 0, n_unset = 0;
    bool is_ordered = true;
    if (!tensor) return 0;
    TRY(find_part(in, part, "I32", &tensor, err));
    if (!has_shape(tensor, in->n_cols, 1)) {
        return wrong_shape(in, tensor, "not a group for each column", err);
    }
    for (int k = 0; k < in->n_cols; k++) {
        int32_t group;
        memcpy(&group, tensor->weight.data + (size_t)k * sizeof group, sizeof group);
        if (group == -1 && n_unset == k && strcmp(part, "weight_g_idx") == 0) {
            n_unset++;
            continue;
        }
        if (group < 0 || group >= s->n_groups || n_unset) {
            return error_set(err, ERR_FORMAT, "%s: %.100s says that column %d is of group %d of %d",
                             in->ck->name, tensor->name, k, group, s->n_groups);
        }
        is_ordered &= group == k / s->group;
    }
    if (!is_ordered) s->order = tensor->weight.data;
out:
    return rc;
}

/* ---- kinds ---- */

/* Integers per word that make this many words of a side of n; 0: none does. */
static int bits_of(uint64_t words, int n)
{
    if (n % 8 == 0 && words == (uint64_t)n / 8) return 4;
    return n % 4 == 0 && words == (uint64_t)n / 4 ? 8 : 0;
}

/* The tensors of several matrices whose rows are the columns have longer lines. Those of one matrix
 * must all be of the same ones, because one length is kept. q_rows: the rows in a word of q; a word
 * of zeros has as many as there are integers in it. */
static int set_line(const struct search *in, const struct tensor *q, int q_rows,
                    const struct tensor *zeros, const struct tensor *scales, struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    if (q->line * (uint64_t)q_rows != scales->line ||
        zeros->line * (uint64_t)(32 / s->bits) != scales->line) {
        return error_set(err, ERR_FORMAT,
                         "%s: of %.100s.qweight, qzeros and scales some are fused with those of "
                         "other matrices and some are not; store all three in the same way",
                         in->ck->name, in->stem);
    }
    if (scales->line) s->line_rows = (int)scales->line;
    return 0;
}

static int find_awq(const struct search *in, struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    const struct tensor *q, *zeros, *scales;
    int rc = 0, words = in->n_rows / 8;
    s->kind = STORED_AWQ;
    s->bits = 4;
    TRY(find_part(in, "qweight", "I32", &q, err));
    TRY(find_part(in, "qzeros", "I32", &zeros, err));
    TRY(find_scales(in, "scales", &scales, err));
    if (in->n_rows % 8 || !has_shape(q, in->n_cols, words)) {
        return wrong_shape(in, q, "not a row for each column with a word for 8 rows", err);
    }
    TRY(set_groups(in, scales, dim_of(scales, 0), err));
    if (!has_shape(scales, s->n_groups, in->n_rows)) {
        return wrong_shape(in, scales, "not a scale for each row and group", err);
    }
    if (!has_shape(zeros, s->n_groups, words)) {
        return wrong_shape(in, zeros, "not zeros for each group", err);
    }
    in->out->data = q->weight.data;
    s->zeros = zeros->weight.data;
    TRY(set_line(in, q, 8, zeros, scales, err));
out:
    return rc;
}

static int find_gptq(const struct search *in, struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    const struct tensor *q, *zeros, *scales;
    int rc = 0;
    s->kind = STORED_GPTQ;
    s->has_low_zeros = in->ck->scheme.method == QUANT_GPTQ;
    TRY(find_part(in, "qweight", "I32", &q, err));
    TRY(find_part(in, "qzeros", "I32", &zeros, err));
    TRY(find_scales(in, "scales", &scales, err));
    s->bits = bits_of(dim_of(q, 0), in->n_cols);
    if (!s->bits || !has_shape(q, (int64_t)dim_of(q, 0), in->n_rows)) {
        return wrong_shape(in, q, "not words of 4 or 8 columns for each row", err);
    }
    TRY(set_groups(in, scales, dim_of(scales, 0), err));
    if (!has_shape(scales, s->n_groups, in->n_rows)) {
        return wrong_shape(in, scales, "not a scale for each row and group", err);
    }
    if (in->n_rows % (32 / s->bits) ||
        !has_shape(zeros, s->n_groups, in->n_rows / (32 / s->bits))) {
        return wrong_shape(in, zeros, "not zeros for each group", err);
    }
    in->out->data = q->weight.data;
    s->zeros = zeros->weight.data;
    TRY(set_line(in, q, 1, zeros, scales, err));
    TRY(find_order(in, "g_idx", err));
out:
    return rc;
}

/* Integers of 8 bits have only zeros of 8 bits; those of 4 bits must be checked. */
static int check_byte_zeros(const struct search *in, const struct tensor *zeros, struct error *err)
{
    const struct stored_matrix *s = &in->out->stored;
    size_t n = (size_t)in->n_rows * (size_t)s->n_groups;
    for (size_t i = 0; s->bits == 4 && i < n; i++) {
        int zero = (int8_t)zeros->weight.data[i];
        if (zero >= -8 && zero < 8) continue;
        return error_set(err, ERR_FORMAT, "%s: %.100s has a zero of %d, outside of -8 .. 7",
                         in->ck->name, zeros->name, zero);
    }
    return 0;
}

static int find_zeros(const struct search *in, struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    const struct tensor *zeros = part_of(in->ck, in->stem, "weight_zero_point");
    int per = 32 / s->bits;
    if (!zeros) return 0;
    s->zeros = zeros->weight.data;
    s->has_byte_zeros = has_dtype(zeros, "I8");
    if (!s->has_byte_zeros && (s->kind != STORED_PACKED || !has_dtype(zeros, "I32"))) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: tensor %.100s is of dtype %s, which is not supported for zeros",
                         in->ck->name, zeros->name, zeros->entry->dtype);
    }
    if (!has_shape(zeros, s->has_byte_zeros ? in->n_rows : (in->n_rows + per - 1) / per,
                   s->n_groups)) {
        return wrong_shape(in, zeros, "not a zero for each scale", err);
    }
    return s->has_byte_zeros ? check_byte_zeros(in, zeros, err) : 0;
}

/* The scales of a matrix whose rows have their own, or that has one. */
static int find_row_scales(const struct search *in, struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    const struct tensor *scales;
    int rc = 0;
    TRY(find_scales(in, "weight_scale", &scales, err));
    s->group_rows = 1;
    if (has_shape(scales, 1, 1)) {
        s->group_rows = in->n_rows;
        s->n_groups = 1;
        s->group = in->n_cols;
        goto out;
    }
    TRY(set_groups(in, scales, dim_of(scales, 1), err));
    if (!has_shape(scales, in->n_rows, s->n_groups)) {
        rc = wrong_shape(in, scales, "not scales for each row", err);
    }
out:
    return rc;
}

/* Takes the integers of rows with scales of their own, and finds what else they need. */
static int take_integers(const struct search *in, const struct tensor *q, struct error *err)
{
    int rc = 0;
    in->out->data = q->weight.data;
    TRY(find_row_scales(in, err));
    TRY(find_zeros(in, err));
    TRY(find_order(in, "weight_g_idx", err));
out:
    return rc;
}

static int find_packed(const struct search *in, struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    const struct tensor *q;
    int rc = 0;
    s->kind = STORED_PACKED;
    TRY(find_part(in, "weight_packed", "I32", &q, err));
    s->bits = bits_of(dim_of(q, 1), in->n_cols);
    if (!s->bits || !has_shape(q, in->n_rows, (int64_t)dim_of(q, 1))) {
        return wrong_shape(in, q, "not words of 4 or 8 columns for each row", err);
    }
    rc = take_integers(in, q, err);
out:
    return rc;
}

static int find_bytes(const struct search *in, const struct tensor *q, struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    s->kind = STORED_BYTES;
    s->bits = 8;
    return take_integers(in, q, err);
}

/* Sets the rows and columns that share a scale: all, a row, a part of a row, or a block. */
static int set_blocks(const struct search *in, const struct tensor *scales, struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    const struct quant_scheme *scheme = &in->ck->scheme;
    uint64_t rows = dim_of(scales, 0), cols = dim_of(scales, 1);
    s->group_rows = s->group = s->n_groups = 0;
    if (cols == 1 && (rows == 1 || rows == (uint64_t)in->n_rows)) {
        s->group_rows = rows == 1 ? in->n_rows : 1;
        s->group = in->n_cols;
    } else if (rows == (uint64_t)in->n_rows && cols > 0 && (uint64_t)in->n_cols % cols == 0) {
        s->group_rows = 1;
        s->group = (int)((uint64_t)in->n_cols / cols);
    } else {
        s->group_rows = quant_block_rows(scheme);
        s->group = quant_block_cols(scheme);
    }
    s->n_groups = (in->n_cols + s->group - 1) / s->group;
    if (!has_shape(scales, (in->n_rows + s->group_rows - 1) / s->group_rows, s->n_groups)) {
        return wrong_shape(in, scales, "not a scale for each block of it", err);
    }
    if (s->n_groups == 1 || s->group % QUANT_GROUP == 0) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: %.100s has scales for runs of %d columns, which is no multiple of %d",
                     in->ck->name, in->stem, s->group, QUANT_GROUP);
}

static int find_fp8(const struct search *in, const struct tensor *q, struct error *err)
{
    struct stored_matrix *s = &in->out->stored;
    const char *part =
        part_of(in->ck, in->stem, "weight_scale") ? "weight_scale" : "weight_scale_inv";
    const struct tensor *scales;
    int rc = 0;
    s->kind = STORED_FP8;
    s->bits = 8;
    in->out->data = q->weight.data;
    TRY(find_scales(in, part, &scales, err));
    rc = set_blocks(in, scales, err);
out:
    return rc;
}

int checkpoint_find_stored(const struct checkpoint *ck, const char *name, int n_rows, int n_cols,
                           struct weight *weight, struct error *err)
{
    struct weight found = {.dtype = DTYPE_STORED, .n_rows = n_rows, .n_cols = n_cols};
    struct search in = {.ck = ck, .n_rows = n_rows, .n_cols = n_cols, .out = &found};
    const struct tensor *whole = checkpoint_tensor(ck, name);
    int rc = 0;
    stem_of(name, in.stem);
    found.stored.group_rows = 1;
    found.stored.line_rows = n_rows;
    bool is_packed = ck->scheme.method != QUANT_COMPRESSED || part_of(ck, in.stem, "weight_packed");
    if (is_packed && whole) {
        return error_set(err, ERR_FORMAT, "%s has %.100s twice, quantized and as %.20s", ck->name,
                         name, whole->entry->dtype);
    }
    if (ck->scheme.method == QUANT_AWQ) {
        TRY(find_awq(&in, err));
    } else if (ck->scheme.method != QUANT_COMPRESSED) {
        TRY(find_gptq(&in, err));
    } else if (is_packed) {
        TRY(find_packed(&in, err));
    } else {
        if (!has_shape(whole, n_rows, n_cols)) {
            return wrong_shape(&in, whole, "not that of the config", err);
        }
        bool is_fp8 = has_dtype(whole, "F8_E4M3");
        TRY(is_fp8 ? find_fp8(&in, whole, err) : find_bytes(&in, whole, err));
    }
    found.stored.n_rows = n_rows;
    found.stored.n_cols = n_cols;
    found.stored.data = found.data;
    *weight = found;
out:
    return rc;
}

/* True if the folder stores X as int4 and int8 models do: packed, with BF16 scales and no more. */
static bool is_uniform(const struct checkpoint *ck, const char *name)
{
    char stem[STEM_BYTES];
    if (!stem_of(name, stem)) return true;
    const struct tensor *scale = part_of(ck, stem, "weight_scale");
    bool is_plain = checkpoint_tensor(ck, name) && !part_of(ck, stem, "weight_packed");
    return !is_plain && !has_dtype(scale, "F16") && !has_dtype(scale, "F32") &&
           !part_of(ck, stem, "weight_zero_point") && !part_of(ck, stem, "weight_g_idx");
}

int checkpoint_settle_stored(struct checkpoint *ck, struct error *err)
{
    bool fits = true;
    int n_stored = 0;
    for (size_t i = 0; i < ck->n_layout; i++) {
        const char *name = ck->layout[i].name;
        fits &= !checkpoint_is_packed(ck, name) || is_uniform(ck, name);
        n_stored += checkpoint_is_stored(ck, name);
    }
    if (ck->scheme.method && !n_stored) {
        return error_set(err, ERR_FORMAT,
                         "%s: config.json says that the weights are quantized, but the files have "
                         "no matrix that is; without \"quantization_config\" they are read as they "
                         "are",
                         ck->name);
    }
    if (fits) return 0;
    ck->cfg.stored = WEIGHTS_BLOCKS;
    ck->cfg.stored_group = 0;
    ck->scheme.method = QUANT_COMPRESSED;
    return 0;
}
