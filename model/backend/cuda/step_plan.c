/* The sizes of a step and where its inputs lie. */
#include "model/backend/cuda/step_plan.h"

#include <string.h>

int step_plan_pad(int n)
{
    int grain = n <= STEP_EXACT_ROWS ? 1 : 8;
    while (n > 8 * grain && n > STEP_EXACT_ROWS && n <= STEP_RECORDED_ROWS) {
        grain *= 2;
    }
    return (n + grain - 1) / grain * grain;
}

int step_plan_wanted_capacity(int n)
{
    int room = STEP_EXACT_ROWS;
    if (n <= 1 || n > STEP_RECORDED_ROWS) return step_plan_pad(n);
    while (room < n) {
        room *= 2;
    }
    return room;
}

int step_plan_pad_wanted(int n, int n_rows)
{
    int few = step_plan_wanted_capacity(n), all = step_plan_pad(n);
    if (all < n_rows && n_rows <= STEP_RECORDED_ROWS) all = n_rows;
    return few < all ? few : all;
}

static int path_blocks(const struct attention_lane *lane, int path)
{
    return (attention_path_end(lane, path) + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
}

/* The rows of a lane that attend through a path; rows of one path are neighbours. *first and *n are
 * those of the path before, or zeros for the first path. */
static void find_run(const struct attention_lane *lane, int path, int *first, int *n)
{
    *first += *n; /* in most trees the next path's rows follow */
    if (*first == lane->n_rows || attention_path(lane, *first) != path) *first = 0;
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

/* Counts those of a run's vectors that wide tiles take in a step of n_rows rows: all, or those
 * before a last few. */
static int wide_vectors(int n_rows, int n_vectors)
{
    if (n_rows <= STEP_SPLIT_ROWS) return 0;
    int rest = n_vectors % STEP_WIDE_QUERIES;
    return rest > STEP_WIDE_QUERIES / 2 ? n_vectors : n_vectors - rest;
}

static int tiles_of(int n_vectors, int width)
{
    return (n_vectors + width - 1) / width;
}

/* The tiles of a step, exactly; *n_wide of them are wide. */
static int count_tiles(const struct backend_step *step, int n_rows, int *n_wide)
{
    int group = group_heads(step->shape), n_tiles = 0;
    *n_wide = 0;
    for (int i = 0; i < step->n_lanes; i++) {
        const struct attention_lane *lane = &step->lanes[i];
        for (int path = 0, first = 0, n = 0; path < attention_n_paths(lane); path++) {
            find_run(lane, path, &first, &n);
            int wide = wide_vectors(n_rows, n * group);
            *n_wide += tiles_of(wide, STEP_WIDE_QUERIES);
            if (n * group > wide) n_tiles += tiles_of(n * group - wide, STEP_TILE_QUERIES);
        }
    }
    return n_tiles + *n_wide;
}

static int longest_lane(const struct backend_step *step)
{
    int longest = 1;
    for (int i = 0; i < step->n_lanes; i++) {
        int end = attention_end(&step->lanes[i]);
        if (end > longest) longest = end;
    }
    return longest;
}

static void size_of_step(struct step_size *size, const struct backend_step *step)
{
    int n_rows = step_plan_pad(step->n);
    int most_tiles = n_rows * tiles_of(group_heads(step->shape), STEP_TILE_QUERIES), n_wide;
    *size = (struct step_size){.n_rows = n_rows,
                               .n_wanted = step_plan_pad_wanted(step->n_rows, n_rows),
                               .n_partitions = 1,
                               .n_tiles = most_tiles,
                               .variant = step->variant};
    for (int i = 0; i < step->n_lanes; i++) {
        if (attention_n_copied(&step->lanes[i])) size->n_copies = n_rows;
    }
    if (n_rows <= STEP_SPLIT_ROWS || n_rows > STEP_RECORDED_ROWS) {
        int longest = longest_lane(step);
        while ((int64_t)size->n_partitions * ATTENTION_PARTITION < longest) {
            size->n_partitions *= 2;
        }
    }
    if (n_rows > STEP_SPLIT_ROWS) {
        int n_tiles = count_tiles(step, n_rows, &n_wide);
        if (2 * n_tiles <= most_tiles) size->n_tiles = (most_tiles + 1) / 2;
        if (4 * n_tiles <= most_tiles) size->n_tiles = (most_tiles + 3) / 4;
        if (n_rows > STEP_RECORDED_ROWS) size->n_tiles = n_tiles;
        size->has_wide = n_wide > 0;
    }
}

/* Reserves count elements of `size` bytes; every input begins at a multiple of 16 bytes. */
static size_t reserve(struct step_plan *plan, size_t count, size_t size)
{
    size_t at = plan->bytes;
    plan->bytes = (at + count * size + 15) / 16 * 16;
    return at;
}

/* A synthetic table alone has its rows made on the device, unless they are blocks. */
bool step_plan_has_embedding(const struct backend_step *step)
{
    if (!step->embedding || step->embedding_copy) return false;
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
    int n_blocks = 0;
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
    plan->tiles = reserve(plan, (size_t)plan->size.n_tiles, sizeof(struct step_tile));
    plan->copies = reserve(plan, (size_t)plan->size.n_copies, sizeof(struct step_copy));
    plan->cos = reserve(plan, n * width, sizeof(float));
    plan->sin = reserve(plan, n * width, sizeof(float));
    plan->query_scale = reserve(plan, step->query_scale ? n : 0, sizeof(float));
    plan->embedding =
        reserve(plan, step_plan_has_embedding(step) ? n * (size_t)step->embedding->n_cols : 0,
                sizeof(float));
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
    int n_shared = lane->tree && lane->tree->first_block < n ? lane->tree->first_block : n;
    memcpy(blocks, lane->blocks, (size_t)n_shared * sizeof *blocks);
    for (int i = n_shared; i < n; i++) {
        blocks[i] = attention_block(lane, path, i);
    }
    return n;
}

/* Writes the rows of a path's run, which becomes lane `index` of the device; the rows of the later
 * paths become the lanes after it. run: its rows, counted from the lane's first one, and its first
 * block. */
static void write_run(const struct writer *w, const struct attention_lane *lane, int path,
                      int index, struct step_lane run)
{
    struct step_lane *lanes = input_at(w, w->plan->lanes);
    int32_t *row_lane = input_at(w, w->plan->row_lane), *row_pos = input_at(w, w->plan->row_pos);
    int32_t *row_end = input_at(w, w->plan->row_end);
    int first = run.first_row, end = first + run.n_rows;
    lanes[index] = (struct step_lane){lane->first_row + first, run.n_rows,
                                      attention_position(lane, first), run.first_block};
    for (int r = first; r < end; r++) {
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
        for (int path = 0, first = 0, n = 0; path < attention_n_paths(lane); path++) {
            find_run(lane, path, &first, &n);
            write_run(w, lane, path, n_runs++, (struct step_lane){first, n, 0, n_blocks});
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

/* Returns the number of wide tiles. */
static int write_tiles(const struct writer *w, int n_runs, int *n_tiles)
{
    struct step_tile *tiles = input_at(w, w->plan->tiles);
    const struct step_lane *lanes = input_at(w, w->plan->lanes);
    int group = group_heads(w->step->shape), n = 0, n_wide = 0;
    for (int i = 0; i < n_runs; i++) {
        int end = wide_vectors(w->plan->size.n_rows, lanes[i].n_rows * group);
        for (int first = 0; first < end; first += STEP_WIDE_QUERIES) {
            tiles[n++] = (struct step_tile){i, first};
        }
    }
    n_wide = n;
    for (int i = 0; i < n_runs; i++) {
        int end = lanes[i].n_rows * group;
        for (int first = wide_vectors(w->plan->size.n_rows, end); first < end;
             first += STEP_TILE_QUERIES) {
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

void step_plan_write(const struct step_plan *plan, const struct backend_step *step, void *inputs)
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
    if (step_plan_has_embedding(step)) write_embedding(&w);
    if (step->features) write_features(&w);
    counts[STEP_COUNT_ROWS] = step->n;
    counts[STEP_COUNT_WANTED] = step->n_rows;
    counts[STEP_COUNT_LANES] = n_runs;
    counts[STEP_COUNT_TILES] = n_tiles;
    counts[STEP_COUNT_WIDE] = n_wide;
}
