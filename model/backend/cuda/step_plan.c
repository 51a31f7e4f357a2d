/* The sizes of a step and where its inputs lie. */
#include "model/backend/cuda/step_plan.h"

#include <string.h>

int step_plan_pad(int n)
{
    int step = n <= STEP_EXACT_ROWS ? 1 : 8;
    return (n + step - 1) / step * step;
}

static int path_blocks(const struct attention_lane *lane, int path)
{
    return (attention_path_end(lane, path) + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

/* The rows of a lane that attend through a path; rows of one path are neighbours. */
static void find_run(const struct attention_lane *lane, int path, int *first, int *n)
{
    *first = 0;
    while (attention_path(lane, *first) != path) {
        ++*first;
    }
    *n = 1;
    while (*first + *n < lane->n_rows && attention_path(lane, *first + *n) == path) {
        ++*n;
    }
}

static int group_heads(const struct attention_shape *shape)
{
    return shape->n_heads / shape->n_kv_heads;
}

static void size_of_step(struct step_size *size, const struct backend_step *step)
{
    int longest = 1;
    *size = (struct step_size){step_plan_pad(step->n), step_plan_pad(step->n_rows), 1, 0,
                               step->variant};
    for (int i = 0; i < step->n_lanes; i++) {
        int end = attention_end(&step->lanes[i]);
        if (end > longest) longest = end;
        if (attention_n_copied(&step->lanes[i])) size->n_copies = size->n_rows;
    }
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

/* False without a table, and for a synthetic one alone, whose rows are made on the device unless
 * they are blocks. */
static bool has_embedding_rows(const struct backend_step *step)
{
    if (!step->embedding) return false;
    return step->embedding->data != NULL || step->embedding->dtype == DTYPE_BLOCKS ||
           step->look_ahead != NULL;
}

/* Cosines of a row. */
static int angles_of(const struct backend_step *step)
{
    return step->n_ropes * (step->shape->head_dim / 2);
}

void step_plan_init(struct step_plan *plan, const struct backend_step *step)
{
    *plan = (struct step_plan){0};
    size_of_step(&plan->size, step);
    size_t n = (size_t)plan->size.n_rows, width = (size_t)angles_of(step);
    int group = group_heads(step->shape), n_blocks = 0;
    size_t tiles = (size_t)((group + STEP_TILE_QUERIES - 1) / STEP_TILE_QUERIES);
    for (int i = 0; i < step->n_lanes; i++) {
        for (int path = 0; path < attention_n_paths(&step->lanes[i]); path++) {
            n_blocks += path_blocks(&step->lanes[i], path);
        }
    }
    plan->counts = reserve(plan, STEP_COUNTS, sizeof(int32_t));
    plan->lanes = reserve(plan, n, sizeof(struct step_lane));
    plan->row_lane = reserve(plan, n, sizeof(int32_t));
    plan->row_pos = reserve(plan, n, sizeof(int32_t));
    plan->row_end = reserve(plan, n, sizeof(int32_t));
    plan->tokens = reserve(plan, n, sizeof(int32_t));
    plan->wanted = reserve(plan, (size_t)plan->size.n_wanted, sizeof(int32_t));
    plan->tiles = reserve(plan, n * tiles, sizeof(struct step_tile));
    plan->copies = reserve(plan, (size_t)plan->size.n_copies, sizeof(struct step_copy));
    plan->cos = reserve(plan, n * width, sizeof(float));
    plan->sin = reserve(plan, n * width, sizeof(float));
    plan->query_scale = reserve(plan, step->query_scale ? n : 0, sizeof(float));
    plan->embedding = reserve(
        plan, has_embedding_rows(step) ? n * (size_t)step->embedding->n_cols : 0, sizeof(float));
    plan->features =
        reserve(plan, step->features ? n * (size_t)step->feature_width : 0, sizeof(uint16_t));
    plan->recycled = reserve(plan, step->features ? n : 0, sizeof(int32_t));
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

/* Writes the table of a path as far as the path reaches; returns the number of its blocks. */
static int write_table(const struct attention_lane *lane, int path, int32_t *blocks)
{
    int n = path_blocks(lane, path);
    for (int i = 0; i < n; i++) {
        blocks[i] = attention_block(lane, path, i);
    }
    return n;
}

/* Writes the rows of a path's run, which becomes lane `index` of the device; the rows of the later
 * paths become the lanes after it. */
static void write_run(const struct writer *w, const struct attention_lane *lane, int path,
                      int index, int first_block)
{
    struct step_lane *lanes = input_at(w, w->plan->lanes);
    int32_t *row_lane = input_at(w, w->plan->row_lane), *row_pos = input_at(w, w->plan->row_pos);
    int32_t *row_end = input_at(w, w->plan->row_end);
    int first, n;
    find_run(lane, path, &first, &n);
    lanes[index] = (struct step_lane){lane->first_row + first, n, attention_position(lane, first),
                                      first_block};
    for (int r = first; r < first + n; r++) {
        row_lane[lane->first_row + r] = index;
        row_pos[lane->first_row + r] = attention_position(lane, r);
        row_end[lane->first_row + r] = index + attention_end_path(lane, r) - path;
    }
}

/* Returns the number of runs. */
static int write_lanes(const struct writer *w)
{
    int32_t *row_lane = input_at(w, w->plan->row_lane), *row_pos = input_at(w, w->plan->row_pos);
    int32_t *blocks = input_at(w, w->plan->blocks), *tokens = input_at(w, w->plan->tokens);
    int32_t *row_end = input_at(w, w->plan->row_end);
    int n_blocks = 0, n_runs = 0;
    for (int i = 0; i < w->step->n_lanes; i++) {
        const struct attention_lane *lane = &w->step->lanes[i];
        for (int path = 0; path < attention_n_paths(lane); path++) {
            write_run(w, lane, path, n_runs++, n_blocks);
            n_blocks += write_table(lane, path, blocks + n_blocks);
        }
    }
    memcpy(tokens, w->step->tokens, (size_t)w->step->n * sizeof *tokens);
    for (int row = w->step->n; row < w->plan->size.n_rows; row++) {
        tokens[row] = 0;
        row_lane[row] = -1;
        row_pos[row] = row_end[row] = 0;
    }
    return n_runs;
}

static void write_copies(const struct writer *w)
{
    struct step_copy *copies = input_at(w, w->plan->copies);
    memset(copies, 0, (size_t)w->plan->size.n_copies * sizeof *copies);
    for (int i = 0; i < w->step->n_lanes; i++) {
        const struct attention_lane *lane = &w->step->lanes[i];
        int n = attention_n_copied(lane);
        for (int path = 1; n && path < attention_n_paths(lane); path++) {
            int index = lane->tree->first_block;
            *copies++ = (struct step_copy){attention_block(lane, 0, index),
                                           attention_block(lane, path, index), n};
        }
    }
}

/* The vectors of a run that wide tiles take: all, or those before a last few. */
static int wide_vectors(const struct writer *w, int n_vectors)
{
    if (w->plan->size.n_rows <= STEP_RECORDED_ROWS) return 0;
    int rest = n_vectors % STEP_WIDE_QUERIES;
    return rest > STEP_WIDE_QUERIES / 2 ? n_vectors : n_vectors - rest;
}

/* Returns the number of wide tiles. */
static int write_tiles(const struct writer *w, int n_runs, int *n_tiles)
{
    struct step_tile *tiles = input_at(w, w->plan->tiles);
    const struct step_lane *lanes = input_at(w, w->plan->lanes);
    int group = group_heads(w->step->shape), n = 0, n_wide = 0;
    for (int i = 0; i < n_runs; i++) {
        int end = wide_vectors(w, lanes[i].n_rows * group);
        for (int first = 0; first < end; first += STEP_WIDE_QUERIES) {
            tiles[n++] = (struct step_tile){i, first};
        }
    }
    n_wide = n;
    for (int i = 0; i < n_runs; i++) {
        int end = lanes[i].n_rows * group;
        for (int first = wide_vectors(w, end); first < end; first += STEP_TILE_QUERIES) {
            tiles[n++] = (struct step_tile){i, first};
        }
    }
    *n_tiles = n;
    return n_wide;
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
        backend_step_embed(w->step, row, out + (size_t)row * dim);
    }
    memset(out + (size_t)w->step->n * dim, 0,
           (size_t)(w->plan->size.n_rows - w->step->n) * dim * sizeof *out);
}

static void write_features(const struct writer *w)
{
    const struct backend_step *step = w->step;
    size_t width = (size_t)step->feature_width, n = (size_t)step->n;
    size_t n_padding = (size_t)w->plan->size.n_rows - n;
    uint16_t *features = input_at(w, w->plan->features);
    int32_t *recycled = input_at(w, w->plan->recycled);
    memcpy(features, step->features, n * width * sizeof *features);
    memset(features + n * width, 0, n_padding * width * sizeof *features);
    memcpy(recycled, step->recycled, n * sizeof *recycled);
    memset(recycled + n, 0, n_padding * sizeof *recycled);
}

int step_plan_write(const struct step_plan *plan, const struct backend_step *step, void *inputs)
{
    const struct writer w = {plan, step, inputs};
    int32_t *wanted = input_at(&w, plan->wanted), *counts = input_at(&w, plan->counts);
    int n_runs = write_lanes(&w);
    int n_tiles, n_wide = write_tiles(&w, n_runs, &n_tiles);
    write_copies(&w);
    for (int i = 0; i < plan->size.n_wanted; i++) {
        wanted[i] = i < step->n_rows ? step->rows[i] : 0;
    }
    write_rows(&w, plan->cos, step->cos, angles_of(step));
    write_rows(&w, plan->sin, step->sin, angles_of(step));
    if (step->query_scale) write_rows(&w, plan->query_scale, step->query_scale, 1);
    if (has_embedding_rows(step)) write_embedding(&w);
    if (step->features) write_features(&w);
    counts[STEP_COUNT_ROWS] = step->n;
    counts[STEP_COUNT_WANTED] = step->n_rows;
    counts[STEP_COUNT_LANES] = n_runs;
    counts[STEP_COUNT_TILES] = n_tiles;
    counts[STEP_COUNT_WIDE] = n_wide;
    return n_tiles;
}
