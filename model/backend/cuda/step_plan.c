/* The sizes of a step and where its inputs lie. */
#include "model/backend/cuda/step_plan.h"

#include <string.h>

int step_plan_pad(int n)
{
    int step = n <= STEP_EXACT_ROWS ? 1 : 8;
    return (n + step - 1) / step * step;
}

/* The position after a lane's last row. */
static int lane_end(const struct attention_lane *lane)
{
    return lane->position + lane->n_rows;
}

static int lane_blocks(const struct attention_lane *lane)
{
    return (lane_end(lane) + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

static int group_heads(const struct attention_shape *shape)
{
    return shape->n_heads / shape->n_kv_heads;
}

static void size_of_step(struct step_size *size, const struct backend_step *step)
{
    int longest = 1;
    for (int i = 0; i < step->n_lanes; i++) {
        int end = lane_end(&step->lanes[i]);
        if (end > longest) longest = end;
    }
    *size = (struct step_size){step_plan_pad(step->n), step_plan_pad(step->n_rows), 1};
    while ((int64_t)size->n_partitions * ATTENTION_PARTITION < longest) {
        size->n_partitions *= 2;
    }
}

/* Reserves count elements of `size` bytes; every input begins at a multiple of 16 bytes. */
static size_t reserve(struct step_plan *plan, size_t count, size_t size)
{
    size_t at = plan->bytes;
    plan->bytes = (at + count * size + 15) / 16 * 16;
    return at;
}

/* False for a synthetic table, whose rows are made on the device. */
static bool has_embedding_rows(const struct backend_step *step)
{
    return step->embedding->data != NULL;
}

void step_plan_init(struct step_plan *plan, const struct backend_step *step)
{
    *plan = (struct step_plan){0};
    size_of_step(&plan->size, step);
    size_t n = (size_t)plan->size.n_rows, half = (size_t)step->shape->head_dim / 2;
    int group = group_heads(step->shape), n_blocks = 0;
    size_t tiles = (size_t)((group + STEP_TILE_QUERIES - 1) / STEP_TILE_QUERIES);
    for (int i = 0; i < step->n_lanes; i++) {
        n_blocks += lane_blocks(&step->lanes[i]);
    }
    plan->counts = reserve(plan, STEP_COUNTS, sizeof(int32_t));
    plan->lanes = reserve(plan, n, sizeof(struct step_lane));
    plan->row_lane = reserve(plan, n, sizeof(int32_t));
    plan->row_pos = reserve(plan, n, sizeof(int32_t));
    plan->tokens = reserve(plan, n, sizeof(int32_t));
    plan->wanted = reserve(plan, (size_t)plan->size.n_wanted, sizeof(int32_t));
    plan->tiles = reserve(plan, n * tiles, sizeof(struct step_tile));
    plan->cos = reserve(plan, n * half, sizeof(float));
    plan->sin = reserve(plan, n * half, sizeof(float));
    plan->embedding = reserve(
        plan, has_embedding_rows(step) ? n * (size_t)step->embedding->n_cols : 0, sizeof(float));
    plan->blocks = reserve(plan, (size_t)n_blocks, sizeof(int32_t));
}

/* A step, what was decided about it, and the memory its inputs are written to. */
struct writer {
    const struct step_plan *plan;
    const struct backend_step *step;
    uint8_t *inputs;
};

static void *input_at(const struct writer *w, size_t offset)
{
    return w->inputs + offset;
}

static void write_lanes(const struct writer *w)
{
    struct step_lane *lanes = input_at(w, w->plan->lanes);
    int32_t *row_lane = input_at(w, w->plan->row_lane), *row_pos = input_at(w, w->plan->row_pos);
    int32_t *blocks = input_at(w, w->plan->blocks), *tokens = input_at(w, w->plan->tokens);
    int32_t n_blocks = 0;
    for (int i = 0; i < w->step->n_lanes; i++) {
        const struct attention_lane *lane = &w->step->lanes[i];
        int n = lane_blocks(lane);
        lanes[i] = (struct step_lane){lane->first_row, lane->n_rows, lane->position, n_blocks};
        memcpy(blocks + n_blocks, lane->blocks, (size_t)n * sizeof *blocks);
        n_blocks += n;
        for (int r = 0; r < lane->n_rows; r++) {
            row_lane[lane->first_row + r] = i;
            row_pos[lane->first_row + r] = lane->position + r;
        }
    }
    memcpy(tokens, w->step->tokens, (size_t)w->step->n * sizeof *tokens);
    for (int row = w->step->n; row < w->plan->size.n_rows; row++) {
        tokens[row] = 0;
        row_lane[row] = -1;
        row_pos[row] = 0;
    }
}

static int write_tiles(const struct writer *w)
{
    struct step_tile *tiles = input_at(w, w->plan->tiles);
    int group = group_heads(w->step->shape), n_tiles = 0;
    for (int i = 0; i < w->step->n_lanes; i++) {
        int n = w->step->lanes[i].n_rows * group;
        for (int first = 0; first < n; first += STEP_TILE_QUERIES) {
            tiles[n_tiles++] = (struct step_tile){i, first};
        }
    }
    return n_tiles;
}

/* Writes rows[n][width], and zeros for padding. */
static void write_rows(const struct writer *w, size_t offset, const float *rows, int width)
{
    size_t n = (size_t)w->step->n * (size_t)width;
    size_t all = (size_t)w->plan->size.n_rows * (size_t)width;
    float *out = input_at(w, offset);
    memcpy(out, rows, n * sizeof *out);
    memset(out + n, 0, (all - n) * sizeof *out);
}

static void write_embedding(const struct writer *w)
{
    const struct weight *table = w->step->embedding;
    size_t dim = (size_t)table->n_cols;
    float *out = input_at(w, w->plan->embedding);
    for (int row = 0; row < w->step->n; row++) {
        weight_read_f32(table, w->step->tokens[row], 0, table->n_cols, out + (size_t)row * dim);
    }
    memset(out + (size_t)w->step->n * dim, 0,
           (size_t)(w->plan->size.n_rows - w->step->n) * dim * sizeof *out);
}

int step_plan_write(const struct step_plan *plan, const struct backend_step *step, void *inputs)
{
    const struct writer w = {plan, step, inputs};
    int32_t *wanted = input_at(&w, plan->wanted), *counts = input_at(&w, plan->counts);
    int half = step->shape->head_dim / 2, n_tiles = write_tiles(&w);
    write_lanes(&w);
    for (int i = 0; i < plan->size.n_wanted; i++) {
        wanted[i] = i < step->n_rows ? step->rows[i] : 0;
    }
    write_rows(&w, plan->cos, step->cos, half);
    write_rows(&w, plan->sin, step->sin, half);
    if (has_embedding_rows(step)) write_embedding(&w);
    counts[STEP_COUNT_ROWS] = step->n;
    counts[STEP_COUNT_WANTED] = step->n_rows;
    counts[STEP_COUNT_LANES] = step->n_lanes;
    counts[STEP_COUNT_TILES] = n_tiles;
    return n_tiles;
}
