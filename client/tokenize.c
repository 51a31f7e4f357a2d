/* outrider tokenize: the token ids of a text. Needs no server. */
#include <stdio.h>

#include "client/client.h"
#include "client/input.h"
#include "client/terminal.h"

struct tokenize {
    const char *model, *argument, *file;
    bool is_json, is_list, adds_no_special, parses_no_special;
    struct input input;
    struct tokenizer *tok;
    struct token_ids ids;
};

static int take_word(void *fields, char *word, struct error *err)
{
    struct tokenize *command = fields;
    return client_take_argument(&command->argument, word, "text, in quotes", err);
}

#define FIELD(member) OPTION_FIELD(struct tokenize, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Text", "--file=answer.txt"),
    {"model", 'm', "FOLDER", FIELD(model), .help = "Folder with a tokenizer.json, or GGUF file"},
    {"file", 0, "FILE", FIELD(file), .help = "Read the text from FILE"},
    {"no-special", 0, NULL, FIELD(parses_no_special),
     .help = "Texts of special tokens are plain text; otherwise they become these tokens"},
    {"no-bos", 0, NULL, FIELD(adds_no_special), .help = "Add no token at the beginning or end"},
    OPTION_GROUP("Output", "--ids"),
    {"ids", 0, NULL, FIELD(is_list), .help = "Print the ids alone, as for --prompt-ids"},
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object"},
    {0},
};

static const char doc[] =
    "Prints the token ids of TEXT and the piece of text of each.\n"
    "The text is the argument, --file FILE, or the standard input (when it is no terminal, or with "
    "-); one newline at the end of a file or of the input is left out.\v"
    "Bytes of a piece that are no whole character show as \\xff; in JSON each is the character of "
    "its number.\n\n" CLIENT_STATUS_DOC;

static int prepare(struct tokenize *t, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_TOKENIZE_",
        .example = "outrider tokenize -m models/target \"Once upon a time\"",
        .args_doc = "[TEXT]",
        .doc = doc,
        .parts = {{rows, t, NULL}},
        .take = take_word};
    int rc = 0;
    TRY(option_program_parse(&program, argc, argv, err));
    if (!t->model) return error_set(err, ERR_ARGUMENT, "--model FOLDER is missing");
    if (t->is_json && t->is_list) {
        return error_set(err, ERR_ARGUMENT, "--ids and --json exclude each other");
    }
    TRY(input_open(&t->input, t->argument, t->file, "text", err));
out:
    return rc;
}

static void print_table(const struct tokenize *t)
{
    const struct terminal terminal = terminal_of(stdout);
    for (size_t i = 0; i < t->ids.n; i++) {
        size_t len;
        const char *piece = tokenizer_piece(t->tok, t->ids.data[i], &len);
        printf("%7d  \"", (int)t->ids.data[i]);
        terminal_quoted(&terminal, piece, len);
        fputs("\"\n", stdout);
    }
}

static void print_list(const struct tokenize *t)
{
    for (size_t i = 0; i < t->ids.n; i++) {
        printf("%s%d", i ? "," : "", (int)t->ids.data[i]);
    }
    fputc('\n', stdout);
}

static int print_object(const struct tokenize *t, struct error *err)
{
    json_t *ids = json_array(), *pieces = json_array();
    for (size_t i = 0; i < t->ids.n; i++) {
        size_t len;
        const char *piece = tokenizer_piece(t->tok, t->ids.data[i], &len);
        json_array_append_new(ids, json_integer(t->ids.data[i]));
        json_array_append_new(pieces, client_json_text(piece, len));
    }
    json_t *object =
        json_pack("{si so so}", "n_tokens", (int)t->ids.n, "ids", ids, "pieces", pieces);
    return client_print_json(object, err);
}

static int run(struct tokenize *t, struct error *err)
{
    unsigned flags = 0;
    int rc = 0;
    TRY(tokenizer_open(&t->tok, t->model, err));
    if (!t->adds_no_special) flags |= TOKENIZER_ADD_SPECIAL;
    if (!t->parses_no_special) flags |= TOKENIZER_PARSE_SPECIAL;
    TRY(tokenizer_encode(t->tok, t->input.text, t->input.len, flags, &t->ids, err));
    if (t->is_json) return print_object(t, err);
    if (t->is_list) {
        print_list(t);
    } else {
        print_table(t);
    }
    rc = client_flush(err);
out:
    return rc;
}

int tokenize_main(int argc, char **argv)
{
    struct tokenize t = {0};
    struct error err;
    int status = CLIENT_OK;
    if (prepare(&t, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&t, &err)) {
        status = client_fail(&err);
    }
    tokenizer_close(t.tok);
    input_close(&t.input);
    token_ids_free(&t.ids);
    return status;
}
