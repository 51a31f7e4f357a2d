/* ctest: labels=quick libs=coordinator timeout=60 */
/* How many bytes of weights a guess of a head reads, by which its threads are chosen. */
#include "coordinator/draft/model_draft.h"
#include "model/checkpoint/head.h"
#include "tests/support/check_util.h"

#define GOLDEN SOURCE_DIR "/tests/golden/"

enum { VOCAB = 320 };

/* The matrices of all places, fc, the layers, and the rows of lm_head that are scored, its own or
 * the target's; not the embedding, of which a guess reads a row. */
START_TEST(weights_that_a_guess_reads_are_counted)
{
    struct error err;
    enum { D = 64, PLACES = 3, HIDDEN = 160 };
    static const struct {
        const char *folder, *target;
        double n_elements;
    } counted[] = {
        {"place_heads/medusa", "models/llama_untied", 4 * (D * D + D + VOCAB * D)},
        {"place_heads/medusa_shared", "models/llama_untied", 3 * (D * D + D) + VOCAB * D},
        {"place_heads/blockwise", "models/llama_tied",
         HIDDEN * D + HIDDEN + PLACES * (D * HIDDEN + D) + VOCAB * D},
    };
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        struct checkpoint *target, *ck;
        char folder[256], target_folder[256];
        snprintf(folder, sizeof folder, GOLDEN "%s", counted[i].folder);
        snprintf(target_folder, sizeof target_folder, GOLDEN "%s", counted[i].target);
        CHECK_OK(checkpoint_open(&target, target_folder, &err));
        const struct head_options lent = {.target = target};
        CHECK_OK(checkpoint_open_head(&ck, folder, &lent, &err));
        ck_assert_double_eq(head_draft_weight_bytes(ck), 2 * counted[i].n_elements);
        checkpoint_close(ck);
        checkpoint_close(target);
    }
    /* A reduced vocabulary: lm_head has 128 rows, its own, and the embedding is the target's. */
    struct checkpoint *ck;
    CHECK_OK(checkpoint_open_head(&ck, GOLDEN "heads/eagle3_flat", NULL, &err));
    const struct model_config *cfg = checkpoint_config(ck);
    double entry = (double)cfg->dim * 3 * checkpoint_head(ck)->entry.feature_dim;
    struct model_config without = *cfg;
    without.vocab_size = 128;
    double least = model_draft_weight_bytes(&without) + 2 * entry;
    ck_assert(head_draft_weight_bytes(ck) >= least);
    /* q, k and v read two widths side by side; norms come on top. */
    double kv = 2.0 * cfg->n_kv_heads * cfg->head_dim, q = (double)cfg->n_heads * cfg->head_dim;
    ck_assert(head_draft_weight_bytes(ck) < 1.01 * (least + 2 * cfg->dim * (q + kv)));
    checkpoint_close(ck);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_weights");
    TCase *tcase = tcase_create("head_weights");
    tcase_add_test(tcase, weights_that_a_guess_reads_are_counted);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
