/* ctest: labels=quick libs=model timeout=60 */
/* How a model is cut: whatever its heads and its vocabulary are, the ranks of every T that can
 * share it hold each head, each FFN column and each id once, and a query head is always on the rank
 * of its kv head. */
#include <string.h>

#include "base/limits.h"
#include "model/logits/row.h"
#include "model/shard.h"
#include "tests/support/check_util.h"

static struct model_config config_of(int n_heads, int n_kv_heads, int ffn_dim, int vocab_size)
{
    return (struct model_config){.n_layers = 1,
                                 .dim = 64,
                                 .n_heads = n_heads,
                                 .n_kv_heads = n_kv_heads,
                                 .head_dim = 16,
                                 .ffn_dim = ffn_dim,
                                 .vocab_size = vocab_size};
}

/* The kv head that local query head h of the rank reads, counted over the whole model. */
static int kv_head_read(const struct shard *shard, int h)
{
    return shard->first_kv_head + h / (shard->n_heads / shard->n_kv_heads);
}

static void check_rank(const struct model_config *cfg, const struct shard *shard)
{
    ck_assert_int_eq(shard->n_heads * shard->n_ranks, cfg->n_heads);
    ck_assert_int_eq(shard->ffn_dim * shard->n_ranks, cfg->ffn_dim);
    ck_assert_int_eq(shard->n_local * shard->n_ranks, shard->n_slices);
    ck_assert_int_eq(shard->slice_head_cols * shard->n_local, shard->n_heads * cfg->head_dim);
    ck_assert_int_eq(shard->slice_ffn * shard->n_local, shard->ffn_dim);
    ck_assert_int_eq(shard->slice_ffn % 2, 0);
    ck_assert_int_eq(shard->n_heads % shard->n_kv_heads, 0);
    for (int h = 0; h < shard->n_heads; h++) {
        int whole = shard->first_head + h;
        ck_assert_msg(kv_head_read(shard, h) == whole / (cfg->n_heads / cfg->n_kv_heads),
                      "%d heads, %d kv heads, rank %d of %d: head %d reads kv head %d",
                      cfg->n_heads, cfg->n_kv_heads, shard->rank, shard->n_ranks, whole,
                      kv_head_read(shard, h));
    }
}

static int n_with[SLICES_MAX + 1]; /* shapes that were cut into so many slices */

static void check_shape(int n_heads, int n_kv_heads, int ffn_dim)
{
    struct error err;
    const struct model_config cfg = config_of(n_heads, n_kv_heads, ffn_dim, 1000);
    int s = config_slices(&cfg);
    ck_assert(s >= 1 && s <= SLICES_MAX);
    for (int n_ranks = 1; n_ranks <= s; n_ranks++) {
        int next_head = 0, next_ffn = 0;
        struct shard refused;
        if (!config_takes_ranks(&cfg, n_ranks)) {
            ck_assert(s % n_ranks != 0 || (s == 6 && n_ranks == 2 && n_kv_heads == 3));
            CHECK_ERR(shard_init(&refused, &cfg, 1000, 0, n_ranks, &err), ERR_ARGUMENT,
                      "cannot share this model");
            continue;
        }
        for (int rank = 0; rank < n_ranks; rank++) {
            struct shard shard;
            CHECK_OK(shard_init(&shard, &cfg, 1000, rank, n_ranks, &err));
            check_rank(&cfg, &shard);
            ck_assert_int_eq(shard.first_head, next_head);
            ck_assert_int_eq(shard.first_ffn, next_ffn);
            next_head += shard.n_heads;
            next_ffn += shard.ffn_dim;
        }
    }
    struct shard shard;
    const char *fits = s == 1   ? "1 slice, so T must be 1"
                       : s == 3 ? "3 slices, so T must be one of 1, 3"
                       : s == 5 ? "5 slices, so T must be one of 1, 5"
                       : s == 6 ? "6 slices, so T must be one of 1, 3, 6"
                       : s == 7 ? "7 slices, so T must be one of 1, 7"
                                : "T must be one of 1, 2";
    n_with[s]++;
    CHECK_ERR(shard_init(&shard, &cfg, 1000, 0, 2 * s, &err), ERR_ARGUMENT, fits);
    CHECK_ERR(shard_init(&shard, &cfg, 1000, 0, 0, &err), ERR_ARGUMENT, fits);
}

