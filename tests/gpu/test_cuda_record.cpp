/* Recording and replay of steps: every step has the rows of its own tokens, whatever else was
 * recorded, forgotten or refused before. A step here is one operation, `embed`. */
#include "tests/gpu/rig.h"

enum {
    DIM = 1024,
    VOCAB = 64,
    ROWS_MAX = 1200, /* more than are recorded; their inputs need more than INPUTS_LEAST bytes */
    MIB = 1 << 20,
    POSITIONS_MAX = 64 * ATTENTION_PARTITION
};

/* A backend that records, and what its steps share. */
struct recorder {
    struct rig *rig;
    struct backend *be;
    float table[VOCAB * DIM], *x;
    struct weight embedding;
    struct attention_shape shape;
    int32_t tokens[ROWS_MAX], blocks[POSITIONS_MAX / KV_BLOCK_TOKENS];
    float angles[ROWS_MAX];
    int wanted[ROWS_MAX];
    int n_again; /* of the last step */
};

static void recorder_open(struct recorder *r, struct rig *rig)
{
    memset(r, 0, sizeof *r);
    r->rig = rig;
    r->be = rig_cuda(true);
    r->x = static_cast<float *>(device_open(rig, NULL, ROWS_MAX * DIM * sizeof *r->x));
    for (int i = 0; i < VOCAB * DIM; i++) {
        r->table[i] = static_cast<float>(i);
    }
    r->embedding.dtype = DTYPE_F32;
    r->embedding.n_rows = VOCAB;
    r->embedding.n_cols = DIM;
    r->embedding.data = reinterpret_cast<const uint8_t *>(r->table);
    r->shape = {1, 1, 2, 0};
}

static void recorder_close(struct recorder *r)
{
    device_close(r->rig, r->x);
    r->be->ops->close(r->be);
}

/* Runs one lane of n rows that end where n_partitions do; n_rows are wanted. Returns whether it was
 * replayed. */
static bool run_step(struct recorder *r, int n, int n_rows, int n_partitions)
{
    struct error err = {};
    struct attention_lane lane = {0, n, n_partitions * ATTENTION_PARTITION - n, r->blocks, NULL};
    struct backend_step step = {};
    step.embedding = &r->embedding;
    step.tokens = r->tokens;
    step.n = n;
    step.lanes = &lane;
    step.n_lanes = 1;
    step.shape = &r->shape;
    step.cos = step.sin = r->angles;
    step.rows = r->wanted;
    step.n_rows = n_rows;
    step.n_ropes = 1;
    bool replayed = false, again = true;
    int n_wrong = 0;
    for (int i = 0; i < n; i++) {
        r->tokens[i] = static_cast<int32_t>((rig_number(r->rig) + 1) * (VOCAB / 2)) % VOCAB;
    }
    r->n_again = 0;
    MUST(r->be->ops->begin(r->be, &step, &replayed, &err), err);
    while (again) {
        if (!replayed) r->be->ops->embed(r->be, &step, r->x);
        MUST(r->be->ops->end(r->be, &again, &err), err);
        r->n_again += again;
    }
    const float *got = r->be->ops->read(r->be, r->x, static_cast<size_t>(n) * DIM);
    for (int i = 0; got && i < n * DIM; i++) {
        n_wrong += got[i] != r->table[r->tokens[i / DIM] * DIM + i % DIM];
    }
    EXPECT(r->rig, got && n_wrong == 0, "%d rows: %d numbers are wrong", n, n_wrong);
    return replayed;
}

static int n_recordings(const struct recorder *r)
{
    return backend_cuda_of(r->be)->n_recordings;
}

/* Neither large steps nor scratch memory within its first size forget a recording. */
static void recordings_outlive_larger_steps(struct rig *rig)
{
    struct recorder r;
    recorder_open(&r, rig);
    struct backend_cuda *cuda = backend_cuda_of(r.be);
    EXPECT(rig, cuda_scratch(cuda, 1), "no scratch");
    EXPECT(rig, !run_step(&r, 5, 1, 1), "a first step was replayed");
    EXPECT(rig, !run_step(&r, 5, 1, 1), "a second step was replayed");
    EXPECT(rig, run_step(&r, 5, 1, 1), "a third step was not replayed");
    EXPECT(rig, !run_step(&r, ROWS_MAX, 1, 2), "a large step was replayed");
    EXPECT(rig, cuda_scratch(cuda, 32 * MIB), "no scratch");
    EXPECT(rig, run_step(&r, 5, 1, 1), "a large step has cost a recording");
    for (int i = 0; i < 3; i++) {
        EXPECT(rig, run_step(&r, STEP_RECORDED_ROWS - i, 100 + i, 2) == (i == 2),
               "step %d of the most rows that are recorded", i);
    }
    EXPECT(rig, run_step(&r, 5, 1, 1), "the largest recording has cost another");
    EXPECT(rig, cuda_scratch(cuda, 32 * MIB + 1), "no scratch");
    EXPECT(rig, cuda->scratch_bytes == 64 * MIB, "scratch of %zu bytes", cuda->scratch_bytes);
    EXPECT(rig, !run_step(&r, 5, 1, 1), "a step was replayed on scratch that is gone");
    recorder_close(&r);
}

