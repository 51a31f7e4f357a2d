/* The options that say how to generate: one table for `outrider generate`, `outrider bench` and
 * whatever else sends requests. */
#include "client/request_options.h"

#include <string.h>

#include "base/limits.h"
#include "base/text/options.h"
#include "client/client.h"
#include "speculation/accept/rules.h"

enum { TOP_K_MAX = 1 << 24, TOKENS_MAX = 1 << 28, DEADLINE_MAX_MS = 1000 * 86400 };

/* In the order of enum job_class. */
static const char *const class_names[JOB_CLASSES] = {
    [JOB_CLASS_NORMAL] = "normal", [JOB_CLASS_HIGH] = "high", [JOB_CLASS_LOW] = "low"};

static int read_rule(void *field, const char *option, const char *text, struct error *err)
{
    int word;
    int rc = options_word(&word, option, text, accept_rule_names, RULE_COUNT, err);
    if (!rc) *(const char **)field = accept_rule_names[word];
    return rc;
}

static void list_rules(char *text, size_t size)
{
    rule_list(text, size, "or");
}

static int read_tree_rule(void *field, const char *option, const char *text, struct error *err)
{
    int word;
    int rc = options_word(&word, option, text, tree_rule_names, TREE_RULE_COUNT, err);
    if (!rc) *(const char **)field = tree_rule_names[word];
    return rc;
}

static void list_tree_rules(char *text, size_t size)
{
    tree_rule_list(text, size, "or");
}

static int read_client(void *field, const char *option, const char *text, struct error *err)
{
    if (strlen(text) > GENERATE_WORD_BYTES_MAX) {
        return error_set(err, ERR_ARGUMENT, "%s: '%.20s...' has more than %d bytes", option, text,
                         GENERATE_WORD_BYTES_MAX);
    }
    *(const char **)field = text;
    return 0;
}

#define FIELD(member) OPTION_FIELD(struct generate_options, member)

const struct option_row request_rows[] = {
    OPTION_GROUP("Text", "--max-tokens=200 --stop=END"),
    {"max-tokens", 'n', "N", FIELD(request.max_tokens), .least = 1, .most = TOKENS_MAX,
     .help = "Tokens to generate at most; default: what fits the context"},
    {"min-tokens", 0, "N", FIELD(request.min_tokens), .most = TOKENS_MAX, .standard = "0",
     .help = "No end of sequence and no --stop-id before N tokens"},
    {"stop", 0, "STRING", .read = edit_add_stop,
     .help = "End before STRING; may be given up to 16 times"},
    {"stop-id", 0, "ID", .read = edit_add_stop_id,
     .help = "The token ID ends the text as an end of sequence does; may be given up to 64 "
             "times"},
    {"ignore-eos", 0, NULL, FIELD(request.ignore_eos), .help = "Go on after an end of sequence"},
    {"no-bos", 0, NULL, FIELD(request.adds_no_special),
     .help = "Add no token at the beginning or end of the prompt"},
    {"no-special", 0, NULL, FIELD(request.parses_no_special),
     .help = "Texts of special tokens in the prompt are plain text; otherwise they become "
             "these tokens"},
    OPTION_GROUP("Sampling", "--temperature=0.7 --top-p=0.9"),
    {"temperature", 0, "T", FIELD(request.sampling.temperature),
     .most = (double)SAMPLING_TEMPERATURE_MAX,
     .help = "0 = greedy; default: as the model says, or 1"},
    {"top-k", 0, "N", FIELD(request.sampling.top_k), .most = TOP_K_MAX,
     .help = "Keep the N best tokens, 0 = all; default: as the model says, or all"},
    {"top-p", 0, "P", FIELD(request.sampling.top_p), .most = 1,
     .help = "Keep the best tokens up to a mass of P, 1 = all; default: as the model says, or "
             "all"},
    {"min-p", 0, "P", FIELD(request.sampling.min_p), .most = 1,
     .help = "Keep tokens of at least P times the best, 0 = all; default: as the model says, "
             "or all"},
    {"seed", 0, "N", FIELD(request.seed),
     .also = offsetof(struct generate_options, request.has_seed),
     .help = "Same seed, same text (with rule rejection or block: at a fixed K); default: the "
             "coordinator chooses"},
    {"repetition-penalty", 0, "R", FIELD(request.repetition_penalty),
     .least = (double)REPETITION_PENALTY_MIN, .most = (double)REPETITION_PENALTY_MAX,
     .help = "Divide positive logits of tokens of prompt and answer by R, and multiply "
             "negative ones; 1 = off; default: as the model says, or off"},
    {"presence-penalty", 0, "X", FIELD(request.presence_penalty), .least = -2, .most = 2,
     .standard = "0",
     .help = "Take X, -2 to 2, from the logits of tokens that the answer has already"},
    {"frequency-penalty", 0, "X", FIELD(request.frequency_penalty), .least = -2, .most = 2,
     .standard = "0",
     .help = "Take X, -2 to 2, from a token's logit for each time that the answer has it"},
    {"logit-bias", 0, "ID=X", .read = edit_add_bias,
     .help = "Add X, -100 to 100, to the logit of token ID; may be given up to 1024 times"},
    {"ban-ids", 0, "IDS", .read = edit_add_ban_ids,
     .help = "The token ids 1,2,3 never follow each other where the last of them is in the "
             "answer; those before it may end the prompt, as with transformers; may be given "
             "up to 256 times"},
    OPTION_GROUP("Speculation", "--strategy=fixed -K 4"),
    {"draft-tokens", 'K', "K", FIELD(request.n_draft), .most = DRAFT_MAX,
     .help = "Guesses per round, 0 to 16; 0 = plain decoding; with a strategy that chooses: "
             "the most of a round; default: the coordinator's"},
    {"strategy", 0, "NAME", FIELD(request.strategy), .words = strategy_names + STRATEGY_PLANNED,
     .n_words = N_STRATEGIES - STRATEGY_PLANNED, .least = STRATEGY_PLANNED,
     .help = "How the number of guesses comes about: planned (what is measured to be "
             "fastest), fixed, heuristic (2 more after a round whose guesses all stayed, "
             "otherwise 1 less) or threshold; default: fixed with -K, otherwise the "
             "coordinator's"},
    {"threshold", 0, "P", FIELD(request.threshold), .most = 1,
     .also = offsetof(struct generate_options, request.has_threshold),
     .help = "Strategy threshold: a round ends with the first guess that the draft gave less "
             "than P; default: the coordinator's"},
    {"rule", 0, "RULE", OPTION_READ(struct generate_options, request.rule, read_rule),
     .names = list_rules,
     .help = "Acceptance: NAMES; default: greedy at temperature 0, coupled with a seed, "
             "otherwise rejection"},
    {"tree-rule", 0, "RULE",
     OPTION_READ(struct generate_options, request.tree_rule, read_tree_rule),
     .names = list_tree_rules,
     .help = "What judges independent chains of guesses (--trees=chains:KxL of the coordinator) "
             "at a fixed K under rule rejection or block: NAMES; default: the coordinator's"},
    {"full-rows", 0, NULL, FIELD(request.full_rows),
     .help = "Ask workers for whole rows, for comparison"},
    OPTION_GROUP("Service", "--priority=low --deadline=30000"),
    {"priority", 0, "NAME", FIELD(request.job_class), .words = class_names, .n_words = JOB_CLASSES,
     .standard = "normal",
     .help = "high, normal or low: how large its share is when others wait, too"},
    {"client", 0, "NAME", OPTION_READ(struct generate_options, request.client, read_client),
     .help = "Whose share of the service it takes; default: that of all who give no name"},
    {"deadline", 0, "MS", .kind = OPTION_INT,
     .field = offsetof(struct generate_options, request.timeout_ms), .least = 1,
     .most = DEADLINE_MAX_MS,
     .help = "The coordinator ends the request so many milliseconds after its arrival; "
             "default: never"},
    {0},
};

