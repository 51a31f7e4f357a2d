#include "model/backend/cuda/step_plan.h"

#include <string.h>

int plan_bucket(int n)
{
    int step = n <= PLAN_EXACT_ROWS ? 1 : 8;
    return (n + step - 1) / step * step;
}

/* Positions behind a lane's last row. */
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

static void plan_key_of(struct plan_key *key, const struct backend_step *step)
{
    int longest = 1;
    for (int i = 0; i < step->n_lanes; i++) {
        int end = lane_end(&step->lanes[i]);
        if (end > longest) longest = end;
    }
    *key = (struct plan_key){plan_bucket(step->n), plan_bucket(step->n_rows), 1};
    while ((int64_t)key->n_partitions * ATTENTION_PARTITION < longest) {
        key->n_partitions *= 2;
    }
}

/* Takes room for count elements; parts begin at multiples of 16 bytes. */
static size_t place(struct plan_layout *layout, size_t count, size_t size)
{
    size_t at = layout->bytes;
    layout->bytes = (at + count * size + 15) / 16 * 16;
    return at;
}

/* A synthetic table's rows are made on the device. */
static bool has_rows(const struct backend_step *step)
{
    return step->embedding->data != NULL;
}

void plan_layout_init(struct plan_layout *layout, const struct backend_step *step)
{
    *layout = (struct plan_layout){0};
    plan_key_of(&layout->key, step);
    size_t n = (size_t)layout->key.n, half = (size_t)step->shape->head_dim / 2;
    int group = group_heads(step->shape), n_blocks = 0;
    size_t tiles = (size_t)((group + PLAN_TILE_QUERIES - 1) / PLAN_TILE_QUERIES);
    for (int i = 0; i < step->n_lanes; i++) {
        n_blocks += lane_blocks(&step->lanes[i]);
    }
    layout->counts = place(layout, 4, sizeof(int32_t));
    layout->lanes = place(layout, n, sizeof(struct plan_lane));
    layout->row_lane = place(layout, n, sizeof(int32_t));
    layout->row_pos = place(layout, n, sizeof(int32_t));
    layout->tokens = place(layout, n, sizeof(int32_t));
    layout->wanted = place(layout, (size_t)layout->key.n_rows, sizeof(int32_t));
    layout->tiles = place(layout, n * tiles, sizeof(struct plan_tile));
    layout->cos = place(layout, n * half, sizeof(float));
    layout->sin = place(layout, n * half, sizeof(float));
    layout->embedding =
        place(layout, has_rows(step) ? n * (size_t)step->embedding->n_cols : 0, sizeof(float));
    layout->blocks = place(layout, (size_t)n_blocks, sizeof(int32_t));
}

/* What is being written. */
struct writer {
    const struct plan_layout *layout;
    const struct backend_step *step;
    uint8_t *plan;
};

static void *part(const struct writer *w, size_t offset)
{
    return w->plan + offset;
}

static void write_lanes(const struct writer *w)
{
    struct plan_lane *lanes = part(w, w->layout->lanes);
    int32_t *row_lane = part(w, w->layout->row_lane), *row_pos = part(w, w->layout->row_pos);
    int32_t *blocks = part(w, w->layout->blocks), *tokens = part(w, w->layout->tokens);
    int32_t n_blocks = 0;
    for (int i = 0; i < w->step->n_lanes; i++) {
        const struct attention_lane *lane = &w->step->lanes[i];
        int n = lane_blocks(lane);
        lanes[i] = (struct plan_lane){lane->first_row, lane->n_rows, lane->position, n_blocks};
        memcpy(blocks + n_blocks, lane->blocks, (size_t)n * sizeof *blocks);
        n_blocks += n;
        for (int r = 0; r < lane->n_rows; r++) {
            row_lane[lane->first_row + r] = i;
            row_pos[lane->first_row + r] = lane->position + r;
        }
    }
    memcpy(tokens, w->step->tokens, (size_t)w->step->n * sizeof *tokens);
    for (int row = w->step->n; row < w->layout->key.n; row++) {
        tokens[row] = 0;
        row_lane[row] = -1;
        row_pos[row] = 0;
    }
}

static int write_tiles(const struct writer *w)
{
    struct plan_tile *tiles = part(w, w->layout->tiles);
    int group = group_heads(w->step->shape), n_tiles = 0;
    for (int i = 0; i < w->step->n_lanes; i++) {
        int n = w->step->lanes[i].n_rows * group;
        for (int first = 0; first < n; first += PLAN_TILE_QUERIES) {
            tiles[n_tiles++] = (struct plan_tile){i, first};
        }
    }
    return n_tiles;
}

/* rows[n][width], and zeros up to the bucket. */
static void write_rows(const struct writer *w, size_t offset, const float *rows, int width)
{
    size_t n = (size_t)w->step->n * (size_t)width;
    size_t all = (size_t)w->layout->key.n * (size_t)width;
    float *out = part(w, offset);
    memcpy(out, rows, n * sizeof *out);
    memset(out + n, 0, (all - n) * sizeof *out);
}

static void write_embedding(const struct writer *w)
{
    const struct weight *table = w->step->embedding;
    size_t dim = (size_t)table->n_cols;
    float *out = part(w, w->layout->embedding);
    for (int row = 0; row < w->step->n; row++) {
        weight_read_f32(table, w->step->tokens[row], 0, table->n_cols, out + (size_t)row * dim);
    }
    memset(out + (size_t)w->step->n * dim, 0,
           (size_t)(w->layout->key.n - w->step->n) * dim * sizeof *out);
}

int plan_write(const struct plan_layout *layout, const struct backend_step *step, void *plan)
{
    const struct writer w = {layout, step, plan};
    int32_t *wanted = part(&w, layout->wanted), *counts = part(&w, layout->counts);
    int half = step->shape->head_dim / 2, n_tiles = write_tiles(&w);
    write_lanes(&w);
    for (int i = 0; i < layout->key.n_rows; i++) {
        wanted[i] = i < step->n_rows ? step->rows[i] : 0;
    }
    write_rows(&w, layout->cos, step->cos, half);
    write_rows(&w, layout->sin, step->sin, half);
    if (has_rows(step)) write_embedding(&w);
    counts[0] = step->n;
    counts[1] = step->n_rows;
    counts[2] = step->n_lanes;
    counts[3] = n_tiles;
    return n_tiles;
}
