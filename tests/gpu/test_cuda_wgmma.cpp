/* Matmuls by wgmma against those by mma.sync: equal bits for bf16 and fp8, whole matrices, slices
 * whose sums are added on the way, gate and up; segments that end within a stage; blocks that are
 * not full; one unit a block and many, and segments that are units of their own. */
#include "base/limits.h"
#include "tests/gpu/matmul_rig.h"

enum { ROWS = 200 };

/* One case of a matrix of n_out x n_in or of as many slices of it. */
struct shape {
    int n_in, n_out, n_slices;
};

/* All sums of a case, as wgmma or mma.sync gives them; slices are added by the tree. */
static void run_slices(struct rig *rig, const struct matrix *slices, const struct shape *shape,
                       const uint16_t *device_in, int n, bool by_wgmma, float *out)
{
    struct backend_cuda *be = backend_cuda_of(rig->cuda);
    size_t rows = static_cast<size_t>(rig->cuda->ops->capacity(rig->cuda, n));
    size_t all = rows * static_cast<size_t>(shape->n_out), stride = area(shape->n_in, SLICES_MAX);
    struct slice_sums sums = {device_floats(rig, NULL, all * SLICES_MAX), 0, 0};
    float *parts = static_cast<float *>(malloc(all * SLICES_MAX * sizeof *parts));
    be->has_wgmma = by_wgmma;
    rig->cuda->ops->matmul_slices(rig->cuda, slices, shape->n_slices, device_in, stride, n, &sums);
    bool adds = by_wgmma && be->n_sms == 1; /* as many units as such a device can have */
    EXPECT(rig, !adds || sums.n_parts == 1, "%d parts where slices are added", sums.n_parts);
    device_read(rig, parts, sums.data, static_cast<size_t>(sums.n_parts) * all * sizeof *parts);
    for (int distance = 1; distance < sums.n_parts; distance *= 2) {
        for (int i = 0; i + distance < sums.n_parts; i += 2 * distance) {
            float *a = parts + static_cast<size_t>(i) * all;
            const float *b = a + static_cast<size_t>(distance) * all;
            for (size_t j = 0; j < all; j++) {
                a[j] += b[j];
            }
        }
    }
    memcpy(out, parts, area(n, shape->n_out) * sizeof *out);
    free(parts);
    device_close(rig, sums.data);
}

static void expect_equal_slices(struct rig *rig, const struct shape *shape, int n)
{
    size_t n_sums = area(n, shape->n_out);
    size_t rows = static_cast<size_t>(rig->cuda->ops->capacity(rig->cuda, n));
    size_t width = area(shape->n_in, SLICES_MAX);
    uint16_t *w = random_bf16(rig, area(shape->n_out, shape->n_in * SLICES_MAX), 1);
    uint16_t *in = random_bf16(rig, rows * width, 1);
    float *want = static_cast<float *>(malloc(n_sums * sizeof *want));
    float *got = static_cast<float *>(malloc(n_sums * sizeof *got));
    struct backend_cuda *be = backend_cuda_of(rig->cuda);
    struct matrix slices[SLICES_MAX] = {};
    int n_sms = be->n_sms;
    for (int s = 0; s < shape->n_slices; s++) {
        struct matrix_source source = {};
        source.n_in = shape->n_in;
        add_part(&source, file_weight(w, shape->n_out, shape->n_in * SLICES_MAX), 0, shape->n_out,
                 s * shape->n_in);
        slices[s] = open_matrix(rig, &source);
    }
    uint16_t *device_in = static_cast<uint16_t *>(device_open(rig, in, rows * width * sizeof *in));
    run_slices(rig, slices, shape, device_in, n, false, want);
    const int all_sms[] = {1, 3, n_sms, NARROW_SMS};
    for (int sms : all_sms) {
        be->n_sms = sms;
        run_slices(rig, slices, shape, device_in, n, true, got);
        expect_same(rig, got, want, n_sums, "slices", n);
    }
    be->n_sms = n_sms;
    for (int s = 0; s < shape->n_slices; s++) {
        rig->cuda->ops->matrix_close(rig->cuda, &slices[s]);
    }
    device_close(rig, device_in);
    free(w), free(in), free(want), free(got);
}

