/* The options that say how to generate: one table for `outrider generate`, `outrider bench` and
 * whatever else sends requests. */
#include "client/request_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text/options.h"
#include "client/client.h"
#include "speculation/accept/rules.h"

#define RULES "RULES" /* stands in the help for the names of all rules */

enum {
    TOP_K_MAX = 1 << 24,
    TOKENS_MAX = 1 << 28,
    DEADLINE_MAX_MS = 1000 * 86400,
    HELP_BYTES = 256
};

/* In the order of enum job_class. */
static const char *const class_names[JOB_CLASSES] = {
    [JOB_CLASS_NORMAL] = "normal", [JOB_CLASS_HIGH] = "high", [JOB_CLASS_LOW] = "low"};

static const struct argp_option options[] = {
    {"max-tokens", 'n', "N", 0, "Tokens to generate at most; default: what fits the context", 1},
    {"min-tokens", OPT_MIN_TOKENS, "N", 0,
     "No end of sequence and no --stop-id before N tokens; default 0", 1},
    {"stop", OPT_STOP, "STRING", 0, "End before STRING; may be given up to 16 times", 1},
    {"stop-id", OPT_STOP_ID, "ID", 0,
     "The token ID ends the text as an end of sequence does; may be given up to 64 times", 1},
    {"ignore-eos", OPT_IGNORE_EOS, NULL, 0, "Go on after an end of sequence", 1},
    {"choices", OPT_CHOICES, "N", 0,
     "Generate N texts, 1 to 64, each with coins of its own; the prompt is read once; default 1",
     1},
    {"logprobs", OPT_LOGPROBS, "N", 0,
     "Say the log-probability of each token, and of the N best at its place, 0 to 64: of the "
     "target "
     "at temperature 1, before penalties, biases and bans",
     1},
    {"with-prompt", OPT_WITH_PROMPT, NULL, 0,
     "The answer begins with the prompt's tokens, with their log-probabilities if --logprobs asks "
     "for them",
     1},
    {"no-bos", OPT_NO_BOS, NULL, 0, "Add no token at the beginning or end of the prompt", 1},
    {"no-special", OPT_NO_SPECIAL, NULL, 0,
     "Texts of special tokens in the prompt are plain text; otherwise they become these tokens", 1},
    {"show-special", OPT_SHOW_SPECIAL, NULL, 0,
     "The answer's text has its special tokens in it; otherwise they are left out", 1},
    {"temperature", OPT_TEMPERATURE, "T", 0, "0 = greedy; default: as the model says, or 1", 2},
    {"top-k", OPT_TOP_K, "N", 0,
     "Keep the N best tokens, 0 = all; default: as the model says, or all", 2},
    {"top-p", OPT_TOP_P, "P", 0,
     "Keep the best tokens up to a mass of P, 1 = all; default: as the model says, or all", 2},
    {"min-p", OPT_MIN_P, "P", 0,
     "Keep tokens of at least P times the best, 0 = all; default: as the model says, or all", 2},
    {"seed", OPT_SEED, "N", 0,
     "Same seed, same text (with rule rejection or block: at a fixed K); default: the coordinator "
     "chooses",
     2},
    {"repetition-penalty", OPT_REPETITION, "R", 0,
     "Divide positive logits of tokens of prompt and answer by R, and multiply negative ones; 1 = "
     "off; default: as the model says, or off",
     2},
    {"presence-penalty", OPT_PRESENCE, "X", 0,
     "Take X, -2 to 2, from the logits of tokens that the answer has already; default 0", 2},
    {"frequency-penalty", OPT_FREQUENCY, "X", 0,
     "Take X, -2 to 2, from a token's logit for each time that the answer has it; default 0", 2},
    {"logit-bias", OPT_BIAS, "ID=X", 0,
     "Add X, -100 to 100, to the logit of token ID; may be given up to 1024 times", 2},
    {"ban-ids", OPT_BAN_IDS, "IDS", 0,
     "The token ids 1,2,3 never follow each other where the last of them is in the answer; those "
     "before it may end the prompt, as with transformers; may be given up to 256 times",
     2},
    {"draft-tokens", 'K', "K", 0,
     "Guesses per round, 0 to 16; 0 = plain decoding; with a strategy that chooses: the most of a "
     "round; default: the coordinator's",
     3},
    {"strategy", OPT_STRATEGY, "NAME", 0,
     "How the number of guesses comes about: planned (what is measured to be fastest), fixed, "
     "heuristic (2 more after a round whose guesses all stayed, otherwise 1 less) or threshold; "
     "default: fixed with -K, otherwise the coordinator's",
     3},
    {"threshold", OPT_THRESHOLD, "P", 0,
     "Strategy threshold: a round ends with the first guess that the draft gave less than P; "
     "default: the coordinator's",
     3},
    {"rule", OPT_RULE, "RULE", 0,
     "Acceptance: " RULES "; default: greedy at temperature 0, coupled with a seed, otherwise "
     "rejection",
     3},
    {"full-rows", OPT_FULL_ROWS, NULL, 0, "Ask workers for whole rows, for comparison", 3},
    {"priority", OPT_PRIORITY, "NAME", 0,
     "high, normal or low: how large its share is when others wait, too; default normal", 4},
    {"client", OPT_CLIENT, "NAME", 0,
     "Whose share of the service it takes; default: that of all who give no name", 4},
    {"deadline", OPT_DEADLINE, "MS", 0,
     "The coordinator ends the request so many milliseconds after its arrival; default: never", 4},
    {0},
};

