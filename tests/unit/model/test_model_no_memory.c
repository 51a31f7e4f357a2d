/* ctest: labels=quick libs=model fail_alloc=yes timeout=120 */
/* Opening and using a model while memory is short: each allocation fails once. */
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "comm/comm.h"
#include "model/backend/open.h"
#include "model/checkpoint/head.h"
#include "model/model.h"
#include "model/projection.h"
#include "tests/support/fail_alloc.h"

#define TALES  SOURCE_DIR "/deploy/models/tales/draft"
#define GOLDEN SOURCE_DIR "/tests/golden/models/"

enum { N_TOKENS = 5, N_BLOCKS = 4, N_BEST = 8, ARENA_BYTES = 1 << 16, FEATURES_MOST = 512 };

/* The files that a trial opens, and the best ids of its first time: where a trial does without an
 * allocation, they must be the same. */
struct subject {
    const char *name, *weights, *pack_cache;
    const char *target;     /* of a head; NULL: a model */
    const char *projection; /* head whose fc the model applies; NULL: none */
    bool has_head;          /* of some tokens only */
    bool has_places;        /* a head without layers */
    bool has_chain;         /* it is a block drafter, of which the tokens are a block */
    bool packs_anew;        /* without the file that the trial before left */
    int32_t best[N_BEST];
    int n_best;
};

static const int32_t head_ids[] = {1, 2, 3, 5, 8, 13, 21, 34, 55, 89};

static int keep_projected(struct model *model, struct error *err)
{
    const struct feature_wish wish = {
        .projection = {.key = model_projection(model), .n = 3, .boundaries = {0, 1, 3}}};
    return model_keep_features(model, &wish, err);
}

static int use(struct subject *subject, struct model *model, struct error *err)
{
    static const int32_t tokens[N_TOKENS] = {1, 7, 3, 90, 4}, blocks[] = {2, 0};
    const struct forward_lane lane = {0, N_TOKENS, tokens, blocks, NULL};
    const struct forward_row row = {0, N_TOKENS - 1};
    struct select_item best[N_BEST];
    struct arena arena;
    int rc = 0, n = N_BEST;
    TRY(arena_open(&arena, ARENA_BYTES, err));
    if (subject->target) {
        static const uint16_t features[N_TOKENS * FEATURES_MOST];
        const struct forward_lane place = {.n_tokens = 1};
        const struct forward_row first = {0, 0};
        const struct forward_lane *fed = subject->has_places ? &place : &lane;
        const struct forward_features given = {.target = features,
                                               .n_target = subject->has_chain ? 2 : fed->n_tokens};
        TRY(model_forward_head(model, fed, &given, 1, subject->has_places ? &first : &row, 1, err));
        if (subject->has_chain) TRY(model_chain_rows(model, &(int){0}, tokens, 1, err));
    } else {
        if (subject->projection) TRY(keep_projected(model, err));
        TRY(model_forward(model, &lane, 1, &row, 1, err));
    }
    if (subject->projection && !model_projected(model, 0, N_TOKENS)) {
        rc = error_set(err, ERR_INTERNAL, "the projected rows cannot be read");
        goto out;
    }
    TRY(model_best(model, 0, n, &arena, best, &n, err));
    if (subject->n_best && n != subject->n_best) {
        rc = error_set(err, ERR_INTERNAL, "%d logits, %d the first time", n, subject->n_best);
        goto out;
    }
    for (int i = 0; i < n; i++) {
        if (!subject->n_best) subject->best[i] = best[i].id;
        if (subject->best[i] != best[i].id) {
            rc = error_set(err, ERR_INTERNAL, "the logits are not those of the first time");
        }
    }
    subject->n_best = n;
out:
    arena_close(&arena);
    return rc;
}

static void empty_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder) closedir(folder);
}

static int open_and_use(void *arg, struct error *err)
{
    struct subject *subject = arg;
    struct checkpoint *ck = NULL, *target = NULL, *projection = NULL;
    struct head_options head = {0};
    struct backend *be = NULL;
    struct model *model = NULL;
    struct backend_options backend = {.device = "cpu",
                                      .weights = subject->weights,
                                      .kernels = "auto",
                                      .n_threads = 2,
                                      .pack_cache = subject->pack_cache};
    struct model_options options = {.n_kv_blocks = N_BLOCKS,
                                    .max_tokens = N_TOKENS,
                                    .max_rows = 1,
                                    .max_lanes = 1,
                                    .head_ids = subject->has_head ? head_ids : NULL,
                                    .n_head_ids = sizeof head_ids / sizeof *head_ids};
    int rc = 0;
    if (subject->packs_anew) empty_folder(subject->pack_cache);
    if (subject->target) {
        TRY(checkpoint_open(&target, subject->target, err));
        head.target = target;
        TRY(checkpoint_open_head(&ck, subject->name, &head, err));
    } else {
        TRY(checkpoint_open(&ck, subject->name, err));
    }
    if (subject->projection) {
        TRY(projection_open_head(&projection, subject->projection, ck, err));
        options.projection = projection;
    }
    backend.stored = checkpoint_config(ck)->stored;
    TRY(backend_open(&be, &backend, err));
    TRY(model_open(&model, ck, comm_single(), be, &options, err));
    TRY(use(subject, model, err));
out:
    model_close(model);
    if (be) be->ops->close(be);
    checkpoint_close(ck);
    checkpoint_close(target);
    checkpoint_close(projection);
    return rc;
}

