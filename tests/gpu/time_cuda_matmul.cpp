/* Times the matmuls of one layer and of the head of llama-3.1-8b on this machine's GPU. Each line
 * has one shape and one number of rows: microseconds, GB/s of weights and their share of a copy's
 * on the device, Tflop/s. Launches follow each other as in a step. Each shape has so many copies
 * that none is found in the second-level cache. The bits of the first rows must be the same for all
 * numbers of rows; otherwise the line says so, and the program fails.
 *
 *   time_cuda_matmul [--weights fp8 | Q4_0 | Q4_K | ...] [--rows N,N,...] [--ms PER_LINE] */
#include <algorithm>

#include "tests/gpu/blocks_rig.h"
#include "tests/gpu/timing.h"

enum {
    SHAPES = 5,
    TIMED_SLICES_MAX = 8,
    COPIES_MAX = 64,
    ROWS_MAX = 4096,
    ROTATED_MIB = 512,
    ROWS_COMPARED = 33
};

struct shape {
    const char *name;
    int n_in, n_out, n_slices;
    bool is_gate_up;
};

static const struct shape shapes[SHAPES] = {{"qkv", 4096, 6144, 1, false},
                                            {"o", 512, 4096, 8, false},
                                            {"gate_up", 4096, 28672, 1, true},
                                            {"down", 1792, 4096, 8, false},
                                            {"head", 4096, 128256, 1, false}};

/* A shape's copies, and the buffers that all shapes share. */
struct timed {
    struct rig *rig;
    const struct shape *shape;
    enum block_kind kind; /* BLOCK_UNREAD: synthetic numbers */
    struct matrix matrices[COPIES_MAX][TIMED_SLICES_MAX];
    int n_copies;
    size_t bytes; /* of one copy */
    uint16_t *in, *h;
    float *out;
};

static void open_copies(struct timed *t)
{
    const struct shape *shape = t->shape;
    struct weight blocks = {};
    t->n_copies = 0;
    if (t->kind != BLOCK_UNREAD) {
        blocks = random_blocks(t->rig, t->kind, shape->n_out, shape->n_in);
    }
    do {
        t->bytes = 0;
        for (int s = 0; s < shape->n_slices; s++) {
            struct matrix_source source = {};
            struct weight weight = {};
            int n_parts = shape->is_gate_up ? 2 : 1;
            weight.n_rows = shape->n_out;
            weight.n_cols = shape->n_in;
            weight.seed = static_cast<uint64_t>(100 * t->n_copies + s);
            weight.scale = 0.02f;
            if (t->kind != BLOCK_UNREAD) weight = blocks;
            source.n_in = shape->n_in;
            source.is_gate_up = shape->is_gate_up;
            for (int i = 0; i < n_parts; i++) {
                int n_rows = shape->n_out / n_parts;
                add_part(&source, weight, i * n_rows, n_rows, 0);
            }
            t->matrices[t->n_copies][s] = open_matrix(t->rig, &source);
            t->bytes += t->matrices[t->n_copies][s].bytes;
        }
        t->n_copies++;
    } while (t->n_copies < COPIES_MAX &&
             t->bytes * static_cast<size_t>(t->n_copies) < static_cast<size_t>(ROTATED_MIB) << 20);
    free_blocks(&blocks);
}

static void launch_one(struct timed *t, int i, int n)
{
    struct backend *be = t->rig->cuda;
    const struct shape *shape = t->shape;
    const struct matrix *m = t->matrices[i % t->n_copies];
    size_t width = static_cast<size_t>(shape->n_in) * static_cast<size_t>(shape->n_slices);
    struct slice_sums sums = {t->out, 0, 0};
    if (shape->is_gate_up) {
        const struct gated_mlp mlp = {m, NULL, ACTIVATION_SILU, t->in, n, NULL, t->h};
        be->ops->matmul_gated(be, &mlp);
    } else if (shape->n_slices > 1) {
        be->ops->matmul_slices(be, m, shape->n_slices, t->in, width, n, &sums);
    } else {
        be->ops->matmul(be, m, t->in, width, t->out, static_cast<size_t>(shape->n_out), n);
    }
}

/* Milliseconds of n_launches on the device. */
static float time_launches(struct timed *t, int n, int n_launches)
{
    return device_ms(t->rig, [&] {
        for (int i = 0; i < n_launches; i++)
            launch_one(t, i, n);
    });
}

/* The median of five runs of about a fifth of ms_wanted each. */
static double median_us(struct timed *t, int n, float ms_wanted)
{
    enum { RUNS = 5 };
    float once = time_launches(t, n, t->n_copies) / static_cast<float>(t->n_copies), us[RUNS];
    int n_launches = static_cast<int>(ms_wanted / RUNS / (once > 0.001f ? once : 0.001f)) + 1;
    for (int run = 0; run < RUNS; run++) {
        float mine = 1000 * time_launches(t, n, n_launches) / static_cast<float>(n_launches);
        int at = run;
        for (; at > 0 && us[at - 1] > mine; at--)
            us[at] = us[at - 1];
        us[at] = mine;
    }
    return static_cast<double>(us[RUNS / 2]);
}

