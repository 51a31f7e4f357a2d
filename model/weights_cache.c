/* Opening the cache of packed weights for one rank of a model. */
#include "model/weights_cache.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "model/backend/pack_folder.h"

enum { SHARD_TEXT_BYTES = 160 };

/* The key includes the shard's numbers because they decide which rows and columns are packed. */
int weights_cache_open(struct pack_cache **cache, const struct checkpoint *ck,
                       const struct shard *shard, const int32_t *head_ids, struct backend *be,
                       struct error *err)
{
    char own[PACK_FOLDER_BYTES], text[SHARD_TEXT_BYTES];
    const char *folder = be->pack_folder;
    int rc = 0;
    if (!be->pack_folder) return 0;
    if (strcmp(folder, "auto") == 0) {
        TRY(pack_folder_find(own, folder, checkpoint_name(ck), checkpoint_is_synthetic(ck), err));
        folder = own;
    }
    int len =
        snprintf(text, sizeof text, "%d %d %d %d %d %d %d %d %d %d %d %d %d", shard->n_slices,
                 shard->first_slice, shard->n_local, shard->first_head, shard->n_heads,
                 shard->first_kv_head, shard->n_kv_heads, shard->first_ffn, shard->ffn_dim,
                 shard->slice_head_cols, shard->slice_ffn, shard->n_vocab, shard->vocab_slice);
    uint64_t shard_digest = XXH3_64bits(text, (size_t)len);
    if (head_ids) {
        shard_digest =
            XXH3_64bits_withSeed(head_ids, (size_t)shard->n_vocab * sizeof *head_ids, shard_digest);
    }
    const struct pack_cache_key key = {.fingerprint = checkpoint_fingerprint(ck),
                                       .stamp = checkpoint_stamp(ck),
                                       .shard = shard_digest,
                                       .arithmetic = be->ops->arithmetic,
                                       .rank = shard->rank,
                                       .n_ranks = shard->n_ranks};
    TRY(pack_cache_open(cache, folder, &key, err));
    be->cache = *cache;
out:
    return rc;
}
