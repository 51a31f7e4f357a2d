/* The host's part of answering row wishes on the device: it packs the wishes, launches one kernel
 * after the forward pass, which may still be running, copies one block back, waits once and fills
 * slice rows. No other part of a step waits for the device. */
#include "model/backend/cuda/answer.cuh"

#include <math.h>
#include <string.h>

/* The counts of one call, and the sizes of the blocks that go to the device and come back. */
struct packing {
    int n_jobs, max_columns;
    size_t n_columns, n_words, n_whole; /* n_whole: logits of slices that come back whole */
    size_t over_bytes, back_bytes;
};

/* The blocks, each in pinned memory and on the device. */
struct blocks {
    uint8_t *host_over, *device_over;
    uint8_t *host_back, *device_back;
    float *whole; /* pinned [n_whole] */
};

/* The items of one call and the memory that they travel in. */
struct batch {
    const struct answer_item *items;
    struct slice_row *out;
    int n_items;
    struct packing packing;
    struct blocks blocks;
};

/* True for an item that the host answers from the whole slice: because the wish asks for the whole
 * slice anyway, or because the kernel does not select that many or has no room for that many
 * columns. */
static bool comes_whole(const struct answer_item *item)
{
    const struct row_wish *wish = item->wish;
    bool is_selected = wish->n_best <= ANSWER_BEST_MAX && !wish->has_least;
    return wish->full || !is_selected || item->n_cols > ANSWER_COLUMNS_MAX;
}

/* True for an item that needs no device: it has no columns, or its wish makes no sense. */
static bool is_settled(const struct answer_item *item, const struct slice_row *out)
{
    return item->n_cols == 0 || out->code;
}

static bool lies_in(const struct answer_item *item, int32_t id)
{
    int64_t column = static_cast<int64_t>(id) - item->first_id;
    return column >= 0 && column < item->n_cols;
}

static int n_columns_of(const struct answer_item *item)
{
    int n = 0;
    for (int i = 0; i < item->wish->n_ids; i++) {
        n += lies_in(item, item->wish->ids[i]);
    }
    return n;
}

/* Rounds up to whole cache lines, at least one, because memory of no bytes cannot be told from no
 * memory. */
static size_t room_for(size_t bytes)
{
    return (bytes / 64 + 1) * 64;
}

static void count_items(struct batch *batch)
{
    struct packing *packing = &batch->packing;
    for (int i = 0; i < batch->n_items; i++) {
        const struct answer_item *item = &batch->items[i];
        if (is_settled(item, &batch->out[i])) continue;
        if (comes_whole(item)) {
            packing->n_whole += static_cast<size_t>(item->n_cols);
            continue;
        }
        size_t n_columns = static_cast<size_t>(n_columns_of(item));
        packing->n_jobs++;
        packing->n_columns += n_columns;
        packing->n_words += 2 * static_cast<size_t>(answer_item_n_best(item)) + n_columns;
        packing->n_words += item->wish->buckets ? 2 * ROW_BUCKETS : 0;
        packing->n_words += packing->n_words % 2; /* buckets are words of 64 bits */
        if (item->n_cols > packing->max_columns) packing->max_columns = item->n_cols;
    }
    size_t n_jobs = static_cast<size_t>(packing->n_jobs);
    packing->over_bytes = n_jobs * sizeof(struct answer_job) + packing->n_columns * sizeof(int32_t);
    packing->back_bytes =
        n_jobs * sizeof(struct answer_result) + packing->n_words * sizeof(uint32_t);
}

/* Takes memory for both blocks. Errors: ERR_UNAVAILABLE there is none. */
static int take_blocks(struct backend_cuda *be, struct batch *batch, struct error *err)
{
    const struct packing *packing = &batch->packing;
    size_t over = room_for(packing->over_bytes), back = room_for(packing->back_bytes);
    uint8_t *device = static_cast<uint8_t *>(cuda_scratch(be, over + back));
    uint8_t *host = static_cast<uint8_t *>(
        cuda_host_scratch(be, over + back + packing->n_whole * sizeof(float)));
    if (!device || !host) {
        int rc = cuda_finish(be, err);
        return rc ? rc : error_set(err, ERR_UNAVAILABLE, "no memory for the answers to row wishes");
    }
    batch->blocks = {host, device, host + over, device + over,
                     reinterpret_cast<float *>(host + over + back)};
    return 0;
}

static void pack_columns(const struct answer_item *item, int32_t *columns)
{
    for (int i = 0; i < item->wish->n_ids; i++) {
        int32_t id = item->wish->ids[i];
        if (lies_in(item, id)) *columns++ = id - item->first_id;
    }
}