/* The results of the first rows of a step of n, as many as are compared. */
static std::vector<float> first_rows(struct timed *t, int n)
{
    const struct shape *shape = t->shape;
    size_t padded = static_cast<size_t>(t->rig->cuda->ops->capacity(t->rig->cuda, n));
    size_t n_rows = static_cast<size_t>(n < ROWS_COMPARED ? n : ROWS_COMPARED);
    size_t width = static_cast<size_t>(shape->n_out) / (shape->is_gate_up ? 4 : 1); /* in floats */
    std::vector<float> rows(n_rows * width * static_cast<size_t>(shape->n_slices));
    const float *from = shape->is_gate_up ? reinterpret_cast<const float *>(t->h) : t->out;
    launch_one(t, 0, n);
    for (size_t s = 0; s < static_cast<size_t>(shape->n_slices); s++) {
        device_read(t->rig, &rows[s * n_rows * width], from + s * padded * width,
                    n_rows * width * sizeof(float));
    }
    return rows;
}

/* True if the rows that two counts of rows have in common have the same bits. */
static bool are_alike(const std::vector<float> &a, const std::vector<float> &b, int n_slices)
{
    size_t n_a = a.size() / static_cast<size_t>(n_slices);
    size_t n_b = b.size() / static_cast<size_t>(n_slices), n = n_a < n_b ? n_a : n_b;
    for (size_t s = 0; s < static_cast<size_t>(n_slices); s++) {
        if (memcmp(&a[s * n_a], &b[s * n_b], n * sizeof(float)) != 0) return false;
    }
    return true;
}

static void time_shape(struct rig *rig, const struct shape *shape, enum block_kind kind,
                       const std::vector<int> &counts, float ms, double copy)
{
    static struct timed t;
    size_t width = static_cast<size_t>(shape->n_in) * static_cast<size_t>(shape->n_slices);
    size_t n_out = static_cast<size_t>(shape->n_out) * static_cast<size_t>(shape->n_slices);
    int most = *std::max_element(counts.begin(), counts.end());
    t.rig = rig;
    t.shape = shape;
    t.kind = kind;
    size_t rows = static_cast<size_t>(rig->cuda->ops->capacity(rig->cuda, most));
    uint16_t *in = random_bf16(rig, rows * width, 1);
    t.in = static_cast<uint16_t *>(device_open(rig, in, rows * width * sizeof *in));
    t.h = static_cast<uint16_t *>(device_open(rig, NULL, rows * n_out * sizeof *t.h));
    t.out = device_floats(rig, NULL, rows * n_out);
    open_copies(&t);
    std::vector<float> want = first_rows(&t, most);
    for (int n : counts) {
        bool is_alike = are_alike(first_rows(&t, n), want, shape->n_slices);
        double us = median_us(&t, n, ms), rate = static_cast<double>(t.bytes) / us * 1e-3;
        double flop = 2.0 * static_cast<double>(width) * shape->n_out * n;
        printf("%-8s %5d rows %10.1f us %8.0f GB/s %5.2f of a copy %8.1f Tflop/s\n", shape->name, n,
               us, rate, rate / copy, flop / us * 1e-6);
        EXPECT(rig, is_alike, "rows have other bits than in a step of %d", most);
    }
    for (int i = 0; i < t.n_copies * TIMED_SLICES_MAX; i++) {
        rig->cuda->ops->matrix_close(rig->cuda, &t.matrices[i / TIMED_SLICES_MAX][i % 8]);
    }
    device_close(rig, t.in), device_close(rig, t.h), device_close(rig, t.out);
    free(in);
}

int main(int argc, char **argv)
{
    static struct rig rig;
    std::vector<int> counts = {1, 2, 4, 6, 8, 16, 32, 64, 128, 512, 2048};
    enum block_kind kind = BLOCK_UNREAD;
    float ms = 50;
    rig_open(&rig, 1, argv);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--weights") == 0 && strcmp(argv[i + 1], "fp8") == 0) open_fp8(&rig);
        for (const struct block_case &one : block_cases) {
            if (strcmp(argv[i + 1], block_type_of(one.kind)->name) == 0) kind = one.kind;
        }
        if (strcmp(argv[i], "--ms") == 0) ms = static_cast<float>(atof(argv[i + 1]));
        if (strcmp(argv[i], "--rows") == 0) counts = counts_of(argv[i + 1], ROWS_MAX);
    }
    if (counts.empty()) counts.push_back(1);
    double copy = copy_rate(&rig);
    printf("copy on the device: %.0f GB/s\n", copy);
    for (int i = 0; i < SHAPES; i++) {
        time_shape(&rig, &shapes[i], kind, counts, ms, copy);
    }
    return rig_close(&rig);
}
