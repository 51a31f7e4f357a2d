/* A rank's description of itself, which the coordinator asks for when it connects. This runs once
 * per connection, so it allocates and frees memory here. */
#include "proto/target_wire.h"

#include <stdint.h>
#include <string.h>

#include "base/limits.h"
#include "proto/codec.h"
#include "proto/target.pb-c.h"

/* Unknown fields need the most of the arena: about 100 bytes for two bytes of the message. */
enum { DESCRIPTION_BYTES_MAX = 4096, DESCRIPTION_ARENA_BYTES = 512 << 10 };
enum { SIZE_MOST = 1 << 28, KV_BLOCKS_MOST = 1 << 24 };

static const ProtobufCMessage *description_build(struct arena *scratch, const void *value)
{
    const struct target_description *desc = value;
    Outrider__Target__V1__Description *out = arena_take(scratch, 1, sizeof *out);
    if (!out) return NULL;
    outrider__target__v1__description__init(out);
    out->model = codec_copy_string(scratch, desc->model);
    out->architecture = codec_copy_string(scratch, desc->architecture);
    out->n_layers = (uint32_t)desc->n_layers;
    out->dim = (uint32_t)desc->dim;
    out->n_heads = (uint32_t)desc->n_heads;
    out->n_kv_heads = (uint32_t)desc->n_kv_heads;
    out->head_dim = (uint32_t)desc->head_dim;
    out->ffn_dim = (uint32_t)desc->ffn_dim;
    out->vocab_size = (uint32_t)desc->vocab_size;
    out->rank = (uint32_t)desc->rank;
    out->n_ranks = (uint32_t)desc->n_ranks;
    out->n_slices = (uint32_t)desc->n_slices;
    out->n_slots = (uint32_t)desc->n_slots;
    out->n_kv_blocks = (uint32_t)desc->n_kv_blocks;
    out->block_tokens = (uint32_t)desc->block_tokens;
    out->context_limit = (uint32_t)desc->context_limit;
    out->max_step_tokens = (uint32_t)desc->max_step_tokens;
    out->max_step_rows = (uint32_t)desc->max_step_rows;
    out->arithmetic = codec_copy_string(scratch, desc->arithmetic);
    out->model_fingerprint = desc->model_fingerprint;
    out->tokenizer_fingerprint = desc->tokenizer_fingerprint;
    out->n_eos_ids = (size_t)desc->ends.n;
    out->eos_ids = codec_lend(desc->ends.ids);
    out->kernels = codec_copy_string(scratch, desc->kernels);
    out->n_threads = (uint32_t)desc->n_threads;
    out->window = (uint32_t)desc->window;
    out->projection_digest = desc->projection.digest;
    out->projection_width = (uint32_t)desc->projection.width;
    out->look_ahead_digest = desc->look_ahead.digest;
    out->n_look_ahead = (uint32_t)desc->look_ahead.n;
    out->group = codec_copy_string(scratch, desc->group);
    out->is_busy = desc->is_busy;
    if (desc->has_nccl_id) {
        out->nccl_id =
            (ProtobufCBinaryData){.len = sizeof desc->nccl_id, .data = codec_lend(desc->nccl_id)};
        out->member_pass = (ProtobufCBinaryData){.len = sizeof desc->member_pass,
                                                 .data = codec_lend(desc->member_pass)};
    }
    bool is_whole =
        out->model && out->architecture && out->arithmetic && out->kernels && out->group;
    return is_whole ? &out->base : NULL;
}

int target_description_encode(struct buffer *buf, const struct target_description *desc,
                              struct error *err)
{
    return codec_encode(buf, description_build, desc, err);
}

/* Copies a checked string into an array of `size` bytes. */
static int name_decode(char *out, size_t size, const char *text, const char *field,
                       struct error *err)
{
    const char *checked;
    size_t len;
    int rc = codec_read_string(&checked, &len, text, size - 1, field, err);
    if (!rc) memcpy(out, checked, len + 1);
    return rc;
}

static int names_decode(const Outrider__Target__V1__Description *msg,
                        struct target_description *desc, struct error *err)
{
    int rc = 0;
    TRY(name_decode(desc->model, sizeof desc->model, msg->model, "model", err));
    TRY(name_decode(desc->architecture, sizeof desc->architecture, msg->architecture,
                    "architecture", err));
    TRY(name_decode(desc->arithmetic, sizeof desc->arithmetic, msg->arithmetic, "arithmetic", err));
    TRY(name_decode(desc->kernels, sizeof desc->kernels, msg->kernels, "kernels", err));
    TRY(name_decode(desc->group, sizeof desc->group, msg->group, "group", err));
out:
    return rc;
}

