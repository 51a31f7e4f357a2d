/* Operations on rows of the CUDA backend compared with those of the CPU backend: sums and copies
 * bit for bit, norms within the rounding to bf16. A row's bits must not depend on the rows beside
 * it. */
#include "base/limits.h"
#include "tests/gpu/rig.h"

#include <pthread.h>

extern "C" {
#include "comm/comm.h"
}

enum { LANE_ROWS_MAX = 16, PARTS_MAX = 8 };

/* A step of n rows, of which those in `wanted` are wanted, and the memory it points to. */
struct plain_step {
    struct backend_step step;
    struct weight embedding;
    struct attention_shape shape;
    struct attention_lane lane;
    int32_t tokens[LANE_ROWS_MAX], blocks[1];
    float zeros[LANE_ROWS_MAX * 8], *table;
};

/* Every other step has a synthetic table. */
static void plain_step_open(struct plain_step *s, struct rig *rig, int n, int dim,
                            const int *wanted, int n_wanted)
{
    memset(s, 0, sizeof *s);
    s->table = rig_numbers(rig, static_cast<size_t>(LANE_ROWS_MAX) * static_cast<size_t>(dim), 3);
    s->embedding.dtype = DTYPE_F32;
    s->embedding.n_rows = LANE_ROWS_MAX;
    s->embedding.n_cols = dim;
    s->embedding.data = reinterpret_cast<const uint8_t *>(s->table);
    if (n % 2 == 0) {
        s->embedding.dtype = DTYPE_BF16;
        s->embedding.data = NULL;
        s->embedding.seed = 77;
        s->embedding.scale = 0.7f;
        s->embedding.mean = 0.1f;
    }
    for (int i = 0; i < n; i++) {
        s->tokens[i] = (i * 7 + 3) % LANE_ROWS_MAX;
    }
    s->shape.n_heads = s->shape.n_kv_heads = 1;
    s->shape.head_dim = 16;
    s->lane.n_rows = n;
    s->lane.blocks = s->blocks;
    s->step.embedding = &s->embedding;
    s->step.tokens = s->tokens;
    s->step.n = n;
    s->step.lanes = &s->lane;
    s->step.n_lanes = 1;
    s->step.shape = &s->shape;
    s->step.cos = s->step.sin = s->zeros;
    s->step.n_ropes = 1;
    s->step.rows = wanted;
    s->step.n_rows = n_wanted;
}

static size_t area(int n, int dim)
{
    return static_cast<size_t>(n) * static_cast<size_t>(dim);
}

static void expect_equal(struct rig *rig, const float *got, const float *want, size_t n,
                         const char *what)
{
    for (size_t i = 0; i < n; i++) {
        EXPECT(rig, memcmp(&got[i], &want[i], sizeof got[i]) == 0, "%s [%zu]: %.9g, wanted %.9g",
               what, i, static_cast<double>(got[i]), static_cast<double>(want[i]));
    }
}

/* Both backends round the same value, but for the order of one sum and, of what was normed before
 * it was added, an error of `slack`, so they are at most one bf16 step apart. */
static void expect_normed(struct rig *rig, const uint16_t *got, const uint16_t *want, size_t n,
                          float slack, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        float g = num_bf16_to_float(got[i]), w = num_bf16_to_float(want[i]);
        EXPECT(rig, rig_near(g, w, slack + 0x1p-7f * fabsf(w)), "%s [%zu]: %g, wanted %g", what, i,
               static_cast<double>(g), static_cast<double>(w));
    }
}

/* One call of residual_norm on both sides. parts[n_parts][n][dim]. */
struct residual_case {
    int n, dim, n_parts;
    bool has_bias, has_norm, has_weight;
    bool has_post;    /* what is added is normed */
    float post_scale; /* of what is added; 0: none */
    const float *x, *parts, *bias, *weight, *post;
};

