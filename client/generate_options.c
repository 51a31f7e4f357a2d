/* Parses the command line of `outrider generate`. */
#include "client/generate_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/options.h"
#include "client/client.h"
#include "speculation/rule.h"

enum {
    OPT_FILE = 256,
    OPT_TEMPERATURE,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_SEED,
    OPT_RULE,
    OPT_STOP,
    OPT_IGNORE_EOS,
    OPT_PROMPT_IDS,
    OPT_FULL_ROWS,
    OPT_TIMEOUT,
    OPT_SHOW_DRAFTS,
    OPT_JSON,
    OPT_NO_ECHO,
    OPT_REQUEST_ID,
    OPT_STRATEGY,
    OPT_THRESHOLD
};

#define RULES "RULES" /* stands in the help for the names of all rules */

enum { TIMEOUT_MAX_S = 86400, TOP_K_MAX = 1 << 24, TOKENS_MAX = 1 << 28, HELP_BYTES = 256 };

static const struct argp_option options[] = {
    {"max-tokens", 'n', "N", 0, "Tokens to generate at most; default: what fits the context", 1},
    {"stop", OPT_STOP, "STRING", 0, "End before STRING; may be given up to 16 times", 1},
    {"ignore-eos", OPT_IGNORE_EOS, NULL, 0, "Go on after an end of sequence", 1},
    {"temperature", OPT_TEMPERATURE, "T", 0, "0 = greedy; default 1", 2},
    {"top-k", OPT_TOP_K, "N", 0, "Keep the N best tokens; default 0 = all", 2},
    {"top-p", OPT_TOP_P, "P", 0, "Keep the best tokens up to a mass of P; default 1 = all", 2},
    {"min-p", OPT_MIN_P, "P", 0, "Keep tokens of at least P times the best; default 0 = all", 2},
    {"seed", OPT_SEED, "N", 0,
     "Same seed, same text (with rule rejection or block: at a fixed K); default: the coordinator "
     "chooses",
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
    {0},
};

static const struct argp_option own_options[] = {
    {"file", OPT_FILE, "FILE", 0, "Read the prompt from FILE", 1},
    {"prompt-ids", OPT_PROMPT_IDS, "IDS", 0, "The prompt as token ids: 1,2,3", 1},
    {"show-drafts", OPT_SHOW_DRAFTS, NULL, 0,
     "Mark guesses that stayed, the rejected one and what took its place", 3},
    {"address", 'a', "ADDRESS", 0, CLIENT_ADDRESS_DOC, 4},
    {"timeout", OPT_TIMEOUT, "SECONDS", 0, "Give up after that long; default: never", 4},
    {"request-id", OPT_REQUEST_ID, "ID", 0, "Name of the request in the coordinator's log", 4},
    {"json", OPT_JSON, NULL, 0, "Print one JSON object at the end and nothing else", 5},
    {"quiet", 'q', NULL, 0, "No summary", 5},
    {"no-echo", OPT_NO_ECHO, NULL, 0, "Do not show the prompt on a terminal", 5},
    {0},
};

static const char doc[] =
    "Continues PROMPT and prints the text as it comes.\n"
    "The prompt is the argument, --file FILE, or the standard input (when it is no terminal, or "
    "with -); one newline at the end of a file or of the input is left out.\v"
    "On a terminal the prompt is shown first, dimmed, and control characters of the text are shown "
    "escaped. Into a file or pipe goes the generated text alone, byte for byte. The summary goes "
    "to the standard error.\n\n"
    "--show-drafts on a terminal: green = guess that stayed, red and struck through = rejected "
    "guess, blue = its replacement, cyan = bonus token after a round without rejection. Without "
    "colours (pipe, NO_COLOR): [stayed], {-rejected-}{+replacement+}, <bonus>; newlines of "
    "rejected guesses show as \\n. With --json the rounds are listed under "
    "\"steps\".\n\n" CLIENT_STATUS_DOC;

static int add_stop(struct generate_options *o, const char *stop, struct error *err)
{
    if (!*stop) return error_set(err, ERR_ARGUMENT, "--stop: the string is empty");
    if (o->request.n_stop == GENERATE_STOPS_MAX) {
        return error_set(err, ERR_ARGUMENT, "--stop: more than %d strings", GENERATE_STOPS_MAX);
    }
    o->stops[o->request.n_stop++] = stop;
    return 0;
}

static error_t parse_sampling(int key, const char *arg, struct generate_parse *p)
{
    struct generate_request *req = &p->options->request;
    struct sampling_params *s = &req->sampling;
    struct error *err = p->err;
    int rule;
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
    case OPT_RULE:
        if (options_word(&rule, "--rule", arg, accept_rule_names, RULE_COUNT, err)) return EINVAL;
        req->rule = accept_rule_names[rule];
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
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
    default:
        return parse_sampling(key, arg, p);
    }
}