/* Sizes: all but the window are at least 1, and none is so large that sums and products of
 * positions overflow or that its tables take gigabytes. */
static int sizes_decode(const Outrider__Target__V1__Description *msg,
                        struct target_description *desc, struct error *err)
{
    const struct {
        int *out;
        uint32_t value;
        int most;
        const char *field;
    } sizes[] = {{&desc->n_layers, msg->n_layers, SIZE_MOST, "n_layers"},
                 {&desc->dim, msg->dim, SIZE_MOST, "dim"},
                 {&desc->n_heads, msg->n_heads, SIZE_MOST, "n_heads"},
                 {&desc->n_kv_heads, msg->n_kv_heads, SIZE_MOST, "n_kv_heads"},
                 {&desc->head_dim, msg->head_dim, SIZE_MOST, "head_dim"},
                 {&desc->ffn_dim, msg->ffn_dim, SIZE_MOST, "ffn_dim"},
                 {&desc->vocab_size, msg->vocab_size, SIZE_MOST, "vocab_size"},
                 {&desc->n_slots, msg->n_slots, SIZE_MOST, "n_slots"},
                 {&desc->n_kv_blocks, msg->n_kv_blocks, KV_BLOCKS_MOST, "n_kv_blocks"},
                 {&desc->block_tokens, msg->block_tokens, SIZE_MOST, "block_tokens"},
                 {&desc->context_limit, msg->context_limit, SIZE_MOST, "context_limit"},
                 {&desc->max_step_tokens, msg->max_step_tokens, SIZE_MOST, "max_step_tokens"},
                 {&desc->max_step_rows, msg->max_step_rows, SIZE_MOST, "max_step_rows"},
                 {&desc->n_threads, msg->n_threads, SIZE_MOST, "n_threads"}};
    int rc = codec_read_int(&desc->window, msg->window, 0, SIZE_MOST, "window", err);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !rc; i++) {
        rc = codec_read_int(sizes[i].out, sizes[i].value, 1, sizes[i].most, sizes[i].field, err);
    }
    return rc;
}

static int ranks_decode(const Outrider__Target__V1__Description *msg,
                        struct target_description *desc, struct error *err)
{
    int rc = 0;
    TRY(codec_read_int(&desc->n_slices, msg->n_slices, 1, SLICES_MAX, "n_slices", err));
    TRY(codec_read_int(&desc->n_ranks, msg->n_ranks, 1, desc->n_slices, "n_ranks", err));
    TRY(codec_read_int(&desc->rank, msg->rank, 0, desc->n_ranks - 1, "rank", err));
    if (desc->n_slices % desc->n_ranks) {
        rc = error_set(err, ERR_FORMAT, "n_slices is %d, not a multiple of n_ranks %d",
                       desc->n_slices, desc->n_ranks);
    }
out:
    return rc;
}

static int projection_decode(const Outrider__Target__V1__Description *msg,
                             struct target_description *desc, struct error *err)
{
    int rc = 0;
    if (!msg->projection_digest && !msg->projection_width) return 0;
    if (!msg->projection_digest) {
        return error_set(err, ERR_FORMAT, "projection_width is %u without a projection_digest",
                         msg->projection_width);
    }
    if (desc->rank != 0) {
        return error_set(err, ERR_FORMAT,
                         "projection_digest comes from rank %d, only rank 0 has one", desc->rank);
    }
    TRY(codec_read_int(&desc->projection.width, msg->projection_width, 1, PROJECTION_WIDTH_MAX,
                       "projection_width", err));
    desc->projection.digest = msg->projection_digest;
out:
    return rc;
}

static int look_ahead_decode(const Outrider__Target__V1__Description *msg,
                             struct target_description *desc, struct error *err)
{
    int rc = 0;
    if (!msg->look_ahead_digest && !msg->n_look_ahead) return 0;
    if (!msg->look_ahead_digest) {
        return error_set(err, ERR_FORMAT, "n_look_ahead is %u without a look_ahead_digest",
                         msg->n_look_ahead);
    }
    TRY(codec_read_int(&desc->look_ahead.n, msg->n_look_ahead, 1, DRAFT_MAX, "n_look_ahead", err));
    desc->look_ahead.digest = msg->look_ahead_digest;
out:
    return rc;
}

