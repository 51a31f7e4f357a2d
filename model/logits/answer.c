/* Answers of slices: the steps of internal.h, where their memory comes from, and who does what. */
#include "model/logits/answer.h"

#include <math.h>
#include <string.h>

#include "model/logits/internal.h"

enum {
    SMALL_COLUMNS = 16384, /* below, one thread is faster than waking the team */
    UNITS_PER_MEMBER = 4,  /* parts of few slices, so that members can help each other */
    LINE_BYTES = 64
};

/* ---- memory ---- */

/* True if the best are sorted out of all logits that may be among them: because as many are wished
 * that a heap would take most of them, or because it is not known how many there are. */
static bool sorts_all(const struct answer_item *item)
{
    return item->wish->has_least || item->wish->n_best > item->n_cols / SELECT_BLOCK;
}

/* Takes the arrays of an answer. Wished ids of other slices cost 4 bytes each. */
static int take_arrays(const struct answer_item *item, struct arena *arena, struct slice_arrays *to)
{
    const struct row_wish *wish = item->wish;
    size_t n_best = (size_t)answer_item_n_best(item),
           n_full = wish->full ? (size_t)item->n_cols : 0;
    to->best_ids = arena_take(arena, n_best, sizeof *to->best_ids);
    to->best_logits = arena_take(arena, n_best, sizeof *to->best_logits);
    to->id_logits = arena_take(arena, (size_t)wish->n_ids, sizeof *to->id_logits);
    to->buckets = arena_take(arena, wish->buckets ? ROW_BUCKETS : 0, sizeof *to->buckets);
    to->full = arena_take(arena, n_full, sizeof *to->full);
    bool all = to->best_ids && to->best_logits && to->id_logits && to->buckets && to->full;
    return all ? 0 : ERR_NO_MEMORY;
}

/* The blocks of scratch of one slice, SUM_KINDS of sums among them. */
enum scratch { TOPS, RANGES, MASK, BUCKETS, NOISY, SELECTION, SUMS, SCRATCHES = SUMS + SUM_KINDS };

static bool needs_mask(const struct row_wish *wish)
{
    return wish->outside || (wish->noisy_best && wish->n_ids > 0);
}

static void scratch_sizes(const struct answer_item *item, int n_parts, size_t bytes[SCRATCHES])
{
    const struct row_wish *wish = item->wish;
    size_t n_cols = (size_t)item->n_cols, parts = (size_t)n_parts;
    size_t sums = (n_cols + SUM_CHUNK - 1) / SUM_CHUNK * sizeof(double);
    bytes[TOPS] = n_cols / SELECT_BLOCK * sizeof(int32_t);
    bytes[RANGES] = parts * sizeof(struct key_range);
    bytes[MASK] = needs_mask(wish) ? (n_cols + MASK_BITS - 1) / MASK_BITS * sizeof(uint64_t) : 0;
    bytes[BUCKETS] = wish->buckets ? parts * ROW_BUCKETS * sizeof(uint64_t) : 0;
    bytes[NOISY] = wish->noisy_best ? parts * sizeof(struct noisy_best) : 0;
    bytes[SELECTION] = wish->n_best == 0 ? 0
                       : sorts_all(item) ? 2 * n_cols * sizeof(uint64_t)
                                         : (size_t)wish->n_best * sizeof(struct select_item);
    for (int kind = 0; kind < SUM_KINDS; kind++) {
        bytes[SUMS + kind] = 0;
    }
    for (int k = 0; k < wish->n_temperatures; k++) {
        bytes[SUMS + SUM_EXP + k] = sums;
    }
    if (wish->entropy) bytes[SUMS + SUM_EXP_LOG] = sums;
    if (wish->outside) bytes[SUMS + SUM_OUTSIDE] = sums;
}

