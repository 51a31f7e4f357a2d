/* ctest: labels=quick libs=coordinator timeout=60 */
/* The rule that judges independent chains: a request's own choice, which is refused where it would
 * never apply, and the coordinator's for others. */
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

int main(void)
{
    Suite *suite = suite_create("tree_rule");
    TCase *tcase = tcase_create("requests");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_request_gets_its_own_or_the_coordinators);
    tcase_add_test(tcase, what_would_never_apply_is_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