static int nccl_id_decode(const Outrider__Target__V1__Description *msg,
                          struct target_description *desc, struct error *err)
{
    if (!msg->nccl_id.len) return 0;
    if (msg->nccl_id.len != sizeof desc->nccl_id) {
        return error_set(err, ERR_FORMAT, "nccl_id has %zu bytes, must have %zu or none",
                         msg->nccl_id.len, sizeof desc->nccl_id);
    }
    if (desc->rank != 0) {
        return error_set(err, ERR_FORMAT, "nccl_id comes from rank %d, only rank 0 has one",
                         desc->rank);
    }
    if (msg->member_pass.len != sizeof desc->member_pass) {
        return error_set(err, ERR_FORMAT,
                         "member_pass has %zu bytes, must have %zu where there is an nccl_id",
                         msg->member_pass.len, sizeof desc->member_pass);
    }
    memcpy(desc->nccl_id, msg->nccl_id.data, sizeof desc->nccl_id);
    memcpy(desc->member_pass, msg->member_pass.data, sizeof desc->member_pass);
    desc->has_nccl_id = true;
    return 0;
}

static int eos_decode(const Outrider__Target__V1__Description *msg, struct target_description *desc,
                      struct error *err)
{
    int rc = codec_read_count(&desc->ends.n, msg->n_eos_ids, END_IDS_MAX, "eos_ids", err);
    for (int i = 0; i < desc->ends.n && !rc; i++) {
        desc->ends.ids[i] = msg->eos_ids[i];
        if (desc->ends.ids[i] < 0 || desc->ends.ids[i] >= desc->vocab_size) {
            rc = error_set(err, ERR_FORMAT, "eos_ids[%d] is %d, must be 0 to %d", i,
                           desc->ends.ids[i], desc->vocab_size - 1);
        }
    }
    return rc;
}

int target_description_decode(const uint8_t *data, size_t len, struct target_description *desc,
                              struct error *err)
{
    int rc = 0;
    struct arena arena = {0};
    *desc = (struct target_description){0};
    if (len > DESCRIPTION_BYTES_MAX) {
        return error_set(err, ERR_FORMAT, "a Description of %zu bytes, at most %d are taken", len,
                         DESCRIPTION_BYTES_MAX);
    }
    TRY(arena_open(&arena, DESCRIPTION_ARENA_BYTES, err));
    const Outrider__Target__V1__Description *msg =
        codec_unpack(&outrider__target__v1__description__descriptor, data, len, &arena, err);
    if (!msg) {
        rc = err->code;
        goto out;
    }
    TRY(names_decode(msg, desc, err));
    TRY(sizes_decode(msg, desc, err));
    desc->is_busy = msg->is_busy;
    TRY(ranks_decode(msg, desc, err));
    TRY(nccl_id_decode(msg, desc, err));
    TRY(projection_decode(msg, desc, err));
    TRY(look_ahead_decode(msg, desc, err));
    TRY(eos_decode(msg, desc, err));
    desc->model_fingerprint = msg->model_fingerprint;
    desc->tokenizer_fingerprint = msg->tokenizer_fingerprint;
out:
    arena_close(&arena);
    if (rc) *desc = (struct target_description){0};
    return rc;
}

const char *target_description_differs(const struct target_description *a,
                                       const struct target_description *b)
{
    const struct {
        bool is_equal;
        const char *name;
    } fields[] = {
        {a->model_fingerprint == b->model_fingerprint, "model"},
        {a->tokenizer_fingerprint == b->tokenizer_fingerprint, "tokenizer"},
        {a->vocab_size == b->vocab_size, "vocabulary size"},
        {strcmp(a->arithmetic, b->arithmetic) == 0, "arithmetic"},
        {a->n_slices == b->n_slices, "number of slices"},
        {a->n_slots == b->n_slots, "--slots"},
        {a->n_kv_blocks == b->n_kv_blocks, "--kv-tokens"},
        {a->max_step_tokens == b->max_step_tokens, "--max-step-tokens"},
        {a->max_step_rows == b->max_step_rows, "--max-step-rows"},
        {a->look_ahead.digest == b->look_ahead.digest, "look-ahead embeddings in --head"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!fields[i].is_equal) return fields[i].name;
    }
    return NULL;
}
