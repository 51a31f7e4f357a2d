/* Attention on the CPU over block tables.
 *
 * A row at position p sees positions 0..p in partitions of 256 absolute positions. Each partition
 * is computed alone (scores, max, exp, weighted sum), then they are merged in ascending order. What
 * the blocks hold past p is never used: scores there become -inf, and where the number of positions
 * is odd, the V of the missing half of the last pair is replaced by zero. So neither a rejected
 * guess nor a former owner of the block has any effect.
 *
 * Through a window of W positions the row sees p - W + 1..p only. It begins with the block of the
 * first of them, whatever else is in the step; scores before it in that block become -inf, which
 * makes weights of zero. Blocks and partitions before are not read.
 *
 * Where the rows of a lane see each other, p is the position of the lane's last row for all of
 * them, but for the beginning of the window.
 *
 * Up to CPU_QUERIES queries (rows times heads of one kv head) go over the KV together. Partitions
 * that all of them see whole are read once for all; partitions before and after them go row by
 * row. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/backend/cpu/internal.h"
#include "model/backend/cpu/kv.h"
#include "model/numerics/numerics.h"
#include "model/numerics/variants.h"

enum { PARTITION_BLOCKS = ATTENTION_PARTITION / KV_BLOCK_TOKENS, ITEMS_PER_MEMBER = 4 };

struct attend_job {
    struct backend_cpu *cpu;
    const struct attention_shape *shape;
    const struct backend_step *step;
    const uint16_t *q, *kv;
    uint16_t *out;
    float scale;     /* of the scores, or of those that softcap has made */
    float softcap;   /* 0: none */
    float cap_scale; /* of the scores before it, over softcap */
    int window;      /* 0: none */
    bool sees_lane;
    int n_queries; /* of a tile, at most */
    int n_tiles;
    bool is_shared; /* members help each other */
};

/* Queries that go over the KV together: query r * n_heads + h is head first_head + h of row
 * first_row + r. */
struct tile {
    const struct attention_lane *lane;
    int first_row, n_rows; /* of the step */
    int kv_head, first_head, n_heads;
};

/* One member's memory. */
struct attend_scratch {
    float max[CPU_QUERIES], sum[CPU_QUERIES];           /* so far */
    float part_max[CPU_QUERIES], part_sum[CPU_QUERIES]; /* of one partition */
    float *acc, *part_acc;                              /* [CPU_QUERIES][E] */
    float *scores;                                      /* [CPU_QUERIES][ATTENTION_PARTITION] */
    uint16_t *weights;                                  /* the same as bf16 */
    uint16_t *q;                                        /* [CPU_QUERIES][E] */
};

static void scratch_divide(struct attend_scratch *s, float *floats)
{
    s->acc = floats;
    s->part_acc = s->acc + CPU_QUERIES * HEAD_DIM_MAX;
    s->scores = s->part_acc + CPU_QUERIES * HEAD_DIM_MAX;
    s->weights = (uint16_t *)(s->scores + CPU_QUERIES * ATTENTION_PARTITION);
    s->q = s->weights + CPU_QUERIES * ATTENTION_PARTITION;
}

/* A partition as queries first_query .. + n_queries of a tile see it. */
struct span {
    const struct attention_lane *lane;
    int path, first_block; /* of the lane's path; n_after more blocks follow the partition's */
    int n, n_after;        /* positions from first_block on, blocks */
    int n_hidden;          /* leading positions of them that the queries do not see */
    int kv_head;
    int first_query, n_queries;
};

/* How far the prefetch into the first-level cache runs ahead of the reading, and how much farther
 * it gets while no KV is read. */
enum { AHEAD_BYTES = 12 << 10, AHEAD_PARTS_MAX = 4, IDLE_BYTES = 16 << 10 };

/* The KV parts of a span in the order in which they are read: the K-parts, then the V-parts. */
struct span_parts {
    const uint16_t *at[2 * PARTITION_BLOCKS];
    const uint16_t *ahead[2 * PARTITION_BLOCKS]; /* prefetched while that part is read */
    const uint16_t *far[2 * PARTITION_BLOCKS];   /* the same, into the second-level cache */
    const uint16_t *idle[PARTITION_BLOCKS];      /* [n_idle] prefetched between K and V */
    int n_blocks, n_idle;
};