static error_t parse_sampling(int key, const char *arg, struct generate_parse *p)
{
    struct generate_request *req = &p->options->request;
    struct sampling_params *s = &req->sampling;
    struct error *err = p->err;
    switch (key) {
    case OPT_TEMPERATURE:
        return client_parser_result(
            options_float(&s->temperature, "--temperature", arg, 0, SAMPLING_TEMPERATURE_MAX, err));
    case OPT_TOP_K:
        return client_parser_result(options_int(&s->top_k, "--top-k", arg, 0, TOP_K_MAX, err));
    case OPT_TOP_P:
        return client_parser_result(options_float(&s->top_p, "--top-p", arg, 0, 1, err));
    case OPT_MIN_P:
        return client_parser_result(options_float(&s->min_p, "--min-p", arg, 0, 1, err));
    case OPT_SEED:
        req->has_seed = true;
        return client_parser_result(options_u64(&req->seed, "--seed", arg, err));
    default:
        return edit_options_parse(key, arg, p);
    }
}

static error_t parse_speculation(int key, const char *arg, struct generate_parse *p)
{
    struct generate_request *req = &p->options->request;
    int word;
    switch (key) {
    case 'K':
        return client_parser_result(
            options_int(&req->n_draft, "--draft-tokens", arg, 0, DRAFT_MAX, p->err));
    case OPT_STRATEGY:
        if (options_word(&word, "--strategy", arg, strategy_names + STRATEGY_PLANNED,
                         N_STRATEGIES - STRATEGY_PLANNED, p->err)) {
            return EINVAL;
        }
        req->strategy = (enum strategy)(STRATEGY_PLANNED + word);
        return 0;
    case OPT_THRESHOLD:
        req->has_threshold = true;
        return client_parser_result(
            options_float(&req->threshold, "--threshold", arg, 0, 1, p->err));
    case OPT_RULE:
        if (options_word(&word, "--rule", arg, accept_rule_names, RULE_COUNT, p->err))
            return EINVAL;
        req->rule = accept_rule_names[word];
        return 0;
    case OPT_FULL_ROWS:
        req->full_rows = true;
        return 0;
    default:
        return parse_sampling(key, arg, p);
    }
}

