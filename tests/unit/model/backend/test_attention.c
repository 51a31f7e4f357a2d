/* ctest: labels=quick,bits libs=model timeout=120 */
/* Attention over block tables, through the backend's operations: the result is what the definition
 * says, whatever else the blocks contain and however rows are cut into steps. */
#include <math.h>

#include "model/backend/backend.h"
#include "model/backend/cpu/cpu.h"
#include "model/backend/cpu/kernels/kernels.h"
#include "model/numerics/numerics.h"
#include "tests/support/check_util.h"

enum { HEADS = 4, KV_HEADS = 2, WIDTH = 48, POSITIONS = 530, BLOCKS = 200 };
enum { Q_DIM = HEADS * WIDTH, KV_DIM = KV_HEADS * WIDTH, QKV_DIM = Q_DIM + 2 * KV_DIM };

static const struct attention_shape shape = {HEADS, KV_HEADS, WIDTH, BLOCKS};
static float qkv[POSITIONS][QKV_DIM]; /* after rope, which is left out here: cos 1, sin 0 */
static float ones[POSITIONS * WIDTH / 2], zeros[POSITIONS * WIDTH / 2];
static int32_t blocks[BLOCKS];
static int window; /* 0: none */
static bool sees_lane;

static void setup(void)
{
    uint32_t state = 99;
    for (int i = 0; i < POSITIONS * QKV_DIM; i++) {
        state = state * 1664525u + 1013904223u;
        qkv[i / QKV_DIM][i % QKV_DIM] = ((float)(state >> 8) * 0x1p-23f - 1.0f) * 2.0f;
    }
    for (int i = 0; i < POSITIONS * WIDTH / 2; i++) {
        ones[i] = 1;
    }
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = (i * 37 + 11) % BLOCKS;
    }
}

/* Each way of streaming memory, whatever this CPU is. */
static void setup_one_hop(void)
{
    setup();
    kernels_force_hops(1);
}

static void setup_two_hops(void)
{
    setup();
    kernels_force_hops(2);
}

/* NULL when this machine has no such kernels. */
static struct backend *open_backend(const char *kernels, int n_threads)
{
    struct error err;
    struct backend *be = NULL;
    const struct backend_cpu_options options = {kernels, n_threads, WEIGHTS_BF16};
    int rc = backend_cpu_open(&be, &options, &err);
    ck_assert_msg(rc == 0 || rc == ERR_UNSUPPORTED, "%s", err.text);
    return be;
}

/* Feeds positions 0..POSITIONS in steps of `chunk` rows to a cache whose every byte is `stale`. Of
 * blocks that are out of the window of all rows of a step, the table has one that is never
 * written. */
static void run(const char *kernels, int n_threads, int chunk, int stale, uint16_t *out)
{
    struct backend *be = open_backend(kernels, n_threads);
    if (!be) return;
    size_t kv_bytes = kv_layer_bytes(&shape);
    uint16_t *kv = malloc(kv_bytes);
    uint16_t *q = malloc(sizeof *q * Q_DIM * POSITIONS);
    float *work = malloc(sizeof qkv);
    ck_assert(kv && q && work);
    memset(kv, stale, kv_bytes);
    int32_t table[BLOCKS];
    memcpy(table, blocks, sizeof table);
    for (int pos = 0; pos < POSITIONS; pos += chunk) {
        int n = POSITIONS - pos < chunk ? POSITIONS - pos : chunk;
        const struct attention_lane lane = {0, n, pos, table, NULL};
        for (int i = 0; i < attention_first(pos, window) / KV_BLOCK_TOKENS; i++) {
            table[i] = blocks[BLOCKS - 1];
        }
        const struct backend_step step = {
            .n = n, .lanes = &lane, .n_lanes = 1, .cos = ones, .sin = zeros, .n_ropes = 1};
        const struct attention_input input = {0};
        const struct attention_rule rule = {
            .window = window, .scale = 1.0f / sqrtf(WIDTH), .sees_lane = sees_lane};
        memcpy(work, qkv[pos], sizeof qkv[0] * (size_t)n);
        be->ops->attention_store(be, &shape, &input, &step, work, q, kv);
        be->ops->attention(be, &shape, &step, &rule, q, kv, out + (size_t)pos * Q_DIM);
    }
    free(work);
    free(q);
    free(kv);
    be->ops->close(be);
}

