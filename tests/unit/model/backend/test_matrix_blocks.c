/* ctest: labels=quick,bits libs=model timeout=120 */
/* Matrices of a model that is stored in blocks: parts of several kinds in one matrix, slices that
 * begin in the middle of a super-block, gate and up, digests. Which bits the kernels of a form
 * give is tested in test_kernels_quant.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/backend/cpu/cpu.h"
#include "model/backend/open.h"
#include "model/backend/pack_cache.h"
#include "model/checkpoint/digest.h"
#include "tests/support/kernels_util.h"

enum { N_IN = 512, ROWS_MOST = 40 };

static struct backend *backend_of(const char *kernels, int n_threads)
{
    const struct backend_cpu_options options = {
        .kernels = kernels, .n_threads = n_threads, .form = WEIGHTS_BLOCKS};
    struct backend *be;
    struct error err = {0};
    CHECK_OK(backend_cpu_open(&be, &options, &err));
    return be;
}

/* Offsets of the halves of a block. */
static const int halves[BLOCK_KINDS][2] = {
    [BLOCK_Q4_1] = {0, 2},     [BLOCK_Q5_1] = {0, 2}, [BLOCK_Q2_K] = {80, 82},
    [BLOCK_Q3_K] = {108, 108}, [BLOCK_Q4_K] = {0, 2}, [BLOCK_Q5_K] = {0, 2},
    [BLOCK_Q6_K] = {208, 208},
};

/* A tensor of random blocks, or of random bf16; its data is to be freed. */
static struct weight tensor(enum block_kind kind, int n_rows, int n_cols)
{
    const struct block_type *type = block_type_of(kind);
    size_t n_blocks = (size_t)n_rows * (size_t)n_cols / (size_t)type->n_elements;
    size_t n_bytes = (size_t)type->n_bytes;
    uint8_t *data = malloc(n_blocks * n_bytes);
    ck_assert_ptr_nonnull(data);
    struct weight w = {
        .dtype = DTYPE_BLOCKS, .block = kind, .n_rows = n_rows, .n_cols = n_cols, .data = data};
    if (kind == BLOCK_BF16) {
        w.dtype = DTYPE_BF16;
        fill_bf16((uint16_t *)(void *)data, n_blocks, KIND_ORDINARY);
        return w;
    }
    for (size_t i = 0; i < n_blocks * n_bytes; i++) {
        data[i] = (uint8_t)next_random();
    }
    for (size_t i = 0; i < n_blocks; i++) {
        for (int j = 0; j < 2; j++) {
            uint16_t half = (uint16_t)(0x2000 + next_below(0x800));
            memcpy(data + i * n_bytes + halves[kind][j], &half, sizeof half);
        }
    }
    return w;
}

static void tensor_free(struct weight *w)
{
    union {
        const uint8_t *in;
        void *out;
    } data = {.in = w->data};
    free(data.out);
    w->data = NULL;
}

static struct matrix open_source(struct backend *be, const struct matrix_source *source)
{
    struct matrix m;
    struct error err = {0};
    CHECK_OK(be->ops->matrix_open(be, &m, source, &err));
    return m;
}

/* Products of single tensors, side by side: out[n][sum of their rows]. */
static void multiply_apart(struct backend *be, const struct matrix_source *source,
                           const uint16_t *in, float *out, int n)
{
    int n_out = 0, first = 0;
    for (int i = 0; i < source->n_parts; i++) {
        n_out += source->parts[i].n_rows;
    }
    for (int i = 0; i < source->n_parts; i++) {
        const struct matrix_source alone = {
            .n_in = source->n_in, .n_parts = 1, .parts = {source->parts[i]}};
        struct matrix m = open_source(be, &alone);
        ck_assert_int_eq(m.n_sections, 1);
        be->ops->matmul(be, &m, in, (size_t)source->n_in, out + first, (size_t)n_out, n);
        be->ops->matrix_close(be, &m);
        first += source->parts[i].n_rows;
    }
}

static float *floats(size_t n)
{
    float *out = malloc(n * sizeof *out);
    ck_assert_ptr_nonnull(out);
    return out;
}

/* Products of the matrix by `n` rows are those of its parts alone; by every variant and any number
 * of threads. */
