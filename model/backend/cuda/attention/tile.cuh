/* Arguments of the kernels of attention, a tile's query vectors, and how far each of them sees. */
#pragma once

#include "model/backend/cuda/attention/layout.cuh"

struct attend_args {
    struct step_inputs inputs;
    const uint16_t *q, *kv;
    uint16_t *out;
    int n_heads, n_kv_heads, head_dim;
    float scale;   /* of the scores; with a softcap, over it */
    float softcap; /* 0: none */
    int window;    /* 0: none */
    bool sees_lane;
    /* Partials of [row][head][n_partitions]: values [E] each, and (max, sum). NULL: a block does
     * all partitions of its tile. */
    float *values;
    float2 *sums;
    int n_partitions;
};

/* A tile's vectors and how far they see. */
struct tile_view {
    struct step_lane lane;
    int first, end;  /* vectors of the lane and kv head */
    int begin, last; /* the lowest and the highest position seen */
    int group;       /* heads of the kv head */
    int kv_head;
};

/* The last position that a row at `position` sees. */
static __device__ __forceinline__ int last_seen(const attend_args *args, const step_lane *lane,
                                                int position)
{
    return args->sees_lane ? lane->position + lane->n_rows - 1 : position;
}

/* n_vectors: of a tile of the slot's kind. */
static __device__ __forceinline__ tile_view view_tile(const attend_args *args, int slot,
                                                      int kv_head, int n_vectors)
{
    tile_view view = {};
    struct step_tile tile = args->inputs.tiles[slot];
    view.lane = args->inputs.lanes[tile.lane];
    view.group = args->n_heads / args->n_kv_heads;
    view.first = tile.first;
    view.end = view.lane.n_rows * view.group;
    if (view.end > tile.first + n_vectors) view.end = tile.first + n_vectors;
    view.begin = first_seen(view.lane.position + view.first / view.group, args->window);
    view.last = last_seen(args, &view.lane, view.lane.position + (view.end - 1) / view.group);
    view.kv_head = kv_head;
    return view;
}

static __device__ __forceinline__ int vector_position(const tile_view *view, int vector)
{
    return view->lane.position + vector / view->group;
}

/* (row, head) of a vector as one index. */
static __device__ __forceinline__ size_t vector_index(const tile_view *view, int vector,
                                                      int n_heads)
{
    size_t row = static_cast<size_t>(view->lane.first_row + vector / view->group);
    return row * static_cast<size_t>(n_heads) +
           static_cast<size_t>(view->kv_head * view->group + vector % view->group);
}
/* total <- total merged with part, which comes after it: merge_span of the CPU backend. */
static __device__ __forceinline__ float4 merge_values(float4 total, float a, float4 part, float b)
{
    return make_float4(total.x * a + part.x * b, total.y * a + part.y * b, total.z * a + part.z * b,
                       total.w * a + part.w * b);
}

/* True if a vector of the tile sees positions of a partition; *is_first: it sees none of those
 * before. */
static __device__ __forceinline__ bool sees_partition(const attend_args *args,
                                                      const tile_view *view, int vector,
                                                      int partition, bool *is_first)
{
    int position = vector_position(view, vector);
    int first = first_seen(position, args->window) / ATTENTION_PARTITION;
    int last = last_seen(args, &view->lane, position);
    *is_first = partition == first;
    return vector < view->end && partition >= first && partition * ATTENTION_PARTITION <= last;
}

static __device__ __forceinline__ void store_out(uint16_t *to, float4 values, float sum)
{
    uint2 packed;
    packed.x = bf16_pair(values.x / sum, values.y / sum);
    packed.y = bf16_pair(values.z / sum, values.w / sum);
    *reinterpret_cast<uint2 *>(to) = packed;
}

/* many.cu: attention of a step that has wide tiles, but for the merge of
 * partials. */
void attention_prepare_many(struct backend_cuda *be);
void attention_launch_many(struct backend_cuda *be, const attend_args *args, int n_tiles);
