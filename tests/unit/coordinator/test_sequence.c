/* ctest: labels=quick libs=coordinator timeout=60 */
/* Sequences, and which of the coordinator's defaults they take. */
#include "coordinator/draft/trees_option.h"
#include "tests/support/sequence_world.h"

enum { VOCAB = 300, N_BIASES = 3, WIDE = 8192 };

/* Each row of a step names the ids of the text so far and of the biases, and a tree has several
 * times the rows of a chain. */
START_TEST(text_whose_edits_may_name_more_than_8192_ids_keeps_to_chains)
{
    static const int32_t prompt[] = {7};
    static const struct end_ids ends;
    static const struct tree_widths widths;
    static struct token_bias biases[N_BIASES] = {{1, 1}, {2, 1}, {3, 1}};
    static const struct {
        int context;
        bool has_edits, has_tree;
    } cases[] = {{WIDE - N_BIASES, true, true},
                 {WIDE - N_BIASES + 1, true, false},
                 {WIDE - N_BIASES + 1, false, true},
                 {4 * WIDE, true, false}};
    struct sequence_defaults defaults = {.n_draft = -1,
                                         .strategy = STRATEGY_PLANNED,
                                         .vocab_size = VOCAB,
                                         .ends = &ends,
                                         .has_draft = true,
                                         .siblings_max = SIBLINGS_MAX,
                                         .grows = true,
                                         .tree = &widths};
    struct tokenizer *tok;
    struct error err;
    CHECK_OK(tokenizer_open_bytes(&tok, VOCAB, &err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int n_draft = -1; n_draft <= 4; n_draft += 5) {
            defaults.context_limit = cases[i].context;
            struct job *job = new_job(JOB_GENERATE, prompt, 1);
            job->generate.tree_rule = "";
            job->generate.rule = "rejection";
            job->generate.sampling.temperature = 1;
            job->generate.n_draft = n_draft;
            job->generate.biases = biases;
            job->generate.n_biases = cases[i].has_edits ? N_BIASES : 0;
            struct sequence *seq = first_sequence(job, tok, &defaults);
            CHECK_OK(sequence_open_tokens(seq, 16, &err));
            bool is_planned = n_draft < 0;
            ck_assert((seq->siblings_max > 0) == (is_planned && cases[i].has_tree));
            ck_assert(seq->grows == (is_planned && cases[i].has_tree));
            ck_assert((seq->tree != NULL) == (!is_planned && cases[i].has_tree));
            sequence_close(seq);
        }
    }
    tokenizer_close(tok);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sequence");
    TCase *tcase = tcase_create("defaults");
    tcase_add_test(tcase, text_whose_edits_may_name_more_than_8192_ids_keeps_to_chains);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
