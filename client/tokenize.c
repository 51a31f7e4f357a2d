/* outrider tokenize: the token ids of a text. Needs no server. */
#include <errno.h>
#include <stdio.h>

#include "client/client.h"
#include "client/input.h"
#include "client/terminal.h"

enum { OPT_FILE = 256, OPT_NO_SPECIAL, OPT_NO_BOS, OPT_IDS, OPT_JSON };

struct tokenize {
    const char *model, *argument, *file;
    bool is_json, is_list;
    unsigned flags;
    struct input input;
    struct tokenizer *tok;
    struct token_ids ids;
    struct error *err;
};

static const struct argp_option options[] = {
    {"model", 'm', "FOLDER", 0, "Folder with a tokenizer.json", 0},
    {"file", OPT_FILE, "FILE", 0, "Read the text from FILE", 0},
    {"no-special", OPT_NO_SPECIAL, NULL, 0,
     "Texts of special tokens are plain text; otherwise they become these tokens", 0},
    {"no-bos", OPT_NO_BOS, NULL, 0, "Add no token at the beginning or end", 0},
    {"ids", OPT_IDS, NULL, 0, "Print the ids alone, as for --prompt-ids", 0},
    {"json", OPT_JSON, NULL, 0, "Print one JSON object", 0},
    {0},
};

static const char doc[] =
    "Prints the token ids of TEXT and the piece of text that each stands for.\n"
    "The text is the argument, --file FILE, or the standard input (when it is no terminal, or with "
    "-); one newline at the end of a file or of the input is left out.\v"
    "Bytes of a piece that are no whole character show as \\xff; in JSON each is the character of "
    "its number.\n\n" CLIENT_STATUS_DOC;

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct tokenize *t = state->input;
    switch (key) {
    case 'm':
        t->model = arg;
        return 0;
    case OPT_FILE:
        t->file = arg;
        return 0;
    case OPT_NO_SPECIAL:
        t->flags &= ~(unsigned)TOKENIZER_PARSE_SPECIAL;
        return 0;
    case OPT_NO_BOS:
        t->flags &= ~(unsigned)TOKENIZER_ADD_SPECIAL;
        return 0;
    case OPT_IDS:
        t->is_list = true;
        return 0;
    case OPT_JSON:
        t->is_json = true;
        return 0;
    case ARGP_KEY_ARG:
        return client_take_argument(&t->argument, arg, "text", t->err);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int prepare(struct tokenize *t, int argc, char **argv, struct error *err)
{
    const struct argp argp = {
        .options = options, .parser = parse_option, .args_doc = "[TEXT]", .doc = doc};
    int rc = 0;
    t->err = err;
    TRY(client_parse(&argp, argc, argv, t, err));
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
    int rc = 0;
    TRY(tokenizer_open(&t->tok, t->model, err));
    TRY(tokenizer_encode(t->tok, t->input.text, t->input.len, t->flags, &t->ids, err));
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
    struct tokenize t = {.flags = TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL};
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
