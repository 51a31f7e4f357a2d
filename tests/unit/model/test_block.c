/* ctest: labels=quick,bits libs=checkpoint timeout=60 */
/* Blocks of weights: their values as gguf-py gives them (tests/oracle/blocks_golden.py), and
 * weights that consist of blocks. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/digest.h"
#include "model/checkpoint/read.h"
#include "model/numerics/numerics.h"
#include "tests/support/check_util.h"

#define GOLDEN SOURCE_DIR "/tests/golden/blocks/blocks.golden.json"

enum { N_KINDS = BLOCK_KINDS - BLOCK_Q4_0 };

struct golden {
    json_t *root;
    const struct block_type *type;
    uint8_t *blocks;
    float *values;
    int n; /* elements */
};

static uint8_t *from_hex(const char *hex)
{
    size_t n = strlen(hex) / 2;
    uint8_t *out = malloc(n);
    ck_assert_ptr_nonnull(out);
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return out;
}

static void golden_open(struct golden *g, int i)
{
    g->root = json_load_file(GOLDEN, 0, NULL);
    const json_t *kind = json_array_get(json_object_get(g->root, "kinds"), (size_t)i);
    const char *values = json_string_value(json_object_get(kind, "values"));
    ck_assert_ptr_nonnull(kind);
    g->type = block_type_find((uint32_t)json_integer_value(json_object_get(kind, "id")));
    ck_assert_ptr_nonnull(g->type);
    ck_assert_str_eq(g->type->name, json_string_value(json_object_get(kind, "name")));
    g->n = (int)(strlen(values) / (2 * sizeof(float)));
    g->blocks = from_hex(json_string_value(json_object_get(kind, "blocks")));
    uint8_t *bytes = from_hex(values);
    g->values = malloc((size_t)g->n * sizeof(float));
    memcpy(g->values, bytes, (size_t)g->n * sizeof(float));
    free(bytes);
}

static void golden_close(struct golden *g)
{
    free(g->blocks);
    free(g->values);
    json_decref(g->root);
}

/* Two NaN count as equal. */
static void check_values(const struct golden *g, int first, int n, const float *values)
{
    for (int i = 0; i < n; i++) {
        float wanted = g->values[first + i];
        if (isnan(wanted) && isnan(values[i])) continue;
        ck_assert_msg(num_float_to_bits(wanted) == num_float_to_bits(values[i]),
                      "%s, element %d: %a instead of %a", g->type->name, first + i,
                      (double)values[i], (double)wanted);
    }
}

START_TEST(every_kind_is_read_as_gguf_reads_it)
{
    struct golden g;
    golden_open(&g, _i);
    float *values = malloc((size_t)g.n * sizeof *values);
    ck_assert_uint_eq(block_bytes(g.type->kind, (size_t)g.n) % (size_t)g.type->n_bytes, 0);
    block_read_f32(g.type->kind, g.blocks, 0, g.n, values);
    check_values(&g, 0, g.n, values);
    for (int first = 0, n = 1; first + n <= g.n; first += 7, n = 1 + (n * 5 + first) % 71) {
        block_read_f32(g.type->kind, g.blocks, first, n, values);
        check_values(&g, first, n, values);
    }
    free(values);
    golden_close(&g);
}
END_TEST

START_TEST(a_weight_of_blocks_is_read_by_its_rows)
{
    struct golden g;
    golden_open(&g, _i);
    int n_rows = g.n / 256, n_cols = 256;
    const struct weight w = {.dtype = DTYPE_BLOCKS,
                             .block = g.type->kind,
                             .n_rows = n_rows,
                             .n_cols = n_cols,
                             .data = g.blocks};
    float values[256];
    uint16_t rounded[256];
    ck_assert_int_gt(n_rows, 1);
    ck_assert_uint_eq(weight_data_bytes(&w), block_bytes(g.type->kind, (size_t)(n_rows * n_cols)));
    for (int row = 0; row < n_rows; row++) {
        weight_read_f32(&w, row, 0, n_cols, values);
        check_values(&g, row * n_cols, n_cols, values);
        weight_read_f32(&w, row, 33, 100, values);
        check_values(&g, row * n_cols + 33, 100, values);
        weight_read_bf16(&w, row, 31, 200, rounded);
        for (int i = 0; i < 200; i++) {
            float wanted = g.values[row * n_cols + 31 + i];
            if (!isnan(wanted)) ck_assert_uint_eq(rounded[i], num_float_to_bf16(wanted));
        }
        for (int group = 0; group < n_cols / QUANT_GROUP; group++) {
            struct weight_group stored;
            weight_read_group(&w, row, group, &stored);
            group_read_f32(weight_form_of(&w), &stored, values);
            check_values(&g, row * n_cols + group * QUANT_GROUP, QUANT_GROUP, values);
        }
    }
    golden_close(&g);
}
END_TEST

START_TEST(a_digest_of_blocks_sees_every_bit_of_its_run)
{
    struct golden g;
    golden_open(&g, _i);
    const struct weight w = {
        .dtype = DTYPE_BLOCKS, .block = g.type->kind, .n_rows = 2, .n_cols = 256, .data = g.blocks};
    size_t bytes;
    const uint8_t *run = weight_run(&w, 1, 96, 64, &bytes);
    ck_assert_ptr_eq(run, g.blocks + block_bytes(w.block, 256) +
                              (g.type->n_elements == 32 ? block_bytes(w.block, 96) : 0));
    ck_assert_uint_eq(bytes, block_bytes(w.block, g.type->n_elements == 32 ? 64 : 256));
    uint64_t before = weight_digest_unit(&w, 1, 96, 64);
    for (size_t i = 0; i < bytes; i++) {
        uint8_t *byte = &g.blocks[(size_t)(run - g.blocks) + i];
        *byte ^= 4;
        ck_assert_uint_ne(weight_digest_unit(&w, 1, 96, 64), before);
        *byte ^= 4;
    }
    g.blocks[0] ^= 1;
    ck_assert_uint_eq(weight_digest_unit(&w, 1, 96, 64), before);
    golden_close(&g);
}
END_TEST

START_TEST(a_type_is_found_by_its_id)
{
    ck_assert_str_eq(block_type_find(0)->name, "F32");
    ck_assert_int_eq(block_type_find(30)->kind, BLOCK_BF16);
    ck_assert_str_eq(block_type_find(19)->name, "IQ1_S");
    ck_assert_int_eq(block_type_find(19)->kind, BLOCK_UNREAD);
    ck_assert_str_eq(block_type_find(42)->name, "Q2_0");
    static const uint32_t unknown[] = {4, 5, 31, 38, 43, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        ck_assert_ptr_null(block_type_find(unknown[i]));
    }
    for (int kind = BLOCK_F32; kind < BLOCK_KINDS; kind++) {
        ck_assert_int_eq(block_type_of((enum block_kind)kind)->kind, kind);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("block");
    TCase *tcase = tcase_create("all");
    tcase_add_loop_test(tcase, every_kind_is_read_as_gguf_reads_it, 0, N_KINDS);
    tcase_add_loop_test(tcase, a_weight_of_blocks_is_read_by_its_rows, 0, N_KINDS);
    tcase_add_loop_test(tcase, a_digest_of_blocks_sees_every_bit_of_its_run, 0, N_KINDS);
    tcase_add_test(tcase, a_type_is_found_by_its_id);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
