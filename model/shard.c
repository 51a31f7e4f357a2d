/* Which part of a model a rank holds. */
#include "model/shard.h"

#include "model/logits/row.h"

int shard_init(struct shard *shard, const struct model_config *cfg, int n_vocab, int rank,
               int n_ranks, struct error *err)
{
    int s = config_slices(cfg);
    if (!config_takes_ranks(cfg, n_ranks)) {
        char fits[48];
        config_rank_list(cfg, ", ", fits, sizeof fits);
        return error_set(
            err, ERR_ARGUMENT,
            "%d ranks cannot share this model: its %d heads, %d kv heads and FFN width "
            "%d are cut into %d slice%s, so T must be %s%s",
            n_ranks, cfg->n_heads, cfg->n_kv_heads, cfg->ffn_dim, s, s == 1 ? "" : "s",
            s == 1 ? "" : "one of ", fits);
    }
    if (n_vocab < 1 || n_vocab > cfg->vocab_size) {
        return error_set(err, ERR_ARGUMENT, "%d ids do not fit a vocabulary of %d", n_vocab,
                         cfg->vocab_size);
    }
    int local = s / n_ranks;
    int32_t first_id;
    *shard = (struct shard){
        .rank = rank,
        .n_ranks = n_ranks,
        .n_slices = s,
        .first_slice = rank * local,
        .n_local = local,
        .n_heads = cfg->n_heads / n_ranks,
        .n_kv_heads = cfg->n_kv_heads >= n_ranks ? cfg->n_kv_heads / n_ranks : 1,
        .ffn_dim = cfg->ffn_dim / n_ranks,
        .slice_head_cols = cfg->n_heads / s * cfg->head_dim,
        .slice_ffn = cfg->ffn_dim / s,
        .n_vocab = n_vocab,
    };
    shard->first_head = rank * shard->n_heads;
    shard->first_kv_head = rank * cfg->n_kv_heads / n_ranks;
    shard->first_ffn = rank * shard->ffn_dim;
    /* The first slice has the rounded width unless it is the whole vocabulary. */
    row_slice_range(n_vocab, s, 0, &first_id, &shard->vocab_slice);
    shard->vocab_slice = (shard->vocab_slice + 63) / 64 * 64;
    return 0;
}