START_TEST(every_head_lies_beside_its_kv_head)
{
    memset(n_with, 0, sizeof n_with);
    const int ffn_dims[] = {2, 6, 12, 48, 70, 84, 256, 1536, 4864, 17920, 28672};
    for (int n_kv_heads = 1; n_kv_heads <= 16; n_kv_heads++) {
        for (int n_heads = n_kv_heads; n_heads <= 64; n_heads += n_kv_heads) {
            for (size_t f = 0; f < sizeof ffn_dims / sizeof *ffn_dims; f++) {
                check_shape(n_heads, n_kv_heads, ffn_dims[f]);
            }
        }
    }
    for (int s = 1; s <= SLICES_MAX; s++) {
        ck_assert_msg(n_with[s] > 0, "no shape was cut into %d slices", s);
    }
}
END_TEST

START_TEST(known_models_have_the_slices_of_the_design)
{
    const struct {
        int n_heads, n_kv_heads, ffn_dim, n_slices;
    } known[] = {
        {14, 2, 4864, 2},   /* qwen2.5-0.5b */
        {12, 2, 8960, 4},   /* qwen2.5-1.5b */
        {28, 4, 18944, 4},  /* qwen2.5-7b */
        {32, 8, 14336, 8},  /* llama-3.1-8b */
        {64, 8, 28672, 8},  /* llama-3.1-70b */
        {24, 8, 8192, 8},   /* llama-3.2-3b */
        {71, 71, 18176, 1}, /* odd heads */
        {36, 6, 1536, 2},   /* kv heads neither a multiple of 4 nor a divisor */
        {9, 3, 1536, 3},    /* smollm2-135m */
        {15, 5, 2560, 5},   /* smollm2-360m */
        {24, 3, 1536, 6},   /* 2 ranks cannot hold 3 kv heads */
        {9, 1, 1536, 3},    /* odd heads, one kv head */
        {14, 7, 3584, 7},   /* 7 kv heads */
        {40, 10, 17920, 2}, /* a power of two where there is one */
        {32, 1, 14336, 8},  /* one kv head */
        {8, 4, 6, 1},       /* half of the FFN width is odd */
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct model_config cfg =
            config_of(known[i].n_heads, known[i].n_kv_heads, known[i].ffn_dim, 1000);
        ck_assert_msg(config_slices(&cfg) == known[i].n_slices, "%d heads, %d kv heads: S = %d",
                      known[i].n_heads, known[i].n_kv_heads, config_slices(&cfg));
    }
}
END_TEST

/* A stored group of weights is not cut by three slices, which no power of two asks for. */
START_TEST(stored_groups_stay_whole)
{
    struct model_config cfg = config_of(9, 3, 1536, 1000);
    ck_assert_int_eq(config_slices(&cfg), 3);
    cfg.stored = WEIGHTS_INT4; /* three heads of 16 columns are one group and a half of 32 */
    ck_assert_int_eq(config_slices(&cfg), 1);
    cfg.head_dim = 64;
    ck_assert_int_eq(config_slices(&cfg), 3);
}
END_TEST

/* A rank's columns of the head begin where its first slice does, and ranks do not overlap. */
START_TEST(every_id_lies_in_one_slice)
{
    struct error err;
    const int vocabularies[] = {1, 2, 63, 64, 65, 100, 511, 512, 513, 1000, 4096, 128256, 151936};
    const struct model_config cfg = config_of(8, 8, 256, 1 << 24);
    for (size_t i = 0; i < sizeof vocabularies / sizeof *vocabularies; i++) {
        int32_t next_id = 0;
        for (int slice = 0; slice < 8; slice++) {
            int n_vocab = vocabularies[i], n_cols;
            int32_t first_id;
            struct shard shard;
            CHECK_OK(shard_init(&shard, &cfg, n_vocab, slice / 2, 4, &err));
            row_slice_range(n_vocab, shard.n_slices, slice, &first_id, &n_cols);
            ck_assert_int_eq(first_id, next_id);
            ck_assert_int_le(n_cols, shard.vocab_slice);
            ck_assert_int_eq(shard.vocab_slice % 64, 0);
            if (n_cols > 0) ck_assert_int_eq(first_id, slice * shard.vocab_slice);
            next_id += n_cols;
        }
        ck_assert_int_eq(next_id, vocabularies[i]);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shard");
    TCase *tcase = tcase_create("cuts");
    tcase_add_test(tcase, every_head_lies_beside_its_kv_head);
    tcase_add_test(tcase, known_models_have_the_slices_of_the_design);
    tcase_add_test(tcase, stored_groups_stay_whole);
    tcase_add_test(tcase, every_id_lies_in_one_slice);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
