/* Packing a matrix, or finding it packed in the cache. */
#include "model/backend/pack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { N_SAMPLES = 16, SAMPLE_ELEMENTS = 64, TEXT_BYTES = 192, COPY_BYTES = 1 << 20 };

/* One of the places of hash_samples. Integers are read as they are stored, but for synthetic
 * ones. */
static uint64_t hash_place(uint64_t hash, const struct weight *weight, int row, int col, int n)
{
    uint16_t sample[SAMPLE_ELEMENTS];
    int8_t q[SAMPLE_ELEMENTS + QUANT_GROUP];
    uint16_t scales[SAMPLE_ELEMENTS / QUANT_GROUP + 1];
    enum weight_form form = weight_form_of(weight);
    if (form == WEIGHTS_BF16 || !weight->data) {
        weight_read_bf16(weight, row, col, n, sample);
        return XXH3_64bits_withSeed(sample, (size_t)n * sizeof *sample, hash);
    }
    if (weight->dtype == DTYPE_STORED) {
        const uint64_t words[] = {hash, stored_hash(&weight->stored, row, col, n)};
        return XXH3_64bits(words, sizeof words);
    }
    if (form != WEIGHTS_INT8 && form != WEIGHTS_INT4) {
        size_t bytes;
        const uint8_t *run = weight_run(weight, row, col, n, &bytes);
        return XXH3_64bits_withSeed(run, bytes, hash);
    }
    size_t n_scales = (size_t)((n + QUANT_GROUP - 1) / QUANT_GROUP);
    weight_read_groups(weight, form, row, col / QUANT_GROUP * QUANT_GROUP, n, q, scales);
    hash = XXH3_64bits_withSeed(q, (size_t)n, hash);
    return XXH3_64bits_withSeed(scales, n_scales * sizeof *scales, hash);
}

/* Rows spread over the part, the first and the last among them, each from another column on. */
static uint64_t hash_samples(uint64_t hash, const struct matrix_part *part, int n_in)
{
    int n = n_in < SAMPLE_ELEMENTS ? n_in : SAMPLE_ELEMENTS;
    for (int i = 0; i < N_SAMPLES && part->n_rows > 0; i++) {
        int row = matrix_part_row(part, (int)((int64_t)(part->n_rows - 1) * i / (N_SAMPLES - 1)));
        int col = part->first_col + (int)((int64_t)(n_in - n) * i / (N_SAMPLES - 1));
        if (row < 0) break; /* the vocabulary's tail */
        hash = hash_place(hash, &part->weight, row, col, n);
    }
    return hash;
}

/* Identifies what is packed, which of the model's matrices it is, and the packed form. */
static uint64_t identity_of(const struct pack_request *request, int ordinal)
{
    const struct matrix_source *source = request->source;
    char text[TEXT_BYTES];
    int len = snprintf(text, sizeof text, "%.60s %d %zu %d %d %d", request->form, ordinal,
                       request->bytes, source->n_in, source->n_parts, source->is_gate_up);
    uint64_t hash = XXH3_64bits(text, (size_t)len);
    for (int i = 0; i < source->n_parts; i++) {
        const struct matrix_part *part = &source->parts[i];
        const struct weight *w = &part->weight;
        len = snprintf(text, sizeof text, "%d %d %d %d.%d.%d.%d %d %d %d %016" PRIx64 " %a %a",
                       part->first_row, part->n_rows, part->first_col, (int)w->dtype, (int)w->block,
                       (int)w->stored.kind, w->stored.group, w->group, w->n_rows, w->n_cols,
                       w->seed, (double)w->scale, (double)w->mean);
        hash = XXH3_64bits_withSeed(text, (size_t)len, hash);
        if (part->row_list) {
            hash = XXH3_64bits_withSeed(part->row_list,
                                        (size_t)part->n_listed * sizeof *part->row_list, hash);
        }
        hash = hash_samples(hash, part, source->n_in);
    }
    return hash;
}

/* The digests that each member has summed up: [n_members][PACK_DIGESTS]. */
struct member_digests {
    uint64_t (*of)[PACK_DIGESTS];
    int n;
};

_Static_assert((int)PACK_DIGESTS == (int)MATRIX_PARTS_MAX, "a digest for each part of a matrix");

static int digests_open(struct member_digests *digests, const struct team *team, struct error *err)
{
    digests->n = team_size(team);
    return mem_array(&digests->of, (size_t)digests->n, sizeof *digests->of, err);
}

static void digests_sum(const struct member_digests *digests, uint64_t out[PACK_DIGESTS])
{
    memset(out, 0, PACK_DIGESTS * sizeof *out);
    for (int member = 0; member < digests->n; member++) {
        for (int i = 0; i < PACK_DIGESTS; i++) {
            out[i] += digests->of[member][i];
        }
    }
}

/* Adds what has been read to what the source's owner asked for. */
static void digests_tell(const struct matrix_source *source, const struct pack_item *item)
{
    for (int i = 0; source->digests && i < source->n_parts; i++) {
        source->digests[i] += item->digests[i];
    }
}