/* Packs the part of a job that is the same for all slices of a row. */
static void pack_wish(const struct row_wish *wish, struct answer_job *job)
{
    *job = {};
    job->n_temperatures = wish->n_temperatures;
    if (wish->n_temperatures > 0) job->temperature = wish->temperatures[0];
    for (int k = 0; k < wish->n_temperatures; k++) {
        job->inverse[k] = 1.0f / wish->temperatures[k];
    }
    if (wish->buckets) job->steps_per_unit = (float)ROW_BUCKET_SHARE * job->inverse[0];
    job->buckets = static_cast<int32_t>(wish->buckets);
    job->noisy_best = wish->noisy_best;
    job->entropy = wish->entropy;
    job->outside = wish->outside;
    job->seed = wish->at.seed;
    job->position = wish->at.position;
    job->round = wish->at.round;
}

static void pack_slice(const struct answer_item *item, struct answer_job *job)
{
    job->logits = item->logits;
    job->first_id = item->first_id;
    job->n_cols = item->n_cols;
    job->n_best = answer_item_n_best(item);
    job->n_columns = n_columns_of(item);
    job->slice = static_cast<uint32_t>(item->slice);
}

static void pack_items(const struct batch *batch)
{
    struct answer_job *job = reinterpret_cast<struct answer_job *>(batch->blocks.host_over);
    int32_t *columns = reinterpret_cast<int32_t *>(job + batch->packing.n_jobs);
    int32_t first_column = 0, first_word = 0;
    const struct row_wish *wish = NULL; /* of `packed` */
    struct answer_job packed = {};
    for (int i = 0; i < batch->n_items; i++) {
        const struct answer_item *item = &batch->items[i];
        if (is_settled(item, &batch->out[i]) || comes_whole(item)) continue;
        if (item->wish != wish) pack_wish(item->wish, &packed);
        wish = item->wish;
        *job = packed;
        pack_slice(item, job);
        pack_columns(item, columns + first_column);
        job->first_column = first_column;
        job->first_word = first_word;
        first_column += job->n_columns;
        first_word += answer_words(job);
        first_word += first_word % 2;
        job++;
    }
}

/* Copies the wishes over, launches the kernel and copies the answers back. All of it is only put on
 * the stream; nothing waits. */
static void launch_jobs(struct backend_cuda *be, const struct batch *batch)
{
    const struct packing *packing = &batch->packing;
    const struct blocks *blocks = &batch->blocks;
    struct answer_places places;
    if (packing->n_jobs == 0) return;
    places.jobs = reinterpret_cast<const struct answer_job *>(blocks->device_over);
    places.columns = reinterpret_cast<const int32_t *>(places.jobs + packing->n_jobs);
    places.results = reinterpret_cast<struct answer_result *>(blocks->device_back);
    places.words = reinterpret_cast<uint32_t *>(places.results + packing->n_jobs);
    cuda_note(be,
              cudaMemcpyAsync(blocks->device_over, blocks->host_over, packing->over_bytes,
                              cudaMemcpyHostToDevice, be->stream),
              "copying row wishes");
    answer_launch(be, places, packing->n_jobs, packing->max_columns);
    cuda_note(be,
              cudaMemcpyAsync(blocks->host_back, blocks->device_back, packing->back_bytes,
                              cudaMemcpyDeviceToHost, be->stream),
              "copying answers to row wishes");
}

static void copy_whole(struct backend_cuda *be, const struct batch *batch)
{
    float *whole = batch->blocks.whole;
    for (int i = 0; i < batch->n_items; i++) {
        const struct answer_item *item = &batch->items[i];
        if (is_settled(item, &batch->out[i]) || !comes_whole(item)) continue;
        size_t n = static_cast<size_t>(item->n_cols);
        cuda_note(be,
                  cudaMemcpyAsync(whole, item->logits, n * sizeof *whole, cudaMemcpyDeviceToHost,
                                  be->stream),
                  "copying logits");
        whole += n;
    }
}

/* The arrays of a row from the words that came back. Returns ERR_NO_MEMORY or 0. */
static int fill_arrays(const struct answer_job *job, const uint32_t *words, int n_wished_ids,
                       struct arena *arena, struct slice_row *row)
{
    size_t n_best = static_cast<size_t>(job->n_best), n_ids = static_cast<size_t>(job->n_columns);
    if (n_best > 0) {
        int32_t *ids = static_cast<int32_t *>(arena_take(arena, n_best, sizeof *ids));
        float *logits = static_cast<float *>(arena_take(arena, n_best, sizeof *logits));
        if (!ids || !logits) return ERR_NO_MEMORY;
        for (size_t i = 0; i < n_best; i++) {
            ids[i] = job->first_id + static_cast<int32_t>(words[i]);
        }
        memcpy(logits, words + n_best, n_best * sizeof *logits);
        row->n_best = job->n_best;
        row->best_ids = ids;
        row->best_logits = logits;
    }
    if (n_wished_ids > 0) {
        float *logits = static_cast<float *>(arena_take(arena, n_ids, sizeof *logits));
        if (!logits) return ERR_NO_MEMORY;
        memcpy(logits, words + 2 * n_best, n_ids * sizeof *logits);
        row->n_ids = job->n_columns;
        row->id_logits = logits;
    }
    return 0;
}