static void check_parts(const struct matrix_source *source, int n_sections)
{
    static uint16_t in[ROWS_MOST * N_IN];
    struct backend *plain = backend_of("plain", 1);
    int n_out = 0;
    for (int i = 0; i < source->n_parts; i++) {
        n_out += source->parts[i].n_rows;
    }
    float *wanted = floats((size_t)ROWS_MOST * (size_t)n_out);
    float *out = floats((size_t)ROWS_MOST * (size_t)n_out);
    fill_bf16(in, ROWS_MOST * N_IN, KIND_ORDINARY);
    multiply_apart(plain, source, in, wanted, ROWS_MOST);
    for (int v = 0; v < n_variants; v++) {
        for (int n_threads = 1; n_threads <= 3; n_threads += 2) {
            struct backend *be = backend_of(variants[v]->name, n_threads);
            struct matrix m = open_source(be, source);
            ck_assert_str_eq(be->ops->arithmetic, "cpu-blocks");
            ck_assert_int_eq(m.n_sections, n_sections);
            for (int n = 1; n <= ROWS_MOST; n += 13) {
                be->ops->matmul(be, &m, in, (size_t)source->n_in, out, (size_t)n_out, n);
                check_same(out, wanted, (size_t)n * (size_t)n_out, variants[v]->name);
            }
            be->ops->matrix_close(be, &m);
            be->ops->close(be);
        }
    }
    free(wanted);
    free(out);
    plain->ops->close(plain);
}

static const struct {
    enum block_kind kinds[3];
    int n_rows[3], n_sections;
} mixtures[] = {
    {{BLOCK_Q4_K, BLOCK_Q4_K, BLOCK_Q6_K}, {208, 48, 48}, 2},
    {{BLOCK_Q8_0, BLOCK_Q4_K, BLOCK_Q8_0}, {96, 80, 80}, 3}, /* two widths of rows with AVX2 */
    {{BLOCK_Q5_K, BLOCK_Q3_K, BLOCK_BF16}, {130, 70, 33}, 3},
    {{BLOCK_BF16, BLOCK_BF16, BLOCK_IQ4_XS}, {100, 100, 100}, 2},
    {{BLOCK_Q2_K, BLOCK_Q5_0, BLOCK_Q5_1}, {64, 64, 64}, 3},
    {{BLOCK_IQ4_NL, BLOCK_Q4_0, BLOCK_Q4_1}, {32, 224, 16}, 3},
};

enum { N_MIXTURES = sizeof mixtures / sizeof *mixtures };

START_TEST(parts_of_several_kinds_give_the_bits_of_each_alone)
{
    struct matrix_source source = {.n_in = N_IN, .n_parts = 3};
    for (int i = 0; i < 3; i++) {
        int n = mixtures[_i].n_rows[i];
        source.parts[i] = (struct matrix_part){
            .weight = tensor(mixtures[_i].kinds[i], n + 7, N_IN), .first_row = 5, .n_rows = n};
    }
    source.parts[2].n_rows += 9; /* past the tensor's end: zeros */
    check_parts(&source, mixtures[_i].n_sections);
    for (int i = 0; i < 3; i++) {
        tensor_free(&source.parts[i].weight);
    }
}
END_TEST

static double largest_of_group(const uint16_t *in)
{
    uint16_t most = 0;
    for (int i = 0; i < QUANT_GROUP; i++) {
        uint16_t size = in[i] & 0x7fffu;
        most = size > most ? size : most;
    }
    return (double)num_bf16_to_float(most);
}