static int source_columns(const struct matrix_source *source)
{
    int n = 0;
    for (int i = 0; i < source->n_parts; i++) {
        n += source->parts[i].n_rows;
    }
    return n;
}

struct pack_job {
    const struct pack_request *request;
    void *data;
    struct member_digests digests; /* of = NULL: not wanted */
    int n_columns;
};

/* Block by block, because the rows of a block are still in the cache when they are digested. */
static void pack_block(const struct pack_job *job, int member, int block)
{
    const struct pack_request *request = job->request;
    request->fill(request->arg, job->data, block, block + 1);
    if (job->digests.of) {
        int first = block * request->block_columns, end = first + request->block_columns;
        matrix_source_digest(request->source, first, end < job->n_columns ? end : job->n_columns,
                             job->digests.of[member]);
    }
}

static void pack_member(void *arg, int member, int n_members)
{
    const struct pack_job *job = arg;
    const struct pack_request *request = job->request;
    int begin, end, n = request->n_blocks / request->n_folds;
    team_range(n, 1, member, n_members, &begin, &end);
    for (int i = 0; i < request->n_folds; i++) {
        for (int block = begin; block < end; block++) {
            pack_block(job, member, i * n + block);
        }
    }
}

struct copy_job {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
};

static void copy_member(void *arg, int member, int n_members)
{
    const struct copy_job *job = arg;
    int begin, end, n_chunks = (int)((job->bytes + COPY_BYTES - 1) / COPY_BYTES);
    team_range(n_chunks, 1, member, n_members, &begin, &end);
    size_t at = (size_t)begin * COPY_BYTES, to = (size_t)end * COPY_BYTES;
    if (to > job->bytes) to = job->bytes;
    if (at < to) memcpy(job->to + at, job->from + at, to - at);
}

/* *data is NULL when the cache does not have the matrix. */
static int find(struct backend *be, struct team *team, void **data, struct pack_item *item,
                struct error *err)
{
    int rc = 0;
    void *found = pack_cache_find(be->cache, team, item);
    *data = found;
    if (!found || !pack_cache_wants_copies(be->cache)) return 0;
    TRY(backend_buffer(be, data, item->bytes, err));
    struct copy_job job = {*data, found, item->bytes};
    team_run(team, copy_member, &job);
    pack_cache_release_pages(be->cache);
out:
    return rc;
}

/* Packs into *data, which is set even where this fails. The digests are also those of a matrix that
 * nobody asks about, because they go into the cache. */
static int pack(struct backend *be, struct team *team, void **data,
                const struct pack_request *request, struct pack_item *item, struct error *err)
{
    int rc = 0;
    struct pack_job job = {.request = request, .n_columns = source_columns(request->source)};
    TRY(backend_buffer(be, data, request->bytes, err));
    job.data = *data;
    if (be->cache || request->source->digests) TRY(digests_open(&job.digests, team, err));
    matrix_source_expect(request->source);
    team_run(team, pack_member, &job);
    digests_sum(&job.digests, item->digests);
    if (be->cache) TRY(pack_cache_add(be->cache, team, item, *data, err));
out:
    free(job.digests.of);
    return rc;
}

int pack_open(struct backend *be, struct team *team, void **data,
              const struct pack_request *request, struct error *err)
{
    int rc = 0;
    struct pack_item item = {.bytes = request->bytes};
    *data = NULL;
    if (be->cache) {
        item.identity = identity_of(request, pack_cache_count(be->cache));
        TRY(find(be, team, data, &item, err));
    }
    if (!*data) TRY(pack(be, team, data, request, &item, err));
    digests_tell(request->source, &item);
out:
    if (rc) {
        pack_close(be, *data, request->bytes);
        *data = NULL;
    }
    return rc;
}

struct digest_job {
    const struct matrix_source *source;
    struct member_digests digests;
    int n_columns;
};

static void digest_member(void *arg, int member, int n_members)
{
    const struct digest_job *job = arg;
    int begin, end;
    team_range(job->n_columns, 1, member, n_members, &begin, &end);
    matrix_source_digest(job->source, begin, end, job->digests.of[member]);
}

int pack_digest(struct backend *be, struct team *team, const struct matrix_source *source,
                struct error *err)
{
    int rc = 0;
    const struct pack_request request = {.form = "digest", .source = source};
    struct pack_item item = {0};
    struct digest_job job = {.source = source, .n_columns = source_columns(source)};
    bool is_known = false;
    if (be->cache) {
        item.identity = identity_of(&request, pack_cache_count(be->cache));
        is_known = pack_cache_find(be->cache, team, &item) != NULL;
    }
    if (!is_known) {
        TRY(digests_open(&job.digests, team, err));
        matrix_source_expect(source);
        team_run(team, digest_member, &job);
        digests_sum(&job.digests, item.digests);
        if (be->cache) TRY(pack_cache_add(be->cache, team, &item, NULL, err));
    }
    digests_tell(source, &item);
out:
    free(job.digests.of);
    return rc;
}

void pack_close(struct backend *be, void *data, size_t bytes)
{
    if (!data || (be->cache && pack_cache_holds(be->cache, data))) return;
    be->ops->buffer_close(be, data, bytes);
}
