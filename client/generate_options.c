/* Parses the command line of `outrider generate`. */
#include "client/generate_options.h"

#include "client/client.h"

enum { TIMEOUT_MAX_S = 86400 };

static int add_ban_text(void *options, const char *option, const char *text, struct error *err)
{
    struct generate_options *o = options;
    if (!*text) return error_set(err, ERR_ARGUMENT, "%s: the text is empty", option);
    if (o->n_ban_texts == GENERATE_BANS_MAX) {
        return error_set(err, ERR_ARGUMENT, "%s: more than %d texts", option, GENERATE_BANS_MAX);
    }
    o->ban_texts[o->n_ban_texts++] = text;
    return 0;
}

static int take_word(void *fields, char *word, struct error *err)
{
    struct generate_options *command = fields;
    return client_take_argument(&command->argument, word, "prompt, in quotes", err);
}

#define FIELD(member) OPTION_FIELD(struct generate_options, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Prompt", "--file=question.txt"),
    {"file", 0, "FILE", FIELD(file), .help = "Read the prompt from FILE"},
    {"prompt-ids", 0, "IDS", OPTION_READ(struct generate_options, ids, input_read_ids),
     .help = "The prompt as token ids: 1,2,3"},
    {"check", 0, NULL, FIELD(is_check),
     .help = "Check the options alone: read no prompt, ask nobody"},
    OPTION_GROUP("Text", "--max-tokens=200 --ban=TEXT --tokenizer=FOLDER"),
    {"ban", 0, "TEXT", .read = add_ban_text,
     .help = "The tokens of TEXT, and those of a blank and TEXT, never follow each other "
             "where the last of them is in the answer; those before it may end the prompt, as "
             "with transformers; needs --tokenizer; may be given again. The same characters "
             "in other tokens may come"},
    {"tokenizer", 0, "FOLDER", FIELD(tokenizer),
     .help = "Folder with the target's tokenizer.json, or its GGUF file, for --ban"},
    {0},
};

/* Come after those that say how to generate. */
static const struct option_row more_rows[] = {
    OPTION_GROUP("Speculation", "--strategy=fixed -K 4 --prediction-file=old.c"),
    {"prediction", 0, "TEXT", FIELD(prediction),
     .help = "The answer is expected to be TEXT, but for a few changes: guesses are found in "
             "it. It changes no text"},
    {"prediction-file", 0, "FILE", FIELD(prediction_file), .help = "The same, read from FILE"},
    {"show-drafts", 0, NULL, FIELD(request.show_drafts),
     .help = "Mark guesses that stayed, the rejected one and what took its place"},
    OPTION_GROUP("Output", "--json"),
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object at the end and nothing else"},
    {"quiet", 'q', NULL, FIELD(is_quiet), .help = "No summary"},
    {"stats", 0, NULL, FIELD(has_stats), .help = "All figures in place of the three lines"},
    {"no-echo", 0, NULL, FIELD(no_echo), .help = "Do not show the prompt on a terminal"},
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070 --timeout=60"),
    CLIENT_ADDRESS_ROW(struct generate_options),
    {"timeout", 0, "SECONDS", FIELD(timeout_s), .least = 1, .most = TIMEOUT_MAX_S,
     .help = "Give up after that long, connecting included; default: never"},
    {"request-id", 0, "ID", FIELD(request.request_id),
     .help = "Name of the request in the coordinator's log"},
    {0},
};

static const char doc[] =
    "Continues PROMPT and prints the text as it comes.\n"
    "The prompt is the argument, --file FILE, or the standard input (when it is no terminal, or "
    "with -); one newline at the end of a file or of the input is left out.\v"
    "On a terminal the prompt is shown first, dimmed, and control characters of the text are shown "
    "escaped. Into a file or pipe goes the generated text alone, byte for byte. The summary goes "
    "to the standard error: three lines, or with --stats all figures.\n\n"
    "With --choices N the texts come one after the other, each after a line \"--- choice I ---\". "
    "With --logprobs a table of the tokens takes the place of the text. With --json they are in "
    "\"choices\" and \"logprobs\", and the prompt of --with-prompt is in \"prompt\".\n\n"
    "--show-drafts on a terminal: green = guess that stayed, red and struck through = rejected "
    "guess, blue = its replacement, cyan = bonus token after guesses that stayed. A guess can "
    "have siblings, other guesses for its place: green and underlined = a sibling that stayed in "
    "place of a rejected guess, after a | = one that was rejected, too. Without colours (pipe, "
    "NO_COLOR): [stayed], {-rejected-}{+replacement+}, <bonus>, {-|rejected sibling-}, [|sibling "
    "that stayed]; newlines of rejected guesses show as \\n. Guesses of a second chain, which was "
    "found beside the first one, and guesses of the draft after siblings have the marks of "
    "siblings. Guesses after a rejected one, and siblings of one that stayed, are not shown. With "
    "--json the rounds are listed under \"steps\".\n\n" CLIENT_STATUS_DOC;

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
    const struct option_program program = {
        .variables = "OUTRIDER_GENERATE_",
        .example = "outrider generate \"Once upon a time\" -n 64 --temperature 0",
        .args_doc = "[PROMPT]",
        .doc = doc,
        .parts = {{rows, o, NULL},
                  {request_rows, o, NULL},
                  {answer_rows, o, NULL},
                  {more_rows, o, NULL},
                  {connection_rows, &o->connection, NULL}},
        .take = take_word};
    int rc = 0;
    generate_options_init(o);
    TRY(option_program_parse(&program, argc, argv, err));
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