/* Every slice of 96 of rows of 768, against double precision on the stored weights. */
START_TEST(a_slice_may_begin_in_a_super_block)
{
    enum { COLS = 768, SLICE = 96, SLICES = COLS / SLICE, OUT = 70, ROWS = 5 };
    enum block_kind kind = (enum block_kind)(BLOCK_Q4_0 + _i);
    static uint16_t in[ROWS * COLS];
    static float sums[SLICES * ROWS * OUT], row[COLS];
    struct weight w = tensor(kind, OUT, COLS);
    fill_bf16(in, ROWS * COLS, KIND_ORDINARY);
    for (int v = 0; v < n_variants; v++) {
        struct backend *be = backend_of(variants[v]->name, 2);
        struct matrix slices[SLICES];
        for (int s = 0; s < SLICES; s++) {
            const struct matrix_source source = {
                .n_in = SLICE,
                .n_parts = 1,
                .parts = {{.weight = w, .n_rows = OUT, .first_col = s * SLICE}}};
            slices[s] = open_source(be, &source);
        }
        struct slice_sums out = {.data = sums};
        be->ops->matmul_slices(be, slices, SLICES, in, COLS, ROWS, &out);
        ck_assert_int_eq(out.n_parts, 1);
        for (int column = 0; column < OUT; column++) {
            weight_read_f32(&w, column, 0, COLS, row);
            for (int i = 0; i < ROWS; i++) {
                double wanted = 0, bound = 0;
                for (int k = 0; k < COLS; k++) {
                    double most = largest_of_group(in + i * COLS + k / QUANT_GROUP * QUANT_GROUP);
                    wanted += (double)num_bf16_to_float(in[i * COLS + k]) * (double)row[k];
                    bound += fabs((double)row[k]) * most / 250;
                }
                double distance = fabs(wanted - (double)sums[i * OUT + column]);
                ck_assert_msg(distance <= bound, "%s: %g instead of %g", variants[v]->name,
                              (double)sums[i * OUT + column], wanted);
            }
        }
        for (int s = 0; s < SLICES; s++) {
            be->ops->matrix_close(be, &slices[s]);
        }
        be->ops->close(be);
    }
    tensor_free(&w);
}
END_TEST

/* Large enough for gate and up to be multiplied as two folds, whose kinds differ. */
START_TEST(gate_and_up_may_be_of_different_kinds)
{
    enum { FFN = 2048, ROWS = 7 };
    static uint16_t in[ROWS * N_IN], hidden[ROWS * FFN], wanted[ROWS * FFN];
    static float gate_up[ROWS * 2 * FFN];
    struct matrix_source source = {.n_in = N_IN, .n_parts = 2, .is_gate_up = true};
    source.parts[0] = (struct matrix_part){.weight = tensor(BLOCK_Q4_K, FFN, N_IN), .n_rows = FFN};
    source.parts[1] = (struct matrix_part){
        .weight = tensor(_i ? BLOCK_Q6_K : BLOCK_Q4_K, FFN, N_IN), .n_rows = FFN};
    fill_bf16(in, ROWS * N_IN, KIND_ORDINARY);
    struct backend *be = backend_of("auto", 2);
    multiply_apart(be, &source, in, gate_up, ROWS);
    for (int i = 0; i < ROWS; i++) {
        variants[0]->swiglu(gate_up + i * 2 * FFN, gate_up + i * 2 * FFN + FFN, FFN,
                            wanted + i * FFN);
    }
    struct matrix m = open_source(be, &source);
    ck_assert_int_eq(m.n_sections, _i ? 2 : 1);
    const struct gated_mlp args = {
        .matrix = &m, .in = in, .n = ROWS, .gate_up = gate_up, .h = hidden};
    be->ops->matmul_gated(be, &args);
    ck_assert_mem_eq(hidden, wanted, sizeof wanted);
    be->ops->matrix_close(be, &m);
    be->ops->close(be);
    for (int i = 0; i < 2; i++) {
        tensor_free(&source.parts[i].weight);
    }
}
END_TEST

START_TEST(packing_digests_each_row_once)
{
    uint64_t packed[MATRIX_PARTS_MAX] = {0}, wanted[MATRIX_PARTS_MAX] = {0};
    struct matrix_source source = {.n_in = 256, .n_parts = 2, .digests = packed};
    source.parts[0] =
        (struct matrix_part){.weight = tensor(BLOCK_Q4_K, 77, N_IN), .n_rows = 77, .first_col = 96};
    source.parts[1] =
        (struct matrix_part){.weight = tensor(BLOCK_Q6_K, 90, N_IN), .n_rows = 90, .first_col = 96};
    for (int i = 0; i < 2; i++) {
        for (int row = 0; row < source.parts[i].n_rows; row++) {
            wanted[i] += weight_digest_unit(&source.parts[i].weight, row, 96, 256);
        }
    }
    struct backend *be = backend_of("auto", 3);
    struct matrix m = open_source(be, &source);
    ck_assert_mem_eq(packed, wanted, sizeof wanted);
    be->ops->matrix_close(be, &m);
    be->ops->close(be);
    for (int i = 0; i < 2; i++) {
        tensor_free(&source.parts[i].weight);
    }
}
END_TEST

/* Opens the source with packed weights kept in `folder`, multiplies a row and says whether the
 * matrix was found there. */