/* The buckets as row_slice_answer gives them. Returns ERR_NO_MEMORY or 0. */
static int fill_buckets(const struct answer_job *job, const uint32_t *words, struct arena *arena,
                        struct slice_row *row)
{
    if (!job->buckets) return 0;
    float *buckets = static_cast<float *>(arena_take(arena, ROW_BUCKETS, sizeof *buckets));
    if (!buckets) return ERR_NO_MEMORY;
    double unit = job->buckets == ROW_BUCKETS_MASS ? 1.0 / (1 << ROW_MASS_BITS) : 1;
    for (int b = 0; b < ROW_BUCKETS; b++) {
        uint64_t sum;
        memcpy(&sum, words + 2 * b, sizeof sum);
        buckets[b] = static_cast<float>(static_cast<double>(sum) * unit);
        if (sum > 0) row->n_buckets = b + 1;
    }
    row->buckets = buckets;
    return 0;
}

static struct slice_row empty_row(const struct answer_item *item)
{
    struct slice_row row = {};
    row.slice = item->slice;
    row.first_id = item->first_id;
    row.n_cols = item->n_cols;
    row.noisy_id = -1;
    row.max = -INFINITY;
    row.outside_id = -1;
    return row;
}

/* Fills out, which is an empty row, from what the kernel found. */
static void fill_row(const struct answer_item *item, const struct answer_job *job,
                     const struct answer_result *result, const uint32_t *words, struct arena *arena,
                     struct slice_row *out)
{
    struct slice_row row = empty_row(item);
    words += job->first_word;
    out->n_bad = result->n_bad;
    out->code = result->n_bad > 0 ? ERR_FORMAT : fill_buckets(job, words, arena, &row);
    words += answer_bucket_words(job);
    if (!out->code) out->code = fill_arrays(job, words, item->wish->n_ids, arena, &row);
    if (out->code) return;
    row.max = result->max;
    row.sum_exp[0] = result->sums[ANSWER_EXP];
    row.sum_exp[1] = result->sums[ANSWER_EXP_SECOND];
    row.sum_exp_log = result->sums[ANSWER_EXP_LOG];
    row.outside_sum = result->sums[ANSWER_OUTSIDE];
    if (result->outside_column >= 0) {
        row.outside_id = item->first_id + result->outside_column;
        row.outside_logit = result->outside_logit;
    }
    if (result->noisy_column >= 0) {
        row.noisy_id = item->first_id + result->noisy_column;
        row.noisy_logit = result->noisy_logit;
    }
    *out = row;
}

static void fill_rows(const struct batch *batch, struct arena *arena, struct slice_row *out)
{
    const struct blocks *blocks = &batch->blocks;
    const struct answer_job *job = reinterpret_cast<const struct answer_job *>(blocks->host_over);
    const struct answer_result *result =
        reinterpret_cast<const struct answer_result *>(blocks->host_back);
    const uint32_t *words = reinterpret_cast<const uint32_t *>(result + batch->packing.n_jobs);
    const float *whole = blocks->whole;
    for (int i = 0; i < batch->n_items; i++) {
        const struct answer_item *item = &batch->items[i];
        if (is_settled(item, &out[i])) continue;
        if (comes_whole(item)) {
            struct answer_item on_host = *item;
            struct error ignored; /* the row has its code */
            on_host.logits = whole;
            row_slice_answer(&on_host, arena, &out[i], &ignored);
            whole += item->n_cols;
        } else {
            fill_row(item, job++, result++, words, arena, &out[i]);
        }
    }
}

/* Empties every row and checks every wish before anything is launched. */
static void check_items(const struct batch *batch)
{
    const struct row_wish *wish = NULL; /* that `code` belongs to */
    int code = 0;
    for (int i = 0; i < batch->n_items; i++) {
        struct error ignored;
        if (batch->items[i].wish != wish) code = row_wish_check(batch->items[i].wish, &ignored);
        wish = batch->items[i].wish;
        batch->out[i] = empty_row(&batch->items[i]);
        batch->out[i].code = code;
    }
}

int cuda_answer(struct backend *base, const struct answer_item *items, int n_items,
                struct arena *arena, struct slice_row *out, struct error *err)
{
    struct backend_cuda *be = backend_cuda_of(base);
    struct batch batch = {};
    int rc = 0;
    batch.items = items;
    batch.n_items = n_items;
    batch.out = out;
    check_items(&batch);
    cuda_use_device(be);
    count_items(&batch);
    TRY(take_blocks(be, &batch, err));
    pack_items(&batch);
    launch_jobs(be, &batch);
    copy_whole(be, &batch);
    TRY(cuda_finish(be, err));
    fill_rows(&batch, arena, out);
out:
    return rc;
}
