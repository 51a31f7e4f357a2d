/* The codecs of target.proto on any bytes. The first byte chooses the message and, with its top
 * bit, a small arena. What is accepted must be the same after it is encoded, decoded and encoded
 * again. */
/* ctest: libs=proto */
#include <stdlib.h>
#include <string.h>

#include "base/tree_layout.h"
#include "proto/target_wire.h"

enum { N_VOCAB = 4096, N_SLICES = 4, ARENA_BYTES = 16 << 20, SMALL_ARENA_BYTES = 2048 };

union message {
    struct step step;
    struct step_reply reply;
    struct target_description description;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int decode(int kind, const uint8_t *data, size_t len, struct arena *arena,
                  union message *message)
{
    struct error err;
    switch (kind) {
    case 0:
        return step_decode(data, len, arena, &message->step, &err);
    case 1:
        return step_reply_decode(data, len, N_VOCAB, N_SLICES, arena, &message->reply, &err);
    default:
        return target_description_decode(data, len, &message->description, &err);
    }
}

static void encode(int kind, const union message *message, struct buffer *buf)
{
    struct error err;
    int rc = kind == 0   ? step_encode(buf, &message->step, &err)
             : kind == 1 ? step_reply_encode(buf, &message->reply, &err)
                         : target_description_encode(buf, &message->description, &err);
    if (rc) abort();
}

/* Checks what the forward pass and the ranks rely on when a step is accepted: every guess is in a
 * path, paths are at least as many as the tails need, and no further. */
static void check_trees(const struct step *step)
{
    for (int i = 0; i < step->n_lanes; i++) {
        const struct step_lane *lane = &step->lanes[i];
        struct tree_layout tree;
        struct error err;
        if (!lane->parents) continue;
        if (tree_layout_init(&tree, lane->parents, lane->n_draft, &err)) abort();
        if (lane->n_tails < tree.n_paths - 1 || lane->n_tails > TREE_TAILS_MAX) abort();
        for (int n = 0; n < tree.n_nodes; n++) {
            int first = tree.first_path[n], end = tree.end_path[n];
            if (first >= end || end > tree.n_paths || tree.depth[n] > tree.leaf_depth[first])
                abort();
        }
    }
}

/* The rows whose features are wanted exist, and so do boundaries. */
static void check_features(const struct step *step)
{
    const struct feature_wish *wish = &step->features;
    if (wish->n < 0 || wish->n > FEATURE_BOUNDARIES_MAX) abort();
    for (int b = 1; b < wish->n; b++) {
        if (wish->boundaries[b] <= wish->boundaries[b - 1]) abort();
    }
    for (int i = 0; i < step->n_lanes; i++) {
        const struct step_lane *lane = &step->lanes[i];
        if (lane->feature_first < 0 || lane->n_features < 0) abort();
        if (lane->n_features > lane->n_tokens - lane->feature_first) abort();
        if (lane->n_features && feature_wish_is_empty(wish)) abort();
    }
    const struct feature_projection *projection = &wish->projection;
    if (projection->key.digest == 0) return;
    struct feature_wish kept = feature_wish_kept(wish); /* asserts that it has room */
    if (feature_wish_columns(&kept) == 0 || projection->n > FEATURE_WISH_MAX) abort();
    if (projection->key.width < 1 || projection->key.width > PROJECTION_WIDTH_MAX) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct arena arenas[2];
    static struct buffer first, second;
    struct error err;
    if (!arenas[0].base &&
        (arena_open(&arenas[0], ARENA_BYTES, &err) || arena_open(&arenas[1], ARENA_BYTES, &err))) {
        abort();
    }
    if (!len) return 0;
    int kind = (data[0] & 0x7f) % 3;
    struct arena arena = arenas[0];
    if (data[0] & 0x80) arena.size_bytes = SMALL_ARENA_BYTES;
    union message message, again;
    if (decode(kind, data + 1, len - 1, &arena, &message)) return 0;
    if (kind == 0) check_trees(&message.step);
    if (kind == 0) check_features(&message.step);
    encode(kind, &message, &first);
    arena_reset(&arenas[1]);
    if (decode(kind, first.data, first.len, &arenas[1], &again)) abort();
    encode(kind, &again, &second);
    if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0) abort();
    return 0;
}