static void fail_each(const char *what, struct subject subject, int kinds, long step)
{
    fail_alloc_each(what, open_and_use, &subject, kinds, step);
}

START_TEST(a_synthetic_model_survives_each_failure)
{
    fail_each("tiny", (struct subject){.name = "synthetic:tiny,seed=7"}, FAIL_ALL, 1);
    fail_each("tiny, int8", (struct subject){.name = "synthetic:tiny,seed=7", .weights = "int8"},
              FAIL_ALL, 1);
    fail_each("tiny, head", (struct subject){.name = "synthetic:tiny,seed=7", .has_head = true},
              FAIL_ALL, 1);
}
END_TEST

START_TEST(model_files_survive_each_failure)
{
    static const char *const names[] = {"llama_sharded", "qwen2_bias", "llama_f32", "llama_tied",
                                        "qwen3_norm_bias"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        snprintf(path, sizeof path, GOLDEN "%s", names[i]);
        fail_each(names[i], (struct subject){.name = path}, FAIL_ALL, 1);
    }
}
END_TEST

START_TEST(heads_survive_each_failure)
{
    static const char *const names[] = {"eagle1", "eagle3_flat", "eagle3_whole", "eagle3_parallel"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        snprintf(path, sizeof path, GOLDEN "../heads/%s", names[i]);
        fail_each(names[i], (struct subject){.name = path, .target = GOLDEN "llama_untied"},
                  FAIL_ALL, 1);
    }
    fail_each("medusa",
              (struct subject){.name = GOLDEN "../place_heads/medusa",
                               .target = GOLDEN "llama_untied",
                               .has_places = true},
              FAIL_ALL, 1);
    fail_each("blockwise",
              (struct subject){.name = GOLDEN "../place_heads/blockwise",
                               .target = GOLDEN "llama_tied",
                               .has_places = true},
              FAIL_ALL, 1);
    fail_each("dspark_flat",
              (struct subject){.name = GOLDEN "../block_heads/dspark_flat",
                               .target = GOLDEN "llama_untied",
                               .has_chain = true},
              FAIL_ALL, 1);
}
END_TEST

START_TEST(projections_survive_each_failure)
{
    static const char *const names[] = {"eagle3_flat", "eagle3_qwen3", "eagle3_whole"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        snprintf(path, sizeof path, GOLDEN "../heads/%s", names[i]);
        fail_each(names[i], (struct subject){.name = GOLDEN "llama_untied", .projection = path},
                  FAIL_ALL, 1);
    }
}
END_TEST

START_TEST(gguf_files_survive_each_failure)
{
    static const char *const names[] = {"llama_rope_llama3.bf16", "phi3_long_factors.bf16",
                                        "gemma3_two_ropes.bf16", "llama_wide_heads.q8_0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[512];
        snprintf(path, sizeof path, GOLDEN "../gguf/%s.gguf", names[i]);
        fail_each(names[i], (struct subject){.name = path}, FAIL_ALL, 1);
    }
}
END_TEST

START_TEST(the_shipped_draft_survives_each_failure)
{
    fail_each("tales", (struct subject){.name = TALES}, FAIL_ALL, 1);
}
END_TEST

START_TEST(packed_weights_on_disk_survive_each_failure)
{
    char folder[] = "/tmp/outrider-no-memory-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    struct subject subject = {.name = "synthetic:tiny,seed=7", .pack_cache = folder};
    fail_each("packed weights, read", subject, FAIL_ALL, 1);
    subject.packs_anew = true;
    fail_each("packed weights, written", subject, FAIL_ALL, 1);
    empty_folder(folder);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model without memory");
    TCase *all = tcase_create("all");
    tcase_add_test(all, a_synthetic_model_survives_each_failure);
    tcase_add_test(all, model_files_survive_each_failure);
    tcase_add_test(all, heads_survive_each_failure);
    tcase_add_test(all, projections_survive_each_failure);
    tcase_add_test(all, gguf_files_survive_each_failure);
    tcase_add_test(all, the_shipped_draft_survives_each_failure);
    tcase_add_test(all, packed_weights_on_disk_survive_each_failure);
    suite_add_tcase(suite, all);
    return check_main(suite);
}