static int parts_of(size_t bytes, const struct attention_shape *shape, int max)
{
    int n = (int)(bytes / (kv_part_elements(shape) * sizeof(uint16_t)));
    return n < 1 ? 1 : n > max ? max : n;
}

/* Keeps the memory busy all the time. Parts are prefetched in the order in which they are read,
 * from the first of `soon` that is not there yet: one for each part of K that is read, n_idle of
 * them while scores become weights, and therefore fewer than one for each part of V. */
static void spread_parts(struct span_parts *parts, const uint16_t *const *soon,
                         const uint16_t **beside)
{
    int n = parts->n_blocks, idle = parts->n_idle;
    memcpy(beside, soon, (size_t)n * sizeof *soon);
    memcpy(parts->idle, soon + n, (size_t)idle * sizeof *soon);
    for (int b = 0, next = n + idle; b < n; b++) {
        bool is_due = next - n - idle < (b + 1) * (n - idle) / n;
        beside[n + b] = is_due ? soon[next++] : parts->at[n + b];
    }
}

/* In one hop, the prefetch runs ahead by some parts. In two, it runs ahead by a partition, and the
 * second hop by one part. */
static void list_parts(const struct attend_job *job, const struct span *span,
                       struct span_parts *parts)
{
    const struct attention_shape *shape = job->shape;
    int n = (span->n + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    const uint16_t *soon[4 * PARTITION_BLOCKS]; /* K, V, and those of the next partition */
    for (int b = 0; b < 2 * n; b++) {           /* at the end: what is there already */
        bool is_next = b >= n;
        int index = span->first_block + (is_next && b - n >= span->n_after ? n - 1 : b);
        int block = attention_block(span->lane, span->path, index);
        struct cpu_kv_place place = cpu_kv_at(shape, block, span->kv_head);
        soon[b + (is_next ? n : 0)] = job->kv + place.k;
        soon[b + n + (is_next ? n : 0)] = job->kv + place.v;
    }
    parts->n_blocks = n;
    parts->n_idle = n < PARTITION_BLOCKS ? 0 : parts_of(IDLE_BYTES, shape, PARTITION_BLOCKS / 2);
    memcpy(parts->at, soon, 2 * (size_t)n * sizeof *soon);
    if (kernels_two_hops()) {
        memcpy(parts->ahead, soon + 1, 2 * (size_t)n * sizeof *soon);
        spread_parts(parts, soon + 2 * n, parts->far);
    } else {
        int lead = parts_of(AHEAD_BYTES, shape, AHEAD_PARTS_MAX);
        memcpy(parts->far, soon, 2 * (size_t)n * sizeof *soon);
        spread_parts(parts, soon + (lead < 2 * n ? lead : 2 * n), parts->ahead);
    }
}

static void hide(float *scores, int first, int end)
{
    for (int i = first; i < end; i++) {
        scores[i] = -INFINITY;
    }
}

static void score_span(const struct attend_job *job, const struct span *span,
                       const struct span_parts *parts, struct attend_scratch *s)
{
    const struct kv_parts k = {parts->at, parts->ahead, parts->far, parts->n_blocks};
    int head_dim = job->shape->head_dim, n_padded = parts->n_blocks * KV_BLOCK_TOKENS;
    float *scores = s->scores + (size_t)span->first_query * ATTENTION_PARTITION;
    const struct query_rows q = {s->q + (size_t)span->first_query * (size_t)head_dim,
                                 (size_t)head_dim, span->n_queries};
    job->cpu->kernels->scores(&q, &k, head_dim, scores, ATTENTION_PARTITION);
    for (int i = 0; i < span->n_queries; i++) {
        if (job->softcap != 0) {
            job->cpu->kernels->softcap(scores + i * ATTENTION_PARTITION, n_padded, job->cap_scale,
                                       job->softcap);
        }
        hide(scores + i * ATTENTION_PARTITION, 0, span->n_hidden);
        hide(scores + i * ATTENTION_PARTITION, span->n, n_padded);
    }
}

/* Turns scores into weights. The queries divide among them what is prefetched during that time. */
static void weigh_span(const struct attend_job *job, const struct span *span,
                       const struct span_parts *parts, struct attend_scratch *s)
{
    const struct kernels *kernels = job->cpu->kernels;
    int n_padded = parts->n_blocks * KV_BLOCK_TOKENS, n_queries = span->n_queries;
    int part_lines = job->shape->head_dim * KV_BLOCK_TOKENS / (64 / (int)sizeof(uint16_t));
    int n_lines = parts->n_idle * part_lines;
    for (int q = 0; q < n_queries; q++) {
        int i = span->first_query + q, line = q * n_lines / n_queries;
        const float *scores = s->scores + (size_t)i * ATTENTION_PARTITION;
        const struct kv_ahead ahead = {parts->idle, part_lines, line,
                                       (q + 1) * n_lines / n_queries - line};
        s->part_max[i] = kernels->max(scores, n_padded) * job->scale;
        s->part_sum[i] = kernels->exp_sum(scores, job->scale, s->part_max[i], n_padded,
                                          s->weights + (size_t)i * ATTENTION_PARTITION, &ahead);
    }
}

/* The last position where their number is odd: the other half of its pair counts as zero. */
static void add_odd(const struct attend_job *job, const struct query_rows *weights,
                    const uint16_t *v, float *acc)
{
    _Alignas(64) uint16_t pair[2 * HEAD_DIM_MAX];
    const uint16_t *at = pair;
    const struct kv_parts one = {&at, &at, &at, 1};
    int head_dim = job->shape->head_dim;
    for (int e = 0; e < head_dim; e++) {
        pair[2 * e] = v[2 * e];
        pair[2 * e + 1] = 0;
    }
    job->cpu->kernels->weighted_sum(weights, &one, 1, head_dim, acc, (size_t)head_dim);
}

/* acc[first_query ..] = the weighted sums of the span. */
static void sum_span(const struct attend_job *job, const struct span *span,
                     const struct span_parts *parts, const struct attend_scratch *s, float *acc)
{
    const struct kernels *kernels = job->cpu->kernels;
    int head_dim = job->shape->head_dim;
    int n_whole = span->n / KV_BLOCK_TOKENS, rest = span->n % KV_BLOCK_TOKENS;
    const uint16_t *const *v = parts->at + parts->n_blocks;
    const uint16_t *const *ahead = parts->ahead + parts->n_blocks;
    const uint16_t *const *far = parts->far + parts->n_blocks;
    const struct kv_parts whole = {v, ahead, far, n_whole};
    const struct kv_parts last = {v + n_whole, ahead + n_whole, far + n_whole, 1};
    struct query_rows weights = {s->weights + (size_t)span->first_query * ATTENTION_PARTITION,
                                 ATTENTION_PARTITION, span->n_queries};
    acc += (size_t)span->first_query * (size_t)head_dim;
    memset(acc, 0, (size_t)span->n_queries * (size_t)head_dim * sizeof *acc);
    if (n_whole) {
        kernels->weighted_sum(&weights, &whole, KV_BLOCK_TOKENS / 2, head_dim, acc,
                              (size_t)head_dim);
    }
    weights.data += n_whole * KV_BLOCK_TOKENS;
    if (rest / 2) {
        kernels->weighted_sum(&weights, &last, rest / 2, head_dim, acc, (size_t)head_dim);
    }
    if (rest % 2) {
        weights.data += rest / 2 * 2;
        add_odd(job, &weights, *last.at + (size_t)(rest / 2) * (size_t)head_dim * 2, acc);
    }
}

/* acc = acc * a + part * b */
VARIANTS static void blend(float *acc, float a, const float *part, float b, int n)
{
    for (int i = 0; i < n; i++) {
        acc[i] = acc[i] * a + part[i] * b;
    }
}

/* Merges what is known of each query with the partition that comes next. */
static void merge_span(const struct span *span, int head_dim, struct attend_scratch *s)
{
    for (int i = span->first_query; i < span->first_query + span->n_queries; i++) {
        size_t at = (size_t)i * (size_t)head_dim;
        float max = s->max[i] > s->part_max[i] ? s->max[i] : s->part_max[i];
        float a = num_exp(s->max[i] - max), b = num_exp(s->part_max[i] - max);
        s->sum[i] = s->sum[i] * a + s->part_sum[i] * b;
        blend(s->acc + at, a, s->part_acc + at, b, head_dim);
        s->max[i] = max;
    }
}

static void attend_span(const struct attend_job *job, const struct span *span, bool is_first,
                        struct attend_scratch *s)
{
    struct span_parts parts;
    list_parts(job, span, &parts);
    score_span(job, span, &parts, s);
    weigh_span(job, span, &parts, s);
    sum_span(job, span, &parts, s, is_first ? s->acc : s->part_acc);
    if (is_first) {
        size_t bytes = (size_t)span->n_queries * sizeof *s->max;
        memcpy(s->max + span->first_query, s->part_max + span->first_query, bytes);
        memcpy(s->sum + span->first_query, s->part_sum + span->first_query, bytes);
    } else {
        merge_span(span, job->shape->head_dim, s);
    }
}

static size_t query_offset(const struct attend_job *job, const struct tile *tile, int row)
{
    const struct attention_shape *shape = job->shape;
    int head = tile->kv_head * (shape->n_heads / shape->n_kv_heads) + tile->first_head;
    return ((size_t)(tile->first_row + row) * (size_t)shape->n_heads + (size_t)head) *
           (size_t)shape->head_dim;
}

/* Positions of a lane's path. */
struct range {
    int path, first, end;
};

static int partition_begin(int position)
{
    return position / ATTENTION_PARTITION * ATTENTION_PARTITION;
}

/* Attends to a range: either all queries of the tile to whole partitions, or the queries of one row
 * to the rest of what the row sees. first_seen: the first position that the queries see at all. */
static void attend_range(const struct attend_job *job, const struct tile *tile,
                         const struct range *range, int first_seen, int first_query, int n_queries,
                         struct attend_scratch *s)
{
    for (int first = range->first, end; first < range->end; first = end) {
        int block = first / KV_BLOCK_TOKENS, begin = block * KV_BLOCK_TOKENS;
        end = partition_begin(first) + ATTENTION_PARTITION;
        if (end > range->end) end = range->end;
        const struct span span = {.lane = tile->lane,
                                  .path = range->path,
                                  .first_block = block,
                                  .n = end - begin,
                                  .n_hidden = first - begin,
                                  .n_after =
                                      (range->end - end + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS,
                                  .kv_head = tile->kv_head,
                                  .first_query = first_query,
                                  .n_queries = n_queries};
        attend_span(job, &span, partition_begin(first) <= first_seen, s);
    }
}

static int tile_position(const struct tile *tile, int row)
{
    return attention_position(tile->lane, tile->first_row - tile->lane->first_row + row);
}

/* The position after the last one that a row of a tile sees. */
static int tile_end(const struct attend_job *job, const struct tile *tile, int row)
{
    return job->sees_lane ? attention_end(tile->lane) : tile_position(tile, row) + 1;
}

/* Returns the end of the whole partitions that all rows of a tile see in the same blocks, or of all
 * that they see where that is the same. Guesses of a tree are not in the order of their positions,
 * but all of them come after the blocks they share. */
static int shared_end(const struct attend_job *job, const struct tile *tile)
{
    const struct attention_lane *lane = tile->lane;
    int end = tile_end(job, tile, 0);
    if (job->sees_lane) return end;
    if (lane->tree && lane->tree->first_block * KV_BLOCK_TOKENS < end) {
        end = lane->tree->first_block * KV_BLOCK_TOKENS;
    }
    return partition_begin(end);
}

/* The partitions that all rows of a tile see whole, and before which either all rows see something
 * or none does. */
static struct range shared_range(const struct attend_job *job, const struct tile *tile)
{
    int last = 0, end = shared_end(job, tile);
    for (int r = 0; r < tile->n_rows; r++) {
        int first = attention_first(tile_position(tile, r), job->window);
        if (first > last) last = first;
    }
    int begin = last > 0 ? partition_begin(last) + ATTENTION_PARTITION : 0;
    return (struct range){0, begin < end ? begin : end, end};
}

/* The queries of one row attend to what the row sees from `from` on and before `end`. */
static void attend_row(const struct attend_job *job, const struct tile *tile, int row, int from,
                       int end, struct attend_scratch *s)
{
    int of_lane = tile->first_row - tile->lane->first_row + row;
    int first_seen = attention_first(tile_position(tile, row), job->window);
    int first = from > first_seen ? from : first_seen;
    const struct range range = {attention_path(tile->lane, of_lane), first, end};
    attend_range(job, tile, &range, first_seen, row * tile->n_heads, tile->n_heads, s);
}

static void attend_tile(const struct attend_job *job, const struct tile *tile,
                        struct attend_scratch *s)
{
    size_t row_len = (size_t)tile->n_heads * (size_t)job->shape->head_dim;
    const struct range shared = shared_range(job, tile);
    for (int r = 0; r < tile->n_rows; r++) {
        memcpy(s->q + (size_t)r * row_len, job->q + query_offset(job, tile, r),
               row_len * sizeof *s->q);
    }
    for (int r = 0; r < tile->n_rows && shared.first > 0; r++) {
        attend_row(job, tile, r, 0, shared.first, s);
    }
    attend_range(job, tile, &shared, 0, 0, tile->n_rows * tile->n_heads, s);
    for (int r = 0; r < tile->n_rows; r++) {
        attend_row(job, tile, r, shared.end, tile_end(job, tile, r), s);
    }
    for (int i = 0; i < tile->n_rows * tile->n_heads; i++) {
        int head_dim = job->shape->head_dim, r = i / tile->n_heads, h = i % tile->n_heads;
        const float *acc = s->acc + (size_t)i * (size_t)head_dim;
        uint16_t *out = job->out + query_offset(job, tile, r) + (size_t)h * (size_t)head_dim;
        for (int e = 0; e < head_dim; e++) {
            out[e] = num_float_to_bf16(acc[e] / s->sum[i]);
        }
    }
}

/* How a lane is cut into tiles. The kv head varies fastest, so that members that take tiles in turn
 * get long and short rows alike. */
struct lane_tiling {
    int heads, rows;                            /* of a tile, at most */
    int n_head_runs, n_row_runs, n_kv, n_tiles; /* n_tiles = their product */
};

static struct lane_tiling tile_lane(const struct attend_job *job, const struct attention_lane *lane)
{
    int group = job->shape->n_heads / job->shape->n_kv_heads, n = job->n_queries;
    struct lane_tiling tiling = {.heads = group < n ? group : n, .n_kv = job->shape->n_kv_heads};
    tiling.rows = n / tiling.heads;
    tiling.n_head_runs = (group + tiling.heads - 1) / tiling.heads;
    tiling.n_row_runs = (lane->n_rows + tiling.rows - 1) / tiling.rows;
    tiling.n_tiles = tiling.n_head_runs * tiling.n_row_runs * tiling.n_kv;
    return tiling;
}

static struct tile tile_of(const struct attend_job *job, const struct attention_lane *lane,
                           const struct lane_tiling *tiling, int i)
{
    int group = job->shape->n_heads / job->shape->n_kv_heads;
    int run = i / tiling->n_kv;
    int head_run = run % tiling->n_head_runs, row_run = run / tiling->n_head_runs;
    int first = row_run * tiling->rows, head = head_run * tiling->heads;
    return (struct tile){
        .lane = lane,
        .first_row = lane->first_row + first,
        .n_rows = lane->n_rows - first < tiling->rows ? lane->n_rows - first : tiling->rows,
        .kv_head = i % tiling->n_kv,
        .first_head = head,
        .n_heads = group - head < tiling->heads ? group - head : tiling->heads,
    };
}

/* A place in the list of all lanes' tiles. */
struct tile_cursor {
    int lane, first_tile; /* of the lane */
    struct lane_tiling tiling;
};

static const struct tile_cursor before_all = {.lane = -1};

/* Tile i of all; 0 <= i < their number. Quick if i ascends from call to call. */
static struct tile cursor_tile(const struct attend_job *job, struct tile_cursor *at, int i)
{
    const struct attention_lane *lanes = job->step->lanes;
    if (i < at->first_tile) *at = before_all;
    while (i >= at->first_tile + at->tiling.n_tiles) {
        at->first_tile += at->tiling.n_tiles;
        at->lane++;
        at->tiling = tile_lane(job, &lanes[at->lane]);
    }
    return tile_of(job, &lanes[at->lane], &at->tiling, i - at->first_tile);
}

/* Which tile is meant by the given place in a member's range: members take tiles in turn. What
 * remains when each has the same number goes to those whose range is longer. */
static int dealt_tile(const struct attend_job *job, const struct team_share *share, int place)
{
    int n_members = share->n_members, n_each = job->n_tiles / n_members;
    int i = place - share->range_begin;
    int turn = i < n_each ? share->owner : share->range_begin - share->owner * n_each;
    return i * n_members + turn;
}

static void attend_member(void *arg, int member, int n_members)
{
    const struct attend_job *job = arg;
    struct attend_scratch scratch;
    struct tile_cursor cursor = before_all;
    struct team_share share = team_share_begin(job->is_shared ? job->cpu->team : NULL, member,
                                               n_members, job->n_tiles, 1);
    scratch_divide(&scratch, job->cpu->scratch + (size_t)member * CPU_SCRATCH_FLOATS);
    while (team_share_next(&share)) {
        for (int i = share.begin; i < share.end; i++) {
            const struct tile tile = cursor_tile(job, &cursor, dealt_tile(job, &share, i));
            attend_tile(job, &tile, &scratch);
        }
    }
}

/* Products of elements of queries with K and of weights with V, about. */
static size_t count_work(const struct attend_job *job)
{
    size_t n = 0, width = (size_t)job->shape->n_heads * (size_t)job->shape->head_dim;
    for (int l = 0; l < job->step->n_lanes; l++) {
        const struct attention_lane *lane = &job->step->lanes[l];
        int end = lane->position + lane->n_rows;
        n += 2 * (size_t)lane->n_rows * (size_t)(end - attention_first(end, job->window)) * width;
    }
    return n;
}

static int count_tiles(const struct attend_job *job)
{
    int n = 0;
    for (int l = 0; l < job->step->n_lanes; l++) {
        n += tile_lane(job, &job->step->lanes[l]).n_tiles;
    }
    return n;
}

/* Makes tiles as large as they can be while every member gets the same number of them. The heads of
 * a group are divided only where members would otherwise have nothing to do, because each of the
 * tiles then reads the whole KV. */
static void choose_tiles(struct attend_job *job, int n_members)
{
    int group = job->shape->n_heads / job->shape->n_kv_heads;
    job->n_queries = CPU_QUERIES;
    for (;; job->n_queries /= 2) {
        int n = job->n_tiles = count_tiles(job);
        if (job->n_queries == 1) return;
        if (n % n_members == 0 || n >= ITEMS_PER_MEMBER * n_members) return;
        if (job->n_queries / 2 < group && n >= n_members) return;
    }
}

void cpu_attention(struct backend *be, const struct attention_shape *shape,
                   const struct backend_step *step, const struct attention_rule *rule,
                   const uint16_t *q, const uint16_t *kv, uint16_t *out)
{
    struct backend_cpu *cpu = backend_cpu_of(be);
    assert(shape->head_dim <= HEAD_DIM_MAX);
    struct attend_job job = {.cpu = cpu,
                             .shape = shape,
                             .step = step,
                             .q = q,
                             .kv = kv,
                             .out = out,
                             .scale = rule->scale,
                             .window = rule->window,
                             .sees_lane = rule->sees_lane};
    if (rule->softcap != 0) {
        job.softcap = rule->softcap;
        job.cap_scale = rule->scale / rule->softcap;
        job.scale = 1;
    }
    choose_tiles(&job, team_size(cpu->team));
    job.is_shared = count_work(&job) >= CPU_SHARED_WORK;
    team_run(cpu->team, attend_member, &job);
}
