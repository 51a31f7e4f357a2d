/* ctest: labels=quick libs=coordinator timeout=60 */
/* The rule that judges independent chains: a request's own choice, which is refused where it would
 * never apply, and the coordinator's for others. Texts that keep to chains because their rows name
 * too many ids. */
#include "coordinator/draft/trees_option.h"
#include "tests/support/sequence_world.h"

enum { VOCAB = 300, CONTEXT = 64 };

static const struct end_ids ends;
static struct sequence_defaults defaults;
static struct tokenizer *tok;

static struct job *ask(const char *tree_rule, const char *rule, float temperature, int n_draft)
{
    static const int32_t prompt[] = {7};
    struct job *job = new_job(JOB_GENERATE, prompt, 1);
    job->generate.tree_rule = tree_rule;
    job->generate.rule = rule;
    job->generate.sampling.temperature = temperature;
    job->generate.n_draft = n_draft;
    return job;
}

static void setup(void)
{
    struct error err;
    CHECK_OK(tokenizer_open_bytes(&tok, VOCAB, &err));
    defaults = (struct sequence_defaults){.n_draft = -1,
                                          .strategy = STRATEGY_PLANNED,
                                          .context_limit = CONTEXT,
                                          .vocab_size = VOCAB,
                                          .ends = &ends,
                                          .has_draft = true,
                                          .has_chains = true};
}

static void teardown(void)
{
    tokenizer_close(tok);
}

START_TEST(a_request_gets_its_own_or_the_coordinators)
{
    static const struct {
        enum tree_rule_id standard;
        const char *tree_rule, *rule;
        float temperature;
        int n_draft;
        enum tree_rule_id wanted;
    } cases[] = {
        {TREE_RULE_AUTO, "", "rejection", 1, 4, TREE_RULE_AUTO},
        {TREE_RULE_AUTO, "k-sequential", "rejection", 1, 4, TREE_RULE_K_SEQUENTIAL},
        {TREE_RULE_AUTO, "multi-path", "block", 0.5F, 2, TREE_RULE_MULTI_PATH},
        {TREE_RULE_MULTI_PATH, "k-sequential", "block", 1, 4, TREE_RULE_K_SEQUENTIAL},
        {TREE_RULE_MULTI_PATH, "auto", "block", 1, 4, TREE_RULE_AUTO},
        {TREE_RULE_MULTI_PATH, "", "block", 1, 4, TREE_RULE_MULTI_PATH},
        /* a default applies where it can, so it is no reason to refuse */
        {TREE_RULE_MULTI_PATH, "", "greedy", 0, 4, TREE_RULE_MULTI_PATH},
        {TREE_RULE_MULTI_PATH, "", "block", 1, -1, TREE_RULE_MULTI_PATH},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        defaults.tree_rule = &tree_rules[cases[i].standard];
        struct job *job =
            ask(cases[i].tree_rule, cases[i].rule, cases[i].temperature, cases[i].n_draft);
        struct sequence *seq = first_sequence(job, tok, &defaults);
        ck_assert_str_eq(seq->tree_rule->name, tree_rules[cases[i].wanted].name);
        sequence_close(seq);
    }
    defaults.tree_rule = NULL;
    struct sequence *seq = first_sequence(ask("", "block", 1, 4), tok, &defaults);
    ck_assert(seq->tree_rule == &tree_rules[TREE_RULE_AUTO]);
    sequence_close(seq);
}
END_TEST

START_TEST(what_would_never_apply_is_refused)
{
    static const struct {
        const char *tree_rule, *rule;
        float temperature;
        int n_draft;
        bool has_chains;
        const char *why;
    } cases[] = {
        {"spectr", "rejection", 1, 4, true,
         "'spectr' is no tree rule; there are auto, k-sequential and multi-path"},
        {"k-sequential", "greedy", 0, 4, true, "rule greedy at temperature 0 does not"},
        {"k-sequential", "coupled", 1, 4, true, "rule coupled at temperature 1 does not"},
        {"multi-path", "naive", 1, 4, true, "rule naive at temperature 1 does not"},
        {"multi-path", "block", 0, 4, true, "rule block at temperature 0 does not"},
        {"multi-path", "block", 1, -1, true, "but the strategy is planned; set n_draft"},
        {"multi-path", "block", 1, 4, false, "start it with --trees chains:KxL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sequence *seq;
        struct error err;
        defaults.has_chains = cases[i].has_chains;
        struct job *job =
            ask(cases[i].tree_rule, cases[i].rule, cases[i].temperature, cases[i].n_draft);
        CHECK_ERR(sequence_open(&seq, job, 0, tok, &defaults, &err), ERR_ARGUMENT, cases[i].why);
        job_free(job);
    }
}
END_TEST

/* Each row of a step names the ids of the text so far and of the biases, and a tree has several
 * times the rows of a chain. */
START_TEST(text_whose_edits_may_name_more_than_8192_ids_keeps_to_chains)
{
    enum { N_BIASES = 3, WIDE = 8192 };
    static struct token_bias biases[N_BIASES] = {{1, 1}, {2, 1}, {3, 1}};
    static const struct tree_widths widths;
    static const struct {
        int context;
        bool has_edits, has_tree;
    } cases[] = {{WIDE - N_BIASES, true, true},
                 {WIDE - N_BIASES + 1, true, false},
                 {WIDE - N_BIASES + 1, false, true},
                 {4 * WIDE, true, false}};
    defaults.siblings_max = SIBLINGS_MAX;
    defaults.grows = true;
    defaults.tree = &widths;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int n_draft = -1; n_draft <= 4; n_draft += 5) {
            struct error err;
            defaults.context_limit = cases[i].context;
            struct job *job = ask("", "rejection", 1, n_draft);
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
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tree_rule");
    TCase *tcase = tcase_create("requests");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_request_gets_its_own_or_the_coordinators);
    tcase_add_test(tcase, what_would_never_apply_is_refused);
    tcase_add_test(tcase, text_whose_edits_may_name_more_than_8192_ids_keeps_to_chains);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