static enum pack_cache_state open_kept(const char *folder, const struct matrix_source *source,
                                       const uint16_t *in, float *out, char *path, size_t size)
{
    const struct pack_cache_key key = {.fingerprint = 1, .arithmetic = "cpu-blocks", .n_ranks = 1};
    struct backend *be = backend_of("auto", 2);
    struct error err = {0};
    CHECK_OK(pack_cache_open(&be->cache, folder, &key, &err));
    struct matrix m = open_source(be, source);
    pack_cache_commit(be->cache);
    enum pack_cache_state found = pack_cache_report(be->cache)->state;
    snprintf(path, size, "%s", pack_cache_path(be->cache));
    be->ops->matmul(be, &m, in, (size_t)source->n_in, out, (size_t)m.n_out, 1);
    be->ops->matrix_close(be, &m);
    pack_cache_close(be->cache);
    be->cache = NULL;
    be->ops->close(be);
    return found;
}

/* The bytes of Q4_0 and of IQ4_NL mean different weights. */
START_TEST(a_packed_matrix_is_found_again_only_for_its_kind)
{
    enum { OUT = 70 };
    static uint16_t in[N_IN];
    float first[OUT], second[OUT], other[OUT];
    char folder[] = "/tmp/outrider_blocks_XXXXXX", path[256];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    fill_bf16(in, N_IN, KIND_ORDINARY);
    struct matrix_source source = {.n_in = N_IN, .n_parts = 1};
    source.parts[0] = (struct matrix_part){.weight = tensor(BLOCK_Q4_0, OUT, N_IN), .n_rows = OUT};
    ck_assert_int_eq(open_kept(folder, &source, in, first, path, sizeof path), PACK_CACHE_WRITTEN);
    ck_assert_int_eq(open_kept(folder, &source, in, second, path, sizeof path), PACK_CACHE_HIT);
    check_same(second, first, OUT, "kept");
    source.parts[0].weight.block = BLOCK_IQ4_NL;
    ck_assert_int_eq(open_kept(folder, &source, in, other, path, sizeof path), PACK_CACHE_WRITTEN);
    ck_assert_int_ne(memcmp(other, first, sizeof first), 0);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(rmdir(folder), 0);
    tensor_free(&source.parts[0].weight);
}
END_TEST

START_TEST(embedding_rows_are_the_stored_weights)
{
    static const int32_t tokens[] = {3, 0, 9};
    static float x[3 * N_IN], wanted[N_IN];
    struct weight w = tensor(BLOCK_Q6_K, 10, N_IN);
    struct backend *be = backend_of("auto", 1);
    const struct backend_step step = {.embedding = &w, .tokens = tokens, .n = 3};
    be->ops->embed(be, &step, x);
    for (int i = 0; i < 3; i++) {
        block_read_f32(w.block, w.data + (size_t)tokens[i] * 2 * 210, 0, N_IN, wanted);
        ck_assert_mem_eq(x + i * N_IN, wanted, sizeof wanted);
    }
    be->ops->close(be);
    tensor_free(&w);
}
END_TEST

START_TEST(no_other_weights_can_be_asked_for)
{
    static const char *const others[] = {"bf16", "int8", "int4", "fp8"};
    struct backend *be;
    struct error err = {0};
    struct backend_options options = {
        .device = "cpu", .kernels = "auto", .n_threads = 1, .stored = WEIGHTS_BLOCKS};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        options.weights = others[i];
        CHECK_ERR(backend_open(&be, &options, &err), ERR_ARGUMENT, "is stored in blocks");
    }
    options.weights = NULL;
    CHECK_OK(backend_open(&be, &options, &err));
    ck_assert_str_eq(be->ops->arithmetic, "cpu-blocks");
    be->ops->close(be);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("matrix_blocks");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, parts_of_several_kinds_give_the_bits_of_each_alone, 0, N_MIXTURES);
    tcase_add_loop_test(tcase, a_slice_may_begin_in_a_super_block, 0, BLOCK_KINDS - BLOCK_Q4_0);
    tcase_add_loop_test(tcase, gate_and_up_may_be_of_different_kinds, 0, 2);
    tcase_add_test(tcase, packing_digests_each_row_once);
    tcase_add_test(tcase, a_packed_matrix_is_found_again_only_for_its_kind);
    tcase_add_test(tcase, embedding_rows_are_the_stored_weights);
    tcase_add_test(tcase, no_other_weights_can_be_asked_for);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