static struct residual_norm residual_args(const struct residual_case *c, float *x,
                                          const struct slice_sums *sums, const float *bias,
                                          const float *weight, const float *post, uint16_t *h)
{
    return {x,    sums,   c->has_bias ? bias : NULL, c->has_weight ? weight : NULL, 1e-5f,
            c->n, c->dim, c->has_norm ? h : NULL,    c->has_post ? post : NULL,     c->post_scale};
}

/* x_out[n][dim]; h_out[n][dim] where there is a norm. */
static void residual_on_cuda(struct rig *rig, const struct residual_case *c, float *x_out,
                             uint16_t *h_out)
{
    int padded = rig->cuda->ops->capacity(rig->cuda, c->n);
    size_t dim = static_cast<size_t>(c->dim), rows = area(c->n, c->dim);
    size_t all = area(padded, c->dim);
    float *x = device_floats(rig, NULL, all), *parts = device_floats(rig, NULL, all * PARTS_MAX);
    float *bias = device_floats(rig, c->bias, dim), *weight = device_floats(rig, c->weight, dim);
    float *post = device_floats(rig, c->post, dim);
    uint16_t *h = static_cast<uint16_t *>(device_open(rig, NULL, all * sizeof *h));
    struct slice_sums sums = {parts, all, c->n_parts};
    rig->cuda->ops->upload(rig->cuda, x, c->x, rows * sizeof *x);
    for (int i = 0; i < c->n_parts; i++) {
        rig->cuda->ops->upload(rig->cuda, parts + static_cast<size_t>(i) * all,
                               c->parts + static_cast<size_t>(i) * rows, rows * sizeof *x);
    }
    const struct residual_norm args = residual_args(c, x, &sums, bias, weight, post, h);
    rig->cuda->ops->residual_norm(rig->cuda, &args);
    device_read(rig, x_out, x, rows * sizeof *x);
    device_read(rig, h_out, h, rows * sizeof *h);
    device_close(rig, x);
    device_close(rig, parts);
    device_close(rig, bias);
    device_close(rig, weight);
    device_close(rig, post);
    device_close(rig, h);
}

/* The fixed tree, in place: part 0 becomes the sum. The CPU's matmul_slices adds the parts itself,
 * so its residual_norm takes one. */
static void tree_add(float *parts, size_t stride, int n_parts)
{
    for (int distance = 1; distance < n_parts; distance *= 2) {
        for (int part = 0; part + distance < n_parts; part += 2 * distance) {
            float *low = parts + static_cast<size_t>(part) * stride;
            const float *high = low + static_cast<size_t>(distance) * stride;
            for (size_t i = 0; i < stride; i++) {
                low[i] += high[i];
            }
        }
    }
}

/* The norm of what is added has another order than the CPU's. */
static void expect_residual(struct rig *rig, const struct residual_case *c, const float *got,
                            const float *want)
{
    if (!c->has_post) {
        expect_equal(rig, got, want, area(c->n, c->dim), "residual stream");
        return;
    }
    for (size_t i = 0; i < area(c->n, c->dim); i++) {
        EXPECT(rig, rig_near(got[i], want[i], 1e-5f * (1 + fabsf(want[i]))),
               "residual stream with a norm [%zu]: %.9g, wanted %.9g", i,
               static_cast<double>(got[i]), static_cast<double>(want[i]));
    }
}

/* Compares with the CPU, and then the last row alone with the same row in the batch. Of `shape` the
 * sizes and flags are used. */