static size_t whole_lines(size_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static size_t scratch_bytes(const struct answer_item *item, int n_parts)
{
    size_t bytes[SCRATCHES], sum = 0;
    scratch_sizes(item, n_parts, bytes);
    for (int i = 0; i < SCRATCHES; i++) {
        sum += whole_lines(bytes[i]);
    }
    return sum;
}

static void place_scratch(struct slice_work *work, uint8_t *scratch)
{
    size_t bytes[SCRATCHES];
    void *blocks[SCRATCHES];
    scratch_sizes(work->item, work->n_parts, bytes);
    for (int i = 0; i < SCRATCHES; i++) {
        blocks[i] = scratch;
        scratch += whole_lines(bytes[i]);
    }
    work->tops = blocks[TOPS];
    work->ranges = blocks[RANGES];
    work->mask = blocks[MASK];
    work->buckets = blocks[BUCKETS];
    work->noisy = blocks[NOISY];
    work->selection = blocks[SELECTION];
    for (int kind = 0; kind < SUM_KINDS; kind++) {
        work->sums[kind] = blocks[SUMS + kind];
    }
}

/* ---- the work on one slice ---- */

static struct slice_row empty_row(const struct answer_item *item)
{
    return (struct slice_row){
        .slice = item->slice,
        .first_id = item->first_id,
        .n_cols = item->n_cols,
        .noisy_id = -1,
        .max = -INFINITY,
        .outside_id = -1,
    };
}

static void work_begin(struct slice_work *work, const struct answer_item *item,
                       const struct slice_arrays *to, int n_parts, uint8_t *scratch)
{
    *work = (struct slice_work){.item = item,
                                .to = *to,
                                .row = empty_row(item),
                                .n_chunks = (item->n_cols + SUM_CHUNK - 1) / SUM_CHUNK,
                                .n_parts = n_parts};
    place_scratch(work, scratch);
}

static void work_scan(struct slice_work *work, int part)
{
    int begin, end;
    slice_part_columns(work, part, &begin, &end);
    work->ranges[part] = (struct key_range){INT32_MAX, INT32_MIN};
    if (begin == end) return;
    select_tops(work->item->logits + begin, end - begin, work->tops + begin / SELECT_BLOCK,
                &work->ranges[part].low, &work->ranges[part].high);
}

static int count_bad(const struct answer_item *item)
{
    int n_bad = 0;
    for (int i = 0; i < item->n_cols; i++) {
        n_bad += !(item->logits[i] < INFINITY);
    }
    return n_bad;
}

static void make_mask(struct slice_work *work)
{
    const struct answer_item *item = work->item;
    memset(work->mask, 0, ((size_t)item->n_cols + MASK_BITS - 1) / MASK_BITS * sizeof *work->mask);
    for (int i = 0; i < item->wish->n_ids; i++) {
        int64_t column = (int64_t)item->wish->ids[i] - item->first_id;
        if (column < 0 || column >= item->n_cols) continue;
        work->mask[column / MASK_BITS] |= (uint64_t)1 << (column % MASK_BITS);
    }
}

/* The slice's max, or that some of its logits are not numbers. */
static void work_settle(struct slice_work *work)
{
    struct key_range all = {INT32_MAX, INT32_MIN};
    for (int part = 0; part < work->n_parts; part++) {
        const struct key_range *one = &work->ranges[part];
        all.low = one->low < all.low ? one->low : all.low;
        all.high = one->high > all.high ? one->high : all.high;
    }
    if (all.low < select_order_key(-INFINITY) || all.high >= select_order_key(INFINITY)) {
        work->row.code = ERR_FORMAT;
        work->row.n_bad = count_bad(work->item);
        return;
    }
    work->row.max = select_order_float(all.high);
    if (needs_mask(work->item->wish)) make_mask(work);
}

/* A slice of nothing but -inf has no mass, like an empty one. */
static bool has_mass(const struct slice_work *work)
{
    return work->row.max > -INFINITY;
}

static void work_sum(struct slice_work *work, int part)
{
    int begin, end;
    if (work->row.code) return;
    slice_part_columns(work, part, &begin, &end);
    if (has_mass(work)) slice_sum(work, part, begin, end);
    if (work->item->wish->noisy_best) work->noisy[part] = noise_best(work, begin, end);
}

static void finish_noisy(struct slice_work *work)
{
    struct noisy_best best = {.column = -1};
    for (int part = 0; part < work->n_parts; part++) {
        best = noise_better(best, work->noisy[part]);
    }
    if (best.column < 0) return; /* the whole slice is on the list */
    work->row.noisy_id = work->item->first_id + best.column;
    work->row.noisy_logit = work->item->logits[best.column];
}

/* Columns of the best, best first; returns how many. */
static int select_best(struct slice_work *work)
{
    const struct answer_item *item = work->item;
    const struct row_wish *wish = item->wish;
    int most = answer_item_n_best(item);
    if (sorts_all(item)) {
        uint64_t *keys = work->selection;
        float least = wish->has_least ? wish->least : -INFINITY;
        int n = select_at_least(item->logits, item->n_cols, work->tops, least, keys);
        select_sort_keys(keys, keys + item->n_cols, n);
        most = n < most ? n : most;
        for (int i = 0; i < most; i++) {
            work->to.best_ids[i] = (int32_t)(uint32_t)keys[i];
        }
        return most;
    }
    struct select_heap heap = {.capacity = most, .items = work->selection};
    select_offer_tops(&heap, item->logits, item->n_cols, work->tops);
    select_sort_best(&heap);
    for (int i = 0; i < heap.n; i++) {
        work->to.best_ids[i] = heap.items[i].id;
    }
    return heap.n;
}

static void finish_best(struct slice_work *work)
{
    int n = select_best(work);
    for (int i = 0; i < n; i++) {
        work->to.best_logits[i] = work->item->logits[work->to.best_ids[i]];
        work->to.best_ids[i] += work->item->first_id;
    }
    work->row.n_best = n;
    work->row.best_ids = work->to.best_ids;
    work->row.best_logits = work->to.best_logits;
}

static void finish_ids(struct slice_work *work)
{
    const struct answer_item *item = work->item;
    struct slice_row *row = &work->row;
    for (int i = 0; i < item->wish->n_ids; i++) {
        int64_t column = (int64_t)item->wish->ids[i] - item->first_id;
        if (column < 0 || column >= item->n_cols) continue;
        work->to.id_logits[row->n_ids++] = item->logits[column];
    }
    row->id_logits = work->to.id_logits;
}

static void work_finish(struct slice_work *work, struct slice_row *out)
{
    const struct row_wish *wish = work->item->wish;
    if (work->row.code) {
        *out = empty_row(work->item);
        out->code = work->row.code;
        out->n_bad = work->row.n_bad;
        return;
    }
    if (has_mass(work)) slice_add(work);
    if (wish->noisy_best) finish_noisy(work);
    if (wish->n_best > 0) finish_best(work);
    if (wish->n_ids > 0) finish_ids(work);
    if (wish->full) {
        memcpy(work->to.full, work->item->logits,
               (size_t)work->item->n_cols * sizeof *work->to.full);
        work->row.full = work->to.full;
    }
    *out = work->row;
}

/* ---- many slices ---- */

struct answers {
    const struct answer_item *items;
    int n_items;
    struct slice_row *out;
    struct slice_arrays *arrays; /* [n_items] */
    struct team *team;           /* NULL: the caller alone */
    uint8_t *scratch;
    size_t scratch_bytes;     /* of a member, or of an item that is cut into parts */
    struct slice_work *works; /* [n_items] where items are cut into parts */
    int n_parts;
};

/* False for an item that has its answer, or never gets one. */
static bool is_open(const struct answers *answers, int i)
{
    return !answers->out[i].code && answers->items[i].n_cols > 0;
}

/* One member's share of whole items. */
static void answer_member(void *arg, int member, int n_members)
{
    struct answers *answers = arg;
    struct team_share share =
        team_share_begin(answers->team, member, n_members, answers->n_items, 1);
    uint8_t *scratch = answers->scratch + (size_t)member * answers->scratch_bytes;
    while (team_share_next(&share)) {
        for (int i = share.begin; i < share.end; i++) {
            struct slice_work work;
            if (!is_open(answers, i)) continue;
            work_begin(&work, &answers->items[i], &answers->arrays[i], 1, scratch);
            work_scan(&work, 0);
            work_settle(&work);
            work_sum(&work, 0);
            work_finish(&work, &answers->out[i]);
        }
    }
}

/* One member's share of one step over the parts of all items. */
static void run_parts(struct answers *answers, int member, int n_members,
                      void (*step)(struct slice_work *work, int part))
{
    int n_units = answers->n_items * answers->n_parts;
    struct team_share share = team_share_begin(answers->team, member, n_members, n_units, 1);
    while (team_share_next(&share)) {
        for (int unit = share.begin; unit < share.end; unit++) {
            int i = unit / answers->n_parts;
            if (is_open(answers, i)) step(&answers->works[i], unit % answers->n_parts);
        }
    }
}

static void scan_member(void *arg, int member, int n_members)
{
    run_parts(arg, member, n_members, work_scan);
}

static void sum_member(void *arg, int member, int n_members)
{
    run_parts(arg, member, n_members, work_sum);
}

/* Few slices for many threads: each step is shared out over the parts, and between the steps the
 * caller does what belongs to a whole slice. */
static void answer_parts(struct answers *answers)
{
    for (int i = 0; i < answers->n_items; i++) {
        work_begin(&answers->works[i], &answers->items[i], &answers->arrays[i], answers->n_parts,
                   answers->scratch + (size_t)i * answers->scratch_bytes);
    }
    team_run(answers->team, scan_member, answers);
    for (int i = 0; i < answers->n_items; i++) {
        if (is_open(answers, i)) work_settle(&answers->works[i]);
    }
    team_run(answers->team, sum_member, answers);
    for (int i = 0; i < answers->n_items; i++) {
        if (is_open(answers, i)) work_finish(&answers->works[i], &answers->out[i]);
    }
}

/* Empties every row, checks every wish and takes the arrays. Returns how many columns there are. */
static int64_t begin_items(struct answers *answers, struct arena *arena)
{
    int64_t n_columns = 0;
    for (int i = 0; i < answers->n_items; i++) {
        const struct answer_item *item = &answers->items[i];
        struct error ignored; /* row_slice_failure makes it again */
        size_t mark = arena->used_bytes;
        answers->out[i] = empty_row(item);
        answers->out[i].code = row_wish_check(item->wish, &ignored);
        if (!is_open(answers, i)) continue;
        answers->out[i].code = take_arrays(item, arena, &answers->arrays[i]);
        if (answers->out[i].code) arena->used_bytes = mark;
        n_columns += item->n_cols;
    }
    return n_columns;
}

/* How many parts each slice is cut into, so that all have work; 1: members take whole slices. */
static int choose_parts(const struct answers *answers)
{
    int n_members = answers->team ? team_size(answers->team) : 1, n_chunks = 1;
    if (n_members == 1 || answers->n_items >= 2 * n_members) return 1;
    for (int i = 0; i < answers->n_items; i++) {
        int n = (answers->items[i].n_cols + SUM_CHUNK - 1) / SUM_CHUNK;
        n_chunks = n > n_chunks ? n : n_chunks;
    }
    int n = (UNITS_PER_MEMBER * n_members + answers->n_items - 1) / answers->n_items;
    return n < n_chunks ? n : n_chunks;
}

/* Scratch for n workers or works. False: the arena has no room. */
static bool take_scratch(struct answers *answers, struct arena *arena, int n)
{
    answers->scratch_bytes = 0;
    for (int i = 0; i < answers->n_items; i++) {
        size_t bytes =
            is_open(answers, i) ? scratch_bytes(&answers->items[i], answers->n_parts) : 0;
        answers->scratch_bytes = bytes > answers->scratch_bytes ? bytes : answers->scratch_bytes;
    }
    answers->scratch = arena_take(arena, (size_t)n, answers->scratch_bytes);
    return answers->scratch != NULL;
}

/* False: the arena has no room for the team's scratch. */
static bool answer_shared(struct answers *answers, struct arena *arena)
{
    answers->n_parts = choose_parts(answers);
    if (answers->n_parts == 1) {
        if (!take_scratch(answers, arena, team_size(answers->team))) return false;
        team_run(answers->team, answer_member, answers);
        return true;
    }
    answers->works = arena_take(arena, (size_t)answers->n_items, sizeof *answers->works);
    if (!answers->works || !take_scratch(answers, arena, answers->n_items)) return false;
    answer_parts(answers);
    return true;
}

static bool answer_alone(struct answers *answers, struct arena *arena)
{
    answers->team = NULL;
    answers->n_parts = 1;
    if (!take_scratch(answers, arena, 1)) return false;
    answer_member(answers, 0, 1);
    return true;
}

/* The items that are still open have no room. */
static void refuse_open(struct answers *answers)
{
    for (int i = 0; i < answers->n_items; i++) {
        if (is_open(answers, i)) answers->out[i].code = ERR_NO_MEMORY;
    }
}

void answer_items(struct team *team, const struct answer_item *items, int n_items,
                  struct arena *arena, struct slice_row *out)
{
    struct answers answers = {.items = items, .n_items = n_items, .out = out, .team = team};
    size_t before = arena->used_bytes;
    answers.arrays = arena_take(arena, (size_t)n_items, sizeof *answers.arrays);
    if (!answers.arrays) {
        for (int i = 0; i < n_items; i++) {
            out[i] = empty_row(&items[i]);
        }
        refuse_open(&answers);
        return;
    }
    int64_t n_columns = begin_items(&answers, arena);
    size_t after = arena->used_bytes;
    bool is_shared = team && team_size(team) > 1 && n_columns >= SMALL_COLUMNS;
    bool done = is_shared && answer_shared(&answers, arena);
    arena->used_bytes = after;
    if (!done) done = answer_alone(&answers, arena);
    if (!done) refuse_open(&answers);
    arena->used_bytes = done ? after : before;
}

int row_slice_answer(const struct answer_item *item, struct arena *arena, struct slice_row *out,
                     struct error *err)
{
    answer_items(NULL, item, 1, arena, out);
    return out->code ? row_slice_failure(out, item->wish, err) : 0;
}