const struct option_row answer_rows[] = {
    OPTION_GROUP("Text", "--max-tokens=200 --stop=END"),
    {"choices", 0, "N", FIELD(request.n), .least = 1, .most = GENERATE_SEQUENCES_MAX,
     .standard = "1",
     .help = "Generate N texts, 1 to 64, each with coins of its own; the prompt is read once"},
    {"logprobs", 0, "N", FIELD(request.logprobs), .most = SCORE_TOP_MAX,
     .help = "Say the log-probability of each token, and of the N best at its place, 0 to 64: "
             "of the target at temperature 1, before penalties, biases and bans"},
    {"with-prompt", 0, NULL, FIELD(request.echo),
     .help = "The answer begins with the prompt's tokens, with their log-probabilities if "
             "--logprobs asks for them"},
    {"show-special", 0, NULL, FIELD(request.shows_special),
     .help = "The answer's text has its special tokens in it; otherwise they are left out"},
    {0},
};

int generate_options_set(struct generate_options *o, const char *name, const char *value,
                         struct error *err)
{
    int rc = option_rows_set(request_rows, o, name, value, err);
    if (rc == ERR_NOT_FOUND) rc = option_rows_set(answer_rows, o, name, value, err);
    if (rc != ERR_NOT_FOUND) return rc;
    return error_set(err, ERR_ARGUMENT, "'%.40s' is no option of a request that takes a value",
                     name);
}

void generate_options_own(struct generate_options *o)
{
    o->request.stop = o->stops;
    o->request.stop_ids = o->stop_ids;
    o->request.biases = o->biases;
    o->request.bans = o->bans;
    for (int i = 0; i < o->request.n_bans; i++) {
        o->bans[i].ids = o->ban_ids[i];
    }
}

void generate_options_init(struct generate_options *o)
{
    generate_request_init(&o->request);
    generate_options_own(o);
}

static int check_strategy(const struct generate_request *req, struct error *err)
{
    bool may_stop = !req->strategy || req->strategy == STRATEGY_THRESHOLD;
    if (!req->has_threshold || may_stop) return 0;
    return error_set(err, ERR_ARGUMENT, "--threshold belongs to --strategy threshold, not to %s",
                     strategy_names[req->strategy]);
}

static int check_lengths(const struct generate_request *req, struct error *err)
{
    if (!req->max_tokens || req->min_tokens <= req->max_tokens) return 0;
    return error_set(err, ERR_ARGUMENT, "--min-tokens %d is more than --max-tokens %d",
                     req->min_tokens, req->max_tokens);
}

int generate_options_check(const struct generate_options *o, struct error *err)
{
    struct generate_request settled = o->request; /* the server's defaults make sense */
    int rc = 0;
    generate_request_settle(&settled, NULL);
    TRY(sampling_check(&settled.sampling, err));
    TRY(check_strategy(&o->request, err));
    TRY(check_lengths(&o->request, err));
out:
    return rc;
}