static void expect_equal_gated(struct rig *rig, int n_in, int n_ffn, int n)
{
    size_t rows = static_cast<size_t>(rig->cuda->ops->capacity(rig->cuda, n));
    size_t n_h = rows * static_cast<size_t>(n_ffn) / 2 * 2;
    uint16_t *w = random_bf16(rig, area(2 * n_ffn, n_in), 1);
    uint16_t *in = random_bf16(rig, rows * static_cast<size_t>(n_in), 1);
    uint16_t *h[2];
    struct backend_cuda *be = backend_cuda_of(rig->cuda);
    struct matrix_source source = whole_source(w, n_in, n_ffn);
    source.is_gate_up = true;
    add_part(&source, file_weight(w, 2 * n_ffn, n_in), n_ffn, n_ffn, 0);
    struct matrix m = open_matrix(rig, &source);
    uint16_t *device_in = static_cast<uint16_t *>(
        device_open(rig, in, rows * static_cast<size_t>(n_in) * sizeof *in));
    for (int by_wgmma = 0; by_wgmma < 2; by_wgmma++) {
        uint16_t *device_h = static_cast<uint16_t *>(device_open(rig, NULL, n_h * sizeof **h));
        const struct gated_mlp mlp = {&m, NULL, ACTIVATION_SILU, device_in, n, NULL, device_h};
        h[by_wgmma] = static_cast<uint16_t *>(malloc(n_h * sizeof **h));
        be->has_wgmma = by_wgmma;
        rig->cuda->ops->matmul_gated(rig->cuda, &mlp);
        device_read(rig, h[by_wgmma], device_h, n_h * sizeof **h);
        device_close(rig, device_h);
    }
    EXPECT(rig, memcmp(h[0], h[1], area(n, n_ffn) * sizeof **h) == 0, "%d x %d gated, %d rows",
           n_in, n_ffn, n);
    rig->cuda->ops->matrix_close(rig->cuda, &m);
    device_close(rig, device_in);
    free(w), free(in), free(h[0]), free(h[1]);
}

static void by_wgmma_as_by_mma(struct rig *rig)
{
    /* 64: one segment. 512: two. 832: 26 tiles in two segments of 13. 2368: 74 tiles in eight
     * segments of 9 and 10. */
    static const struct shape shapes[] = {{64, 16, 1},    {512, 200, 8},  {832, 130, 3},
                                          {2368, 130, 2}, {1024, 260, 5}, {256, 520, 7},
                                          {4096, 136, 1}};
    static const int counts[] = {33, 64, 72, 129, ROWS};
    int n_shapes = rig->is_small ? 4 : static_cast<int>(sizeof shapes / sizeof *shapes);
    for (int i = 0; i < n_shapes; i++) {
        for (int n : counts) {
            if (rig->is_small && n > 72) continue;
            expect_equal_slices(rig, &shapes[i], n);
        }
    }
    for (int n : counts) {
        if (rig->is_small && n > 72) continue;
        expect_equal_gated(rig, 320, 172, n);
    }
}

int main(int argc, char **argv)
{
    struct rig rig;
    rig_open(&rig, argc, argv);
    struct backend_cuda *be = backend_cuda_of(rig.cuda);
    EXPECT(&rig, be->has_wgmma == (be->sm == 90), "sm_%d %s wgmma", be->sm,
           be->has_wgmma ? "has" : "goes without");
    if (!be->has_wgmma) {
        printf("this GPU has no wgmma\n");
        return rig_close(&rig);
    }
    by_wgmma_as_by_mma(&rig);
    open_fp8(&rig);
    by_wgmma_as_by_mma(&rig);
    return rig_close(&rig);
}
