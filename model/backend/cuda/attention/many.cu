/* Attention of steps with many rows: tiles of 64 query vectors where a lane has so many, and tiles
 * of 16 for the others, in one launch. */
#include "base/limits.h"
#include "model/backend/cuda/attention/few.cuh"
#include "model/backend/cuda/attention/wide.cuh"

/* Shared memory of a block, whatever its tile. */
template <typename FORM> static constexpr size_t many_bytes()
{
    size_t wide = FORM::SHARED_BYTES;
    static_assert(FORM::SHARED_BYTES <= 99 << 10, "devices from sm_80 on have no more");
    return wide > sizeof(attend_shared) ? wide : sizeof(attend_shared);
}

/* Grid: kv heads, then tile slots; partitions (1 when a block does them all). The last tiles of a
 * prompt start first, because they see the most positions. */
template <typename FORM>
static __global__ void __launch_bounds__(ATTEND_THREADS, 2) attend_many(attend_args args)
{
    CUDA_DYNAMIC_SHARED(uint8_t, shared);
    int n_slots = static_cast<int>(gridDim.x) / args.n_kv_heads;
    int slot = n_slots - 1 - static_cast<int>(blockIdx.x) / args.n_kv_heads;
    int kv_head = static_cast<int>(blockIdx.x) % args.n_kv_heads;
    int partition = static_cast<int>(blockIdx.y);
    grid_dependency_launch();
    if (slot < args.inputs.counts[STEP_COUNT_WIDE]) {
        attend_wide<FORM>(&args, slot, kv_head, partition, shared);
    } else {
        attend_few<FORM::WIDTH, FORM::EXACT>(&args, slot, kv_head, partition,
                                             reinterpret_cast<attend_shared *>(shared));
    }
}

template <typename FORM> static void prepare_form(struct backend_cuda *be)
{
    cuda_prepare(be, attend_many<FORM>, many_bytes<FORM>());
}

void attention_prepare_many(struct backend_cuda *be)
{
    prepare_form<wide_form<HEAD_DIM_MAX, false>>(be);
    prepare_form<wide_form<128, false>>(be);
    prepare_form<wide_form<128, true>>(be);
    prepare_form<wide_form<64, true>>(be);
}

template <typename FORM>
static void launch_form(struct backend_cuda *be, const attend_args *args, int n_tiles)
{
    dim3 grid(static_cast<unsigned>(n_tiles * args->n_kv_heads),
              args->values ? static_cast<unsigned>(args->n_partitions) : 1);
    cuda_launch(be, "attention", attend_many<FORM>, grid, dim3(ATTEND_THREADS), many_bytes<FORM>(),
                *args);
}

void attention_launch_many(struct backend_cuda *be, const attend_args *args, int n_tiles)
{
    if (args->head_dim == 64) {
        launch_form<wide_form<64, true>>(be, args, n_tiles);
    } else if (args->head_dim == 128) {
        launch_form<wide_form<128, true>>(be, args, n_tiles);
    } else if (args->head_dim < 128) {
        launch_form<wide_form<128, false>>(be, args, n_tiles);
    } else {
        launch_form<wide_form<HEAD_DIM_MAX, false>>(be, args, n_tiles);
    }
}