static uint16_t *new_out(void)
{
    uint16_t *out = calloc((size_t)POSITIONS * Q_DIM, sizeof *out);
    ck_assert_ptr_nonnull(out);
    return out;
}

static double rounded(float x)
{
    return (double)num_bf16_to_float(num_float_to_bf16(x));
}

/* One row and head in double, from the same bf16 inputs; it sees positions up to `last`. */
static void define(int pos, int last, int head, double out[WIDTH])
{
    int kv_head = head / (HEADS / KV_HEADS);
    double scores[POSITIONS], max = -HUGE_VAL, sum = 0;
    int first = window > 0 && pos - window + 1 > 0 ? pos - window + 1 : 0;
    for (int p = first; p <= last; p++) {
        scores[p] = 0;
        for (int e = 0; e < WIDTH; e++) {
            scores[p] += rounded(qkv[pos][head * WIDTH + e]) *
                         rounded(qkv[p][Q_DIM + kv_head * WIDTH + e]) / sqrt(WIDTH);
        }
        max = scores[p] > max ? scores[p] : max;
    }
    memset(out, 0, WIDTH * sizeof *out);
    for (int p = first; p <= last; p++) {
        double weight = exp(scores[p] - max);
        sum += weight;
        for (int e = 0; e < WIDTH; e++) {
            out[e] += weight * rounded(qkv[p][Q_DIM + KV_DIM + kv_head * WIDTH + e]);
        }
    }
    for (int e = 0; e < WIDTH; e++) {
        out[e] /= sum;
    }
}

static const int windows[] = {0, 1, 2, 8, 16, 17, 100, 255, 256, 257, 300, 512, POSITIONS};
enum { N_WINDOWS = sizeof windows / sizeof *windows, N_CHUNKS = 5 };

/* In steps of `chunk` rows. */
static void check_definition(int chunk)
{
    uint16_t *out = new_out();
    run("auto", 1, chunk, 0, out);
    for (int pos = 0; pos < POSITIONS; pos += pos < 40 || pos % 256 > 250 ? 1 : 13) {
        int end = (pos / chunk + 1) * chunk < POSITIONS ? (pos / chunk + 1) * chunk : POSITIONS;
        for (int head = 0; head < HEADS; head++) {
            double want[WIDTH];
            define(pos, sees_lane ? end - 1 : pos, head, want);
            for (int e = 0; e < WIDTH; e++) {
                double got = (double)num_bf16_to_float(out[(pos * HEADS + head) * WIDTH + e]);
                /* weights and the result are rounded to bf16; values lie within 2 */
                ck_assert_msg(fabs(got - want[e]) <= 2 * 0x1p-8,
                              "window %d: position %d, head %d, column %d: %g, not %g", window, pos,
                              head, e, got, want[e]);
            }
        }
    }
    free(out);
}

START_TEST(attention_equals_its_definition)
{
    window = windows[_i];
    check_definition(64);
}
END_TEST

START_TEST(rows_of_a_lane_see_each_other_if_the_rule_says_so)
{
    static const int chunks[] = {7, 16, 64};
    uint16_t *want = new_out(), *got = new_out();
    window = windows[_i];
    sees_lane = true;
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        check_definition(chunks[i]);
        run("auto", 1, chunks[i], 0, want);
        for (int v = 0; kernels_name(v); v++) {
            memcpy(got, want, (size_t)POSITIONS * Q_DIM * sizeof *got);
            run(kernels_name(v), 1 + v % 3, chunks[i], 0xff, got);
            ck_assert_msg(!memcmp(got, want, (size_t)POSITIONS * Q_DIM * sizeof *got),
                          "%s, chunk %d, window %d", kernels_name(v), chunks[i], window);
        }
    }
    sees_lane = false;
    free(want);
    free(got);
}
END_TEST

