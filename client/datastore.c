/* outrider datastore: makes and checks files of texts for the drafters that find their guesses in
 * them (lookup/datastore.h). Needs no server. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "client/client.h"
#include "client/recorded_texts.h"
#include "lookup/datastore.h"

struct build {
    const char *model, *output;
    const char **files; /* [n_files] of argv */
    int n_files;
    struct tokenizer *tok;
    struct recorded_texts texts;
    struct token_ids tokens; /* of all texts, with their ends */
};

/* ---- build ---- */

static int take_file(void *fields, char *word, struct error *err)
{
    struct build *command = fields;
    (void)err;
    command->files[command->n_files++] = word;
    return 0;
}

#define FIELD(member) OPTION_FIELD(struct build, member)

static const struct option_row rows[] = {
    {"model", 'm', "FOLDER", FIELD(model),
     .help = "Folder with the tokenizer.json of the target, or its GGUF file"},
    {"output", 'o', "DATASTORE", FIELD(output),
     .help = "Write to DATASTORE, as a whole or not at all"},
    {0},
};

static const char build_doc[] =
    "Makes a datastore of texts, in which a drafter looks for how a text may go on.\n"
    "A FILE whose name ends in .jsonl has an object a line with \"answer\" and perhaps \"prompt\" "
    "as texts, or \"answer_ids\" and \"prompt_ids\"; any other FILE is one text.\v"
    "The file has 8 bytes for each token, and fits the tokenizer that it was made "
    "with.\n\n" CLIENT_STATUS_DOC;

static int prepare(struct build *b, int argc, char **argv, struct error *err)
{
    const struct option_program program = {
        .variables = "OUTRIDER_DATASTORE_BUILD_",
        .example = "outrider datastore build -m models/target -o texts.ds story.txt",
        .args_doc = "FILE...",
        .doc = build_doc,
        .parts = {{rows, b, NULL}},
        .take = take_file};
    int rc = 0;
    TRY(mem_array(&b->files, (size_t)argc, sizeof *b->files, err));
    TRY(option_program_parse(&program, argc, argv, err));
    if (!b->model) return error_set(err, ERR_ARGUMENT, "--model FOLDER is missing");
    if (!b->output) return error_set(err, ERR_ARGUMENT, "--output DATASTORE is missing");
    if (b->n_files == 0) return error_set(err, ERR_ARGUMENT, "no text: give files");
out:
    return rc;
}

static int add_text(struct build *b, const struct recorded_text *text, struct error *err)
{
    static const int32_t end = DATASTORE_END;
    int rc = 0;
    TRY(token_ids_append(&b->tokens, text->prompt.data, text->prompt.n, err));
    TRY(token_ids_append(&b->tokens, text->answer.data, text->answer.n, err));
    TRY(token_ids_append(&b->tokens, &end, 1, err));
out:
    return rc;
}

static int build(struct build *b, struct error *err)
{
    int rc = 0;
    TRY(tokenizer_open(&b->tok, b->model, err));
    for (int i = 0; i < b->n_files; i++) {
        TRY(recorded_texts_read(&b->texts, b->tok, b->files[i], 0, err));
    }
    for (size_t i = 0; i < b->texts.n; i++) {
        TRY(add_text(b, &b->texts.data[i], err));
    }
    const struct datastore_tokenizer tokenizer = {tokenizer_fingerprint(b->tok),
                                                  tokenizer_vocab_size(b->tok)};
    TRY(datastore_write(b->output, b->tokens.data, b->tokens.n, &tokenizer, err));
    printf("%s: %zu texts, %zu tokens\n", b->output, b->texts.n, b->tokens.n - b->texts.n);
    TRY(client_flush(err));
out:
    return rc;
}

static int build_main(int argc, char **argv)
{
    struct build b = {0};
    struct error err;
    int status = CLIENT_OK;
    if (prepare(&b, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (build(&b, &err)) {
        status = client_fail(&err);
    }
    recorded_texts_free(&b.texts);
    token_ids_free(&b.tokens);
    tokenizer_close(b.tok);
    free(b.files);
    return status;
}

/* ---- check ---- */

static const char check_doc[] =
    "Reads a whole datastore and says whether it is as it was written.\v" CLIENT_STATUS_DOC;

static int check(const char *path, struct error *err)
{
    struct datastore *d = NULL;
    int rc = 0;
    TRY(datastore_open(&d, path, err));
    TRY(datastore_check(d, err));
    printf("%s: %zu tokens with the ends of texts, vocabulary %d, tokenizer %016llx\n", path,
           datastore_length(d), datastore_tokenizer(d).n_vocab,
           (unsigned long long)datastore_tokenizer(d).fingerprint);
    TRY(client_flush(err));
out:
    datastore_close(d);
    return rc;
}

static int take_path(void *path, char *word, struct error *err)
{
    return client_take_argument(path, word, "datastore", err);
}

static int check_main(int argc, char **argv)
{
    static const struct option_row no_rows[] = {{0}};
    const char *path = NULL;
    const struct option_program program = {.args_doc = "DATASTORE",
                                           .example = "outrider datastore check texts.ds",
                                           .doc = check_doc,
                                           .parts = {{no_rows, &path, NULL}},
                                           .take = take_path};
    struct error err;
    if (option_program_parse(&program, argc, argv, &err)) return client_fail_local(&err);
    if (!path) {
        error_set(&err, ERR_ARGUMENT, "no datastore: give its file");
        return client_fail_local(&err);
    }
    return check(path, &err) ? client_fail(&err) : CLIENT_OK;
}

int datastore_main(int argc, char **argv)
{
    static const struct client_commands commands = {
        .name = "datastore",
        .list = "build or check",
        .help = "Usage: outrider datastore COMMAND [OPTION...]\n"
                "Files of texts, in which a drafter looks for how a text may go on.\n\n"
                "Commands:\n"
                "  build  make a datastore of texts\n"
                "  check  is a datastore as it was written?\n\n"
                "Example: outrider datastore build -m models/target -o texts.ds story.txt\n\n"
                "'outrider datastore COMMAND --help' tells more.\n",
        .commands = {{"build", build_main}, {"check", check_main}}};
    return client_run_one(&commands, argc, argv);
}