/* More step sizes than there is room for: the latest are known, the first are not. */
static void the_least_recently_used_makes_room(struct rig *rig)
{
    enum { N_MOST = 8, PARTITIONS_MOST = 64, REPLAYED = 3 };
    struct recorder r;
    recorder_open(&r, rig);
    int n_sizes = 0, n_kept = 0;
    for (int partitions = 1; partitions <= PARTITIONS_MOST; partitions *= 2) {
        for (int n = 1; n <= N_MOST; n++) {
            for (int rows = 0; rows <= N_MOST; rows++, n_sizes++) {
                bool replayed = false;
                for (int i = 0; i < REPLAYED; i++) {
                    replayed = run_step(&r, n, rows, partitions);
                }
                EXPECT(rig, replayed, "size %d was not replayed", n_sizes);
                n_kept = n_recordings(&r) > n_kept ? n_recordings(&r) : n_kept;
                EXPECT(rig, run_step(&r, 1, 0, 1), "the size used most is gone at %d", n_sizes);
            }
        }
    }
    EXPECT(rig, n_sizes > n_kept && n_kept == 256, "%d sizes, %d recordings", n_sizes, n_kept);
    EXPECT(rig, run_step(&r, N_MOST, N_MOST, PARTITIONS_MOST), "the last size is gone");
    EXPECT(rig, !run_step(&r, 1, 1, 1), "the oldest size has its recording still");
    recorder_close(&r);
}

/* A size seen once is dropped before one with a graph. */
static void sizes_seen_once_go_first(struct rig *rig)
{
    struct recorder r;
    recorder_open(&r, rig);
    for (int i = 0; i < 3; i++) {
        run_step(&r, 7, 0, 1);
    }
    for (int partitions = 1; partitions <= 64; partitions *= 2) {
        for (int i = 0; i < 64; i++) {
            run_step(&r, 1 + i / 8, 1 + i % 8, partitions);
        }
    }
    EXPECT(rig, run_step(&r, 7, 0, 1), "the only graph has made room");
    recorder_close(&r);
}

#ifdef CUDA_EMULATED
/* The device cannot hold the graph: the step runs once more, and no other is recorded. */
static void a_refused_graph_is_launched(struct rig *rig)
{
    struct recorder r;
    recorder_open(&r, rig);
    setenv("EMULATED_GRAPHS", "refused", 1);
    for (int i = 0; i < 4; i++) {
        EXPECT(rig, !run_step(&r, 5, 1, 1), "a step was replayed");
        EXPECT(rig, r.n_again == (i == 1), "step %d ran again %d times", i, r.n_again);
    }
    unsetenv("EMULATED_GRAPHS");
    recorder_close(&r);
}
#endif

/* A group whose state is what `lost` says. The backend asks a communicator nothing else here. */
struct group {
    struct comm comm;
    bool lost;
};

static int group_failed(struct comm *comm, struct error *err)
{
    if (!reinterpret_cast<struct group *>(comm)->lost) return 0;
    return error_set(err, ERR_UNAVAILABLE, "a rank is gone");
}

/* Once a group is lost its recordings are destroyed and no step begins. */
static void a_lost_group_is_not_replayed(struct rig *rig)
{
    static const struct comm_device_ops device = {NULL, NULL, NULL, group_failed};
    struct group group = {{comm_single()->ops, 0, 2, &device, false}, false};
    struct backend_step none = {};
    struct error err = {};
    struct recorder r;
    bool replayed = false;
    recorder_open(&r, rig);
    backend_cuda_of(r.be)->comm = &group.comm;
    for (int i = 0; i < 3; i++) {
        EXPECT(rig, run_step(&r, 5, 1, 1) == (i == 2), "step %d", i);
    }
    group.lost = true;
    EXPECT(rig, r.be->ops->begin(r.be, &none, &replayed, &err) == ERR_UNAVAILABLE, "it began");
    EXPECT(rig, !replayed && n_recordings(&r) == 0, "%d recordings are left", n_recordings(&r));
    group.lost = false;
    EXPECT(rig, !run_step(&r, 5, 1, 1), "a recording of a lost group was replayed");
    group.lost = true;
    EXPECT(rig, !r.be->ops->read(r.be, r.x, 1), "reading from a lost group");
    EXPECT(rig, n_recordings(&r) == 0, "%d recordings are left", n_recordings(&r));
    recorder_close(&r);
}

int main(int argc, char **argv)
{
    struct rig rig;
    rig_open(&rig, argc, argv);
    recordings_outlive_larger_steps(&rig);
    the_least_recently_used_makes_room(&rig);
    sizes_seen_once_go_first(&rig);
#ifdef CUDA_EMULATED
    a_refused_graph_is_launched(&rig);
#endif
    a_lost_group_is_not_replayed(&rig);
    return rig_close(&rig);
}
