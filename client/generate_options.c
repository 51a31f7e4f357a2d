/* Parses the command line of `outrider generate`. */
#include "client/generate_options.h"

#include <errno.h>

#include "base/text/options.h"
#include "client/client.h"

enum {
    OPT_FILE = 256,
    OPT_PREDICTION,
    OPT_PREDICTION_FILE,
    OPT_PROMPT_IDS,
    OPT_BAN,
    OPT_TOKENIZER,
    OPT_TIMEOUT,
    OPT_CHECK,
    OPT_SHOW_DRAFTS,
    OPT_JSON,
    OPT_NO_ECHO,
    OPT_REQUEST_ID
};

enum { TIMEOUT_MAX_S = 86400 };

static const struct argp_option own_options[] = {
    {"check", OPT_CHECK, NULL, 0, "Check the options alone: read no prompt, ask nobody", 1},
    {"file", OPT_FILE, "FILE", 0, "Read the prompt from FILE", 1},
    {"prompt-ids", OPT_PROMPT_IDS, "IDS", 0, "The prompt as token ids: 1,2,3", 1},
    {"ban", OPT_BAN, "TEXT", 0,
     "The tokens of TEXT, and those of a blank and TEXT, never follow each other where the last of "
     "them is in the answer; those before it may end the prompt, as with transformers; needs "
     "--tokenizer; may be given again. The same characters in other tokens may come",
     2},
    {"tokenizer", OPT_TOKENIZER, "FOLDER", 0, "Folder with the target's tokenizer.json, for --ban",
     2},
    {"prediction", OPT_PREDICTION, "TEXT", 0,
     "The answer is expected to be TEXT, but for a few changes: guesses are found in it. It "
     "changes "
     "no text",
     3},
    {"prediction-file", OPT_PREDICTION_FILE, "FILE", 0, "The same, read from FILE", 3},
    {"show-drafts", OPT_SHOW_DRAFTS, NULL, 0,
     "Mark guesses that stayed, the rejected one and what took its place", 3},
    {"address", 'a', "ADDRESS", 0, CLIENT_ADDRESS_DOC, 4},
    {"timeout", OPT_TIMEOUT, "SECONDS", 0,
     "Give up after that long, connecting included; default: never", 4},
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
    "With --choices N the texts come one after the other, each after a line \"--- choice I ---\". "
    "With --logprobs a table of the tokens takes the place of the text. With --json they are in "
    "\"choices\" and \"logprobs\", and the prompt of --with-prompt is in \"prompt\".\n\n"
    "--show-drafts on a terminal: green = guess that stayed, red and struck through = rejected "
    "guess, blue = its replacement, cyan = bonus token behind guesses that stayed. A guess can "
    "have siblings, other guesses for its place: green and underlined = a sibling that stayed in "
    "place of a rejected guess, behind a | = one that was rejected, too. Without colours (pipe, "
    "NO_COLOR): [stayed], {-rejected-}{+replacement+}, <bonus>, {-|rejected sibling-}, [|sibling "
    "that stayed]; newlines of rejected guesses show as \\n. Guesses of a second chain, which was "
    "found beside the first one, and guesses of the draft behind siblings have the marks of "
    "siblings. Guesses behind a rejected one, and siblings of one that stayed, are not shown. With "
    "--json the rounds are listed under \"steps\".\n\n" CLIENT_STATUS_DOC;

static int add_ban_text(struct generate_options *o, const char *text, struct error *err)
{
    if (!*text) return error_set(err, ERR_ARGUMENT, "--ban: the text is empty");
    if (o->n_ban_texts == GENERATE_BANS_MAX) {
        return error_set(err, ERR_ARGUMENT, "--ban: more than %d texts", GENERATE_BANS_MAX);
    }
    o->ban_texts[o->n_ban_texts++] = text;
    return 0;
}

static error_t parse_input(int key, char *arg, struct generate_parse *p)
{
    struct generate_options *o = p->options;
    switch (key) {
    case OPT_FILE:
        o->file = arg;
        return 0;
    case OPT_PREDICTION:
        o->prediction = arg;
        return 0;
    case OPT_PREDICTION_FILE:
        o->prediction_file = arg;
        return 0;
    case OPT_PROMPT_IDS:
        return client_parser_result(input_ids(&o->ids, "--prompt-ids", arg, p->err));
    case OPT_BAN:
        return client_parser_result(add_ban_text(o, arg, p->err));
    case OPT_TOKENIZER:
        o->tokenizer = arg;
        return 0;
    case ARGP_KEY_ARG:
        return client_take_argument(&o->argument, arg, "prompt", p->err);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct generate_parse *p = state->input;
    struct generate_options *o = p->options;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = p;
        state->child_inputs[1] = &o->connection;
        return 0;
    case 'a':
        o->connection.address = arg;
        return 0;
    case OPT_CHECK:
        o->is_check = true;
        return 0;
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
    default:
        return parse_input(key, arg, p);
    }
}

static int check_command(const struct generate_options *o, struct error *err)
{
    bool has_table = o->request.logprobs >= 0 && !o->is_json;
    if (o->ids.n && (o->argument || o->file)) {
        return error_set(err, ERR_ARGUMENT, "give the prompt as text or by --prompt-ids, not both");
    }
    if (has_table && o->request.show_drafts) {
        return error_set(err, ERR_ARGUMENT,
                         "--logprobs prints a table in place of the text that --show-drafts marks: "
                         "give one of them, or --json");
    }
    if (o->n_ban_texts && !o->tokenizer) {
        return error_set(err, ERR_ARGUMENT,
                         "--ban makes tokens of the text here: name the target's tokenizer by "
                         "--tokenizer FOLDER, or give token ids by --ban-ids");
    }
    return 0;
}

int generate_options_parse(struct generate_options *o, int argc, char **argv, struct error *err)
{
    const struct argp_child children[] = {
        {.argp = &generate_request_argp}, {&connection_argp, 0, "Connection:", 10}, {0}};
    const struct argp argp = {.options = own_options,
                              .parser = parse_option,
                              .args_doc = "[PROMPT]",
                              .doc = doc,
                              .children = children};
    struct generate_parse parse = {o, err};
    int rc = 0;
    generate_options_init(o);
    TRY(client_parse(&argp, argc, argv, &parse, err));
    TRY(connection_open(&o->connection, err));
    TRY(generate_options_check(o, err));
    TRY(check_command(o, err));
out:
    return rc;
}

void generate_options_free(struct generate_options *o)
{
    token_ids_free(&o->ids);
    connection_close(&o->connection);
    *o = (struct generate_options){0};
}
