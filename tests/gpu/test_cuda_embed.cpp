/* Embedding rows of tables that the device has copies of, against the rows that the host reads. */
#include "tests/gpu/rig.h"

enum { ROWS_MAX = 80, VOCAB = 50, N_AHEAD = 3 };

/* A table of finite numbers, small ones among them, and its copy on the device. */
struct table {
    struct weight weight;
    uint8_t *data;
    void *copy;
};

static size_t size_of(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t);
}

static void table_open(struct table *t, struct rig *rig, enum dtype dtype, int n_rows, int dim)
{
    size_t n = static_cast<size_t>(n_rows) * static_cast<size_t>(dim), size = size_of(dtype);
    *t = {};
    t->data = static_cast<uint8_t *>(malloc(n * size));
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = static_cast<uint32_t>(1e9f * (rig_number(rig) + 1));
        float value = rig_number(rig);
        uint16_t half = static_cast<uint16_t>(bits % 5 ? bits : bits & 0x83ff);
        if (dtype == DTYPE_F16 && (half >> 10 & 0x1f) == 0x1f) half ^= 0x4000;
        if (dtype == DTYPE_BF16) half = num_float_to_bf16(value);
        memcpy(t->data + i * size, dtype == DTYPE_F32 ? static_cast<void *>(&value) : &half, size);
    }
    t->weight.dtype = dtype;
    t->weight.n_rows = n_rows;
    t->weight.n_cols = dim;
    t->weight.data = t->data;
    t->copy = device_open(rig, t->data, n * size);
}

static void table_close(struct table *t, struct rig *rig)
{
    device_close(rig, t->copy);
    free(t->data);
}

/* n rows: tokens of the vocabulary, of look-ahead ids from VOCAB on where there are some, and none
 * at all. */
static void rows_are_those_of_the_host(struct rig *rig, enum dtype dtype, int n, int dim,
                                       float scale, bool looks_ahead)
{
    static float zeros[ROWS_MAX * 8];
    struct table table, ahead;
    struct attention_shape shape = {1, 1, 16, 0};
    int32_t tokens[ROWS_MAX], blocks[ROWS_MAX] = {};
    struct attention_lane lane = {0, n, 0, blocks, NULL};
    struct backend_step step = {};
    int padded = rig->cuda->ops->capacity(rig->cuda, n), n_wrong = 0;
    size_t all = static_cast<size_t>(padded) * static_cast<size_t>(dim);
    float *want = rig_numbers(rig, all, 0), *got = rig_numbers(rig, all, 0);
    float *x = device_floats(rig, NULL, all);
    table_open(&table, rig, dtype, VOCAB, dim);
    table_open(&ahead, rig, dtype == DTYPE_F32 ? DTYPE_F16 : DTYPE_F32, N_AHEAD, dim);
    for (int i = 0; i < n; i++) {
        tokens[i] = (7 * i + VOCAB - 2) % (VOCAB + (looks_ahead ? N_AHEAD : 0));
        if (i % 11 == 3) tokens[i] = STEP_NO_TOKEN;
    }
    step.embedding = &table.weight;
    step.embedding_scale = scale;
    step.tokens = tokens;
    step.n = n;
    step.lanes = &lane;
    step.n_lanes = 1;
    step.shape = &shape;
    step.cos = step.sin = zeros;
    step.n_ropes = 1;
    if (looks_ahead) {
        step.look_ahead = &ahead.weight;
        step.look_ahead_first = VOCAB;
        step.look_ahead_copy = ahead.copy;
    }
    rig->cpu->ops->embed(rig->cpu, &step, want);
    step.embedding_copy = table.copy;
    EXPECT(rig, !step_plan_has_embedding(&step), "the host sends rows of a table that is copied");
    memset(table.data, 0x7f, static_cast<size_t>(VOCAB * dim) * size_of(dtype));
    rig_begin(rig, &step);
    rig->cuda->ops->embed(rig->cuda, &step, x);
    rig_end(rig);
    device_read(rig, got, x, static_cast<size_t>(n) * static_cast<size_t>(dim) * sizeof *got);
    for (int i = 0; i < n * dim; i++) {
        n_wrong += memcmp(&got[i], &want[i], sizeof *got) != 0;
    }
    EXPECT(rig, n_wrong == 0, "dtype %d, %d rows: %d of %d elements are wrong",
           static_cast<int>(dtype), n, n_wrong, n * dim);
    table_close(&table, rig), table_close(&ahead, rig);
    device_close(rig, x);
    free(want), free(got);
}

int main(int argc, char **argv)
{
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    struct rig rig;
    rig_open(&rig, argc, argv);
    for (enum dtype dtype : dtypes) {
        rows_are_those_of_the_host(&rig, dtype, 1, 16, 0, false);
        rows_are_those_of_the_host(&rig, dtype, 9, 2064, 45.254834f, false);
        rows_are_those_of_the_host(&rig, dtype, 9, 1040, 0, true);
        rows_are_those_of_the_host(&rig, dtype, 70, 1008, 12, true);
    }
    return rig_close(&rig);
}