static void residual_is_the_tree_and_its_norm(struct rig *rig, const struct residual_case *shape)
{
    int n = shape->n, dim = shape->dim, n_parts = shape->n_parts;
    size_t rows = area(n, dim), last = area(n - 1, dim), width = static_cast<size_t>(dim);
    float *x = rig_numbers(rig, rows, 2), *got_x = rig_numbers(rig, rows, 0);
    float *parts = rig_numbers(rig, rows * static_cast<size_t>(n_parts), 1);
    float *bias = rig_numbers(rig, width, 1), *weight = rig_numbers(rig, width, 2);
    float *post = rig_numbers(rig, width, 2);
    uint16_t *h = static_cast<uint16_t *>(calloc(rows, sizeof *h));
    uint16_t *got_h = static_cast<uint16_t *>(calloc(rows, sizeof *h));
    uint16_t *alone_h = static_cast<uint16_t *>(calloc(rows, sizeof *h));
    float *alone_x = rig_numbers(rig, width, 0),
          *alone_parts = rig_numbers(rig, width * PARTS_MAX, 0);
    struct residual_case c = *shape, alone;
    c.x = x, c.parts = parts, c.bias = bias, c.weight = weight, c.post = post;
    alone = c;
    alone.n = 1;
    alone.x = x + last;
    alone.parts = alone_parts;
    for (int i = 0; i < n_parts; i++) {
        memcpy(alone_parts + static_cast<size_t>(i) * width,
               parts + static_cast<size_t>(i) * rows + last, width * sizeof *x);
    }
    residual_on_cuda(rig, &c, got_x, got_h);
    residual_on_cuda(rig, &alone, alone_x, alone_h);
    tree_add(parts, rows, n_parts);
    struct slice_sums sums = {parts, rows, 1};
    const struct residual_norm args = residual_args(&c, x, &sums, bias, weight, post, h);
    rig->cpu->ops->residual_norm(rig->cpu, &args);
    expect_residual(rig, &c, got_x, x);
    expect_normed(rig, got_h, h, rows, c.has_post ? 1e-4f : 0, "normed residual");
    expect_equal(rig, alone_x, got_x + last, width, "residual stream of a row alone");
    EXPECT(rig, memcmp(alone_h, got_h + last, width * sizeof *h) == 0, "norm of a row alone");
    free(x), free(got_x), free(parts), free(bias), free(weight), free(h), free(got_h);
    free(alone_h), free(alone_x), free(alone_parts), free(post);
}

static struct residual_case residual_shape(int n, int dim, int n_parts, bool has_bias,
                                           bool has_norm)
{
    struct residual_case c = {};
    c.n = n, c.dim = dim, c.n_parts = n_parts;
    c.has_bias = has_bias, c.has_norm = has_norm, c.has_weight = true;
    return c;
}

static void residual_norm_holds_for_every_size(struct rig *rig)
{
    static const int dims[] = {16, 64, 896, 2048, 2064, 4096, 8192, 16384};
    int n_dims = rig->is_small ? 4 : 8;
    for (int d = 0; d < n_dims; d++) {
        for (int n_parts = 1; n_parts <= PARTS_MAX; n_parts++) {
            bool big = dims[d] > 2064;
            struct residual_case c =
                residual_shape(big ? 2 : 9, dims[d], n_parts, n_parts != 2, true);
            residual_is_the_tree_and_its_norm(rig, &c);
        }
    }
    struct residual_case c = residual_shape(3, 160, 4, true, false);
    residual_is_the_tree_and_its_norm(rig, &c);
    c = residual_shape(1, 160, 1, false, true);
    residual_is_the_tree_and_its_norm(rig, &c);
}

/* Norms and scales of what is added, and no norm of the sum. */
static void what_is_added_may_be_normed_and_scaled(struct rig *rig)
{
    static const int dims[] = {48, 2064, 5120, 16384};
    for (int d = 0; d < (rig->is_small ? 2 : 4); d++) {
        struct residual_case c = residual_shape(dims[d] > 2064 ? 2 : 9, dims[d], 4, d == 1, true);
        c.post_scale = 0.22f;
        residual_is_the_tree_and_its_norm(rig, &c);
        c.has_post = true;
        c.has_weight = d % 2;
        residual_is_the_tree_and_its_norm(rig, &c);
        c.post_scale = 0;
        c.has_norm = d % 2;
        residual_is_the_tree_and_its_norm(rig, &c);
    }
}