/* A block may come from a sequence with NaN in it: 0xffff is a NaN as bf16. */
static void check_no_effect(int way)
{
    const int chunks[N_CHUNKS] = {1, 5, 16, 64, POSITIONS};
    uint16_t *want = new_out(), *got = new_out();
    run("auto", 1, POSITIONS, 0, want);
    for (int v = 0; kernels_name(v); v++) {
        struct backend *be = open_backend(kernels_name(v), 1);
        if (!be) continue;
        be->ops->close(be);
        memset(got, 0, (size_t)POSITIONS * Q_DIM * sizeof *got);
        run(kernels_name(v), 1 + way % 3, chunks[way % N_CHUNKS], 0xff, got);
        for (int i = 0; i < POSITIONS * Q_DIM; i++) {
            ck_assert_msg(got[i] == want[i], "%s, chunk %d, window %d: position %d differs",
                          kernels_name(v), chunks[way % N_CHUNKS], window, i / Q_DIM);
        }
    }
    free(want);
    free(got);
}

START_TEST(later_positions_have_no_effect)
{
    window = 0;
    check_no_effect(_i);
}
END_TEST

START_TEST(positions_before_the_window_have_no_effect)
{
    window = windows[1 + _i];
    check_no_effect(_i);
    check_no_effect(_i + 3);
}
END_TEST

/* A lane with NaN in its own rows, before and after the lane of interest. */
START_TEST(a_lane_of_nan_changes_no_other_lane)
{
    enum { N = 21 };
    static float work[2 * N][QKV_DIM];
    static uint16_t q[2 * N * Q_DIM], out[2][2 * N * Q_DIM];
    size_t kv_bytes = kv_layer_bytes(&shape);
    const struct attention_input input = {0};
    const struct attention_rule rule = {.scale = 1.0f / sqrtf(WIDTH)};
    for (int ill = 0; ill < 2; ill++) {
        struct backend *be = open_backend("auto", 2);
        uint16_t *kv = calloc(1, kv_bytes);
        const struct attention_lane lanes[2] = {{0, N, 0, blocks, NULL},
                                                {N, N, 0, blocks + 40, NULL}};
        const struct backend_step step = {
            .n = 2 * N, .lanes = lanes, .n_lanes = 2, .cos = ones, .sin = zeros, .n_ropes = 1};
        memcpy(work[0], qkv[0], sizeof work / 2);
        memcpy(work[N], qkv[0], sizeof work / 2);
        for (int i = 0; i < N * QKV_DIM; i++) {
            work[ill * N + i / QKV_DIM][i % QKV_DIM] = NAN;
        }
        be->ops->attention_store(be, &shape, &input, &step, work[0], q, kv);
        be->ops->attention(be, &shape, &step, &rule, q, kv, out[ill]);
        be->ops->close(be);
        free(kv);
    }
    ck_assert_mem_eq(out[0] + N * Q_DIM, out[1], sizeof out[0] / 2);
    ck_assert(num_bf16_to_float(out[0][0]) != num_bf16_to_float(out[0][0]));
    ck_assert(num_bf16_to_float(out[1][0]) == num_bf16_to_float(out[1][0]));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("attention");
    TCase *one_hop = tcase_create("one hop"), *two_hops = tcase_create("two hops");
    tcase_set_timeout(one_hop, 280);
    tcase_set_timeout(two_hops, 280);
    tcase_add_checked_fixture(one_hop, setup_one_hop, NULL);
    tcase_add_checked_fixture(two_hops, setup_two_hops, NULL);
    tcase_add_loop_test(one_hop, attention_equals_its_definition, 0, N_WINDOWS);
    tcase_add_loop_test(one_hop, rows_of_a_lane_see_each_other_if_the_rule_says_so, 0, N_WINDOWS);
    tcase_add_loop_test(one_hop, later_positions_have_no_effect, 0, N_CHUNKS);
    tcase_add_loop_test(one_hop, positions_before_the_window_have_no_effect, 0, N_WINDOWS - 1);
    tcase_add_loop_test(two_hops, attention_equals_its_definition, 0, N_WINDOWS);
    tcase_add_loop_test(two_hops, later_positions_have_no_effect, 0, N_CHUNKS);
    tcase_add_loop_test(two_hops, positions_before_the_window_have_no_effect, 0, N_WINDOWS - 1);
    tcase_add_test(two_hops, a_lane_of_nan_changes_no_other_lane);
    suite_add_tcase(suite, one_hop);
    suite_add_tcase(suite, two_hops);
    return check_main(suite);
}