static int set_client(struct generate_request *req, const char *name, struct error *err)
{
    if (strlen(name) > GENERATE_WORD_BYTES_MAX) {
        return error_set(err, ERR_ARGUMENT, "--client: '%.20s...' has more than %d bytes", name,
                         GENERATE_WORD_BYTES_MAX);
    }
    req->client = name;
    return 0;
}

/* Whose turn it is, and until when. */
static error_t parse_service(int key, const char *arg, struct generate_parse *p)
{
    struct generate_request *req = &p->options->request;
    int value = 0;
    switch (key) {
    case OPT_PRIORITY:
        if (options_word(&value, "--priority", arg, class_names, JOB_CLASSES, p->err))
            return EINVAL;
        req->job_class = (enum job_class)value;
        return 0;
    case OPT_CLIENT:
        return client_parser_result(set_client(req, arg, p->err));
    case OPT_DEADLINE:
        if (options_int(&value, "--deadline", arg, 1, DEADLINE_MAX_MS, p->err)) return EINVAL;
        req->timeout_ms = (uint32_t)value;
        return 0;
    default:
        return parse_speculation(key, arg, p);
    }
}

/* What special tokens mean in the prompt and the answer. */
static error_t parse_special(int key, const char *arg, struct generate_parse *p)
{
    struct generate_request *req = &p->options->request;
    switch (key) {
    case OPT_NO_BOS:
        req->adds_no_special = true;
        return 0;
    case OPT_NO_SPECIAL:
        req->parses_no_special = true;
        return 0;
    case OPT_SHOW_SPECIAL:
        req->shows_special = true;
        return 0;
    default:
        return parse_service(key, arg, p);
    }
}

static error_t parse_request(int key, const char *arg, struct generate_parse *p)
{
    struct generate_request *req = &p->options->request;
    switch (key) {
    case 'n':
        return client_parser_result(
            options_int(&req->max_tokens, "--max-tokens", arg, 1, TOKENS_MAX, p->err));
    case OPT_MIN_TOKENS:
        return client_parser_result(
            options_int(&req->min_tokens, "--min-tokens", arg, 0, TOKENS_MAX, p->err));
    case OPT_CHOICES:
        return client_parser_result(
            options_int(&req->n, "--choices", arg, 1, GENERATE_SEQUENCES_MAX, p->err));
    case OPT_LOGPROBS:
        return client_parser_result(
            options_int(&req->logprobs, "--logprobs", arg, 0, SCORE_TOP_MAX, p->err));
    case OPT_WITH_PROMPT:
        req->echo = true;
        return 0;
    default:
        return parse_special(key, arg, p);
    }
}

static error_t parse_request_option(int key, char *arg, struct argp_state *state)
{
    return parse_request(key, arg, state->input);
}

/* Help as argp prints it, with the names of all rules in place of RULES. argp frees what it
 * gets. */
static char *fill_help(int key, const char *text, void *input)
{
    char list[HELP_BYTES];
    (void)key;
    (void)input;
    const char *at = text ? strstr(text, RULES) : NULL;
    if (!at) return text ? strdup(text) : NULL;
    rule_list(list, sizeof list, "or");
    size_t size = strlen(text) + strlen(list) + 1;
    char *filled = malloc(size);
    if (!filled) return NULL;
    const char *rest = at + strlen(RULES);
    snprintf(filled, size, "%.*s%s%s", (int)(at - text), text, list, rest);
    return filled;
}

const struct argp generate_request_argp = {
    .options = options,
    .parser = parse_request_option,
    .help_filter = fill_help,
};

static bool has_name(const struct argp_option *option, const char *name)
{
    bool is_letter = option->key < 256 && name[0] == option->key && !name[1];
    return is_letter || strcmp(option->name, name) == 0;
}

int generate_options_set(struct generate_options *o, const char *name, const char *value,
                         struct error *err)
{
    struct generate_parse parse = {o, err};
    for (const struct argp_option *option = options; option->name; option++) {
        if (!has_name(option, name) || !option->arg) continue;
        *err = (struct error){0};
        return parse_request(option->key, value, &parse) ? err->code : 0;
    }
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