static void logits_are_scaled_and_capped(struct rig *rig, float scale, float softcap)
{
    enum { N = 9, STRIDE = 70 };
    int padded = rig->cuda->ops->capacity(rig->cuda, N);
    float *logits = rig_numbers(rig, area(padded, STRIDE), 90);
    float *got = rig_numbers(rig, area(N, STRIDE), 0);
    float *device = device_floats(rig, logits, area(padded, STRIDE));
    rig->cuda->ops->adjust_logits(rig->cuda, device, STRIDE, N, scale, softcap);
    device_read(rig, got, device, area(N, STRIDE) * sizeof *got);
    rig->cpu->ops->adjust_logits(rig->cpu, logits, STRIDE, N, scale, softcap);
    expect_equal(rig, got, logits, area(N, STRIDE), "logits");
    device_close(rig, device);
    free(logits), free(got);
}

/* embed, rmsnorm and rmsnorm_rows of one step. */
static void a_step_embeds_and_norms_its_rows(struct rig *rig, int n, int dim, float scale)
{
    static const int wanted[] = {0, 2, 1, 2, 0, 1, 2, 2, 1}; /* 9: the launch has 16 */
    struct plain_step s;
    plain_step_open(&s, rig, n, dim, wanted, 9);
    s.step.embedding_scale = scale;
    size_t all = area(16, dim);
    float *weight = rig_numbers(rig, static_cast<size_t>(dim), 2);
    float *x = rig_numbers(rig, all, 0), *got = rig_numbers(rig, all, 0);
    uint16_t *h = static_cast<uint16_t *>(calloc(2 * all, sizeof *h)), *got_h = h + all;
    float *device_x = device_floats(rig, NULL, all);
    float *device_weight = device_floats(rig, weight, static_cast<size_t>(dim));
    uint16_t *device_h = static_cast<uint16_t *>(device_open(rig, NULL, all * sizeof *h));
    rig_begin(rig, &s.step);
    rig->cuda->ops->embed(rig->cuda, &s.step, device_x);
    rig->cuda->ops->rmsnorm(rig->cuda, device_x, device_weight, 1e-6f, n, dim, device_h);
    device_read(rig, got_h, device_h, area(n, dim) * sizeof *h);
    rig->cpu->ops->embed(rig->cpu, &s.step, x);
    rig->cpu->ops->rmsnorm(rig->cpu, x, weight, 1e-6f, n, dim, h);
    expect_normed(rig, got_h, h, area(n, dim), 0, "rmsnorm");
    rig->cuda->ops->rmsnorm_rows(rig->cuda, &s.step, device_x, device_weight, 1e-6f, dim, device_h);
    rig_end(rig);
    device_read(rig, got, device_x, area(n, dim) * sizeof *x);
    expect_equal(rig, got, x, area(n, dim), "embedding");
    uint16_t *normed = static_cast<uint16_t *>(calloc(all, sizeof *h));
    device_read(rig, normed, device_h, area(9, dim) * sizeof *h);
    for (int i = 0; i < 9; i++) {
        EXPECT(rig,
               memcmp(normed + area(i, dim), got_h + area(wanted[i], dim),
                      static_cast<size_t>(dim) * sizeof *h) == 0,
               "wanted row %d is row %d", i, wanted[i]);
    }
    device_close(rig, device_x), device_close(rig, device_weight), device_close(rig, device_h);
    free(weight), free(x), free(got), free(h), free(normed), free(s.table);
}

/* One rank of a tree sum, on its own thread and backend. */
struct sum_rank {
    struct comm *comm;
    const float *parts; /* [n_parts][n][dim] */
    int n, dim, n_parts;
    bool on_cuda;
    float *out;
    struct rig *rig;
};

