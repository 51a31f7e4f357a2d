/* Where a rank's packed weights are kept on disk, and by which key they are found again. */
#pragma once

#include "model/backend/backend.h"
#include "model/backend/pack_cache.h"
#include "model/shard.h"

/* Opens the cache that be->pack_folder asks for and sets be->cache; *cache stays as it is where
 * none is asked for. head_ids: as in weights_open. Errors: ERR_NO_MEMORY; ERR_ARGUMENT there is no
 * folder for "auto". */
int weights_cache_open(struct pack_cache **cache, const struct checkpoint *ck,
                       const struct shard *shard, const int32_t *head_ids, struct backend *be,
                       struct error *err);
