/* outrider count: counts the tokens of texts, for the head of a draft. Needs no server. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "client/client.h"
#include "client/input.h"
#include "model/tokenizer/token_counts.h"

enum { FILE_BYTES_MAX = 256 << 20 };

struct count {
    const char *model, *output;
    const char **files; /* [n_files] of argv */
    int n_files;
    bool parses_no_special;
    struct tokenizer *tok;
    struct token_counts counts;
};

static int take_file(void *fields, char *word, struct error *err)
{
    struct count *command = fields;
    (void)err;
    command->files[command->n_files++] = word;
    return 0;
}

#define FIELD(member) OPTION_FIELD(struct count, member)

static const struct option_row rows[] = {
    {"model", 'm', "FOLDER", FIELD(model), .help = "Folder with a tokenizer.json, or GGUF file"},
    {"output", 'o', "LIST", FIELD(output),
     .help = "Write the list to LIST, as a whole or not at all"},
    {"no-special", 0, NULL, FIELD(parses_no_special),
     .help = "Texts of special tokens are plain text; otherwise they become these tokens"},
    {0},
};

static const char doc[] =
    "Counts the tokens of texts and prints them with their counts, the most frequent first: a list "
    "for outrider-coordinator --draft-vocab.\n"
    "Every FILE is a text of its own; - is the standard input.\v"
    "No tokens are added at the beginning or end of a text. The ends of sequence need not be "
    "counted: they always belong to the head.\n\n" CLIENT_STATUS_DOC;

static int prepare(struct count *c, int argc, char **argv, struct error *err)
{
    const struct option_program program = {.variables = "OUTRIDER_COUNT_",
                                           .example =
                                               "outrider count -m models/draft -o counts story.txt",
                                           .args_doc = "FILE...",
                                           .doc = doc,
                                           .parts = {{rows, c, NULL}},
                                           .take = take_file};
    int rc = 0;
    TRY(mem_array(&c->files, (size_t)argc, sizeof *c->files, err));
    TRY(option_program_parse(&program, argc, argv, err));
    if (!c->model) return error_set(err, ERR_ARGUMENT, "--model FOLDER is missing");
    if (c->n_files == 0) {
        return error_set(err, ERR_ARGUMENT, "no text: give files, or - for the standard input");
    }
out:
    return rc;
}

static int read_file(struct input *input, const char *name, struct error *err)
{
    *input = (struct input){0};
    if (strcmp(name, "-") == 0) return input_open(input, name, NULL, "text", err);
    int rc = file_read_text(&input->owned, &input->len, name, FILE_BYTES_MAX, err);
    input->text = input->owned;
    return rc;
}

static int count_file(struct count *c, const char *name, struct error *err)
{
    struct input input = {0};
    struct token_ids ids = {0};
    int rc = 0;
    TRY(read_file(&input, name, err));
    TRY(tokenizer_encode(c->tok, input.text, input.len,
                         c->parses_no_special ? 0 : TOKENIZER_PARSE_SPECIAL, &ids, err));
    token_counts_add(&c->counts, ids.data, ids.n);
out:
    input_close(&input);
    token_ids_free(&ids);
    return rc;
}

static int print_list(const struct count *c, struct error *err)
{
    char *text = NULL;
    size_t len;
    int rc = 0;
    TRY(token_counts_text(&c->counts, &text, &len, err));
    fwrite(text, 1, len, stdout);
    TRY(client_flush(err));
out:
    free(text);
    return rc;
}

static int run(struct count *c, struct error *err)
{
    int rc = 0;
    TRY(tokenizer_open(&c->tok, c->model, err));
    TRY(token_counts_init(&c->counts, c->tok, err));
    for (int i = 0; i < c->n_files; i++) {
        TRY(count_file(c, c->files[i], err));
    }
    TRY(c->output ? token_counts_write(&c->counts, c->output, err) : print_list(c, err));
out:
    return rc;
}

int count_main(int argc, char **argv)
{
    struct count c = {0};
    struct error err;
    int status = CLIENT_OK;
    if (prepare(&c, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&c, &err)) {
        status = client_fail(&err);
    }
    token_counts_free(&c.counts);
    tokenizer_close(c.tok);
    free(c.files);
    return status;
}