static void sum_on_cuda(struct sum_rank *r, struct error *err)
{
    struct rig rig = {};
    rig.cuda = rig_cuda(false);
    size_t rows = area(r->n, r->dim);
    float *data = device_floats(&rig, r->parts, rows * static_cast<size_t>(r->n_parts));
    struct slice_sums sums = {data, rows, r->n_parts};
    MUST(rig.cuda->ops->tree_sum(rig.cuda, r->comm, &sums, r->n, r->dim, err), *err);
    device_read(&rig, r->out, data, rows * sizeof *data);
    device_close(&rig, data);
    rig.cuda->ops->close(rig.cuda);
}

static void *sum_rank_main(void *arg)
{
    struct sum_rank *r = static_cast<struct sum_rank *>(arg);
    struct error err = {};
    if (r->on_cuda) {
        sum_on_cuda(r, &err);
    } else {
        size_t rows = area(r->n, r->dim);
        float *data = static_cast<float *>(malloc(rows * sizeof *data * PARTS_MAX));
        memcpy(data, r->parts, rows * sizeof *data * static_cast<size_t>(r->n_parts));
        tree_add(data, rows, r->n_parts);
        struct slice_sums sums = {data, rows, 1};
        MUST(r->rig->cpu->ops->tree_sum(r->rig->cpu, r->comm, &sums, r->n, r->dim, &err), err);
        memcpy(r->out, data, rows * sizeof *data);
        free(data);
    }
    comm_close(r->comm);
    return NULL;
}

static void tree_sum_is_the_tree_over_ranks(struct rig *rig, int n_ranks, int n_parts, int dim)
{
    enum { N = 3, RANKS_MAX = 4 };
    struct comm *comms[RANKS_MAX] = {};
    struct error err = {};
    float *parts = rig_numbers(rig, area(N, dim) * PARTS_MAX * RANKS_MAX, 1), *out[2][RANKS_MAX];
    for (int side = 0; side < 2; side++) {
        pthread_t threads[RANKS_MAX];
        struct sum_rank ranks[RANKS_MAX] = {};
        MUST(comm_threads_open(comms, n_ranks, &err), err);
        for (int i = 0; i < n_ranks; i++) {
            out[side][i] = rig_numbers(rig, area(N, dim), 0);
            ranks[i] = {comms[i],
                        parts + area(N, dim) * static_cast<size_t>(PARTS_MAX * i),
                        N,
                        dim,
                        n_parts,
                        side == 1,
                        out[side][i],
                        rig};
            pthread_create(&threads[i], NULL, sum_rank_main, &ranks[i]);
        }
        for (int i = 0; i < n_ranks; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    for (int i = 0; i < n_ranks; i++) {
        expect_equal(rig, out[1][i], out[0][0], area(N, dim), "tree sum");
    }
    for (int i = 0; i < n_ranks; i++) {
        free(out[0][i]), free(out[1][i]);
    }
    free(parts);
}

int main(int argc, char **argv)
{
    struct rig rig;
    rig_open(&rig, argc, argv);
    residual_norm_holds_for_every_size(&rig);
    what_is_added_may_be_normed_and_scaled(&rig);
    logits_are_scaled_and_capped(&rig, 0.0625f, 0);
    logits_are_scaled_and_capped(&rig, 0, 30);
    logits_are_scaled_and_capped(&rig, 0.7f, 50);
    a_step_embeds_and_norms_its_rows(&rig, 3, 160, 0);
    a_step_embeds_and_norms_its_rows(&rig, 9, 2064, 45.254834f);
    a_step_embeds_and_norms_its_rows(&rig, 10, 2064, 12);
    tree_sum_is_the_tree_over_ranks(&rig, 2, 1, 48);
    tree_sum_is_the_tree_over_ranks(&rig, 2, 4, 48);
    tree_sum_is_the_tree_over_ranks(&rig, 4, 2, 2);
    return rig_close(&rig);
}
