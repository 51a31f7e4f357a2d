/* outrider detokenize: the text of token ids. Needs no server. */
#include <stdio.h>
#include <string.h>

#include "base/text/buffer.h"
#include "client/client.h"
#include "client/input.h"
#include "client/terminal.h"

struct detokenize {
    const char *model, *argument, *file;
    bool is_json, shows_special;
    struct input input;
    struct token_ids ids;
    struct tokenizer *tok;
    struct detokenizer *detok;
    struct buffer text;
};

static int take_word(void *fields, char *word, struct error *err)
{
    struct detokenize *command = fields;
    return client_take_argument(&command->argument, word, "list of ids, in quotes", err);
}

#define FIELD(member) OPTION_FIELD(struct detokenize, member)

static const struct option_row rows[] = {
    OPTION_GROUP("Ids", "--file=ids.txt"),
    {"model", 'm', "FOLDER", FIELD(model), .help = "Folder with a tokenizer.json, or GGUF file"},
    {"file", 0, "FILE", FIELD(file), .help = "Read the ids from FILE"},
    OPTION_GROUP("Output", "--special"),
    {"special", 0, NULL, FIELD(shows_special),
     .help = "Show special tokens; otherwise they are left out"},
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object"},
    {0},
};

static const char doc[] = "Prints the text of IDS: numbers separated by commas or blanks, as one "
                          "argument, from --file FILE or the standard input.\v"
                          "Bytes that cannot become a character come out as U+FFFD, as in "
                          "generated text. On a terminal a newline is "
                          "added.\n\n" CLIENT_STATUS_DOC;

static int prepare(struct detokenize *d, int argc, char **argv, struct error *err)
{
    const struct option_program program = {.variables = "OUTRIDER_DETOKENIZE_",
                                           .example =
                                               "outrider detokenize -m models/target 12,7,300",
                                           .args_doc = "[IDS]",
                                           .doc = doc,
                                           .parts = {{rows, d, NULL}},
                                           .take = take_word};
    int rc = 0;
    TRY(option_program_parse(&program, argc, argv, err));
    if (!d->model) return error_set(err, ERR_ARGUMENT, "--model FOLDER is missing");
    TRY(input_open(&d->input, d->argument, d->file, "list of ids", err));
    TRY(input_ids(&d->ids, "IDS", d->input.text, err));
out:
    return rc;
}

static int check_ids(const struct detokenize *d, struct error *err)
{
    int n_vocab = tokenizer_vocab_size(d->tok);
    for (size_t i = 0; i < d->ids.n; i++) {
        if (d->ids.data[i] >= n_vocab) {
            return error_set(err, ERR_ARGUMENT, "token id %d is outside of the vocabulary of %d",
                             (int)d->ids.data[i], n_vocab);
        }
    }
    return 0;
}

static int decode(struct detokenize *d, struct error *err)
{
    const char *text;
    size_t len;
    int rc = 0;
    for (size_t i = 0; i < d->ids.n; i++) {
        TRY(detokenizer_push(d->detok, d->ids.data[i], &text, &len, err));
        TRY(buffer_append(&d->text, text, len, err));
    }
    TRY(detokenizer_finish(d->detok, &text, &len, err));
    TRY(buffer_append(&d->text, text, len, err));
out:
    return rc;
}

static int print_text(const struct detokenize *d, struct error *err)
{
    const struct terminal terminal = terminal_of(stdout);
    const char *text = (const char *)d->text.data;
    if (d->is_json) {
        return client_print_json(json_pack("{so}", "text", client_json_text(text, d->text.len)),
                                 err);
    }
    terminal_text(&terminal, text, d->text.len);
    if (terminal.is_terminal) fputc('\n', stdout);
    return client_flush(err);
}

static int run(struct detokenize *d, struct error *err)
{
    int rc = 0;
    TRY(tokenizer_open(&d->tok, d->model, err));
    TRY(check_ids(d, err));
    TRY(detokenizer_open(&d->detok, d->tok, !d->shows_special, err));
    TRY(decode(d, err));
    TRY(print_text(d, err));
out:
    return rc;
}

int detokenize_main(int argc, char **argv)
{
    struct detokenize d = {0};
    struct error err;
    int status = CLIENT_OK;
    if (prepare(&d, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&d, &err)) {
        status = client_fail(&err);
    }
    detokenizer_close(d.detok);
    tokenizer_close(d.tok);
    input_close(&d.input);
    token_ids_free(&d.ids);
    buffer_free(&d.text);
    return status;
}