static error_t parse_request(int key, const char *arg, struct generate_parse *p)
{
    struct generate_options *o = p->options;
    struct generate_request *req = &o->request;
    switch (key) {
    case 'n':
        return client_parser_result(
            options_int(&req->max_tokens, "--max-tokens", arg, 1, TOKENS_MAX, p->err));
    case OPT_STOP:
        return client_parser_result(add_stop(o, arg, p->err));
    case OPT_IGNORE_EOS:
        req->ignore_eos = true;
        return 0;
    case OPT_FULL_ROWS:
        req->full_rows = true;
        return 0;
    default:
        return parse_speculation(key, arg, p);
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

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct generate_parse *p = state->input;
    struct generate_options *o = p->options;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = p;
        return 0;
    case 'a':
        o->address = arg;
        return 0;
    case OPT_FILE:
        o->file = arg;
        return 0;
    case OPT_PROMPT_IDS:
        return client_parser_result(input_ids(&o->ids, "--prompt-ids", arg, p->err));
    case OPT_SHOW_DRAFTS:
        o->request.show_drafts = true;
        return 0;
    case OPT_REQUEST_ID:
        o->request.request_id = arg;
        return 0;
    case OPT_TIMEOUT:
        return client_parser_result(
            options_int(&o->timeout_s, "--timeout", arg, 1, TIMEOUT_MAX_S, p->err));
    case OPT_JSON:
        o->is_json = true;
        return 0;
    case 'q':
        o->is_quiet = true;
        return 0;
    case OPT_NO_ECHO:
        o->no_echo = true;
        return 0;
    case ARGP_KEY_ARG:
        return client_take_argument(&o->argument, arg, "prompt", p->err);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int check_strategy(const struct generate_request *req, struct error *err)
{
    bool may_stop = !req->strategy || req->strategy == STRATEGY_THRESHOLD;
    if (!req->has_threshold || may_stop) return 0;
    return error_set(err, ERR_ARGUMENT, "--threshold belongs to --strategy threshold, not to %s",
                     strategy_names[req->strategy]);
}

void generate_options_init(struct generate_options *o)
{
    generate_request_init(&o->request);
    o->request.stop = o->stops;
}

int generate_options_check(const struct generate_options *o, struct error *err)
{
    int rc = sampling_check(&o->request.sampling, err);
    return rc ? rc : check_strategy(&o->request, err);
}

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

int generate_options_parse(struct generate_options *o, int argc, char **argv, struct error *err)
{
    const struct argp_child children[] = {{.argp = &generate_request_argp}, {0}};
    const struct argp argp = {.options = own_options,
                              .parser = parse_option,
                              .args_doc = "[PROMPT]",
                              .doc = doc,
                              .children = children};
    struct generate_parse parse = {o, err};
    int rc = 0;
    generate_options_init(o);
    TRY(client_parse(&argp, argc, argv, &parse, err));
    TRY(client_address(&o->address, o->address, err));
    TRY(generate_options_check(o, err));
    if (o->ids.n && (o->argument || o->file)) {
        rc = error_set(err, ERR_ARGUMENT, "give the prompt as text or by --prompt-ids, not both");
    }
out:
    return rc;
}

void generate_options_free(struct generate_options *o)
{
    token_ids_free(&o->ids);
    *o = (struct generate_options){0};
}
