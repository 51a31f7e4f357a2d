/* outrider export: writes a model as a Hugging Face folder that other engines read. Needs no
 * server. */
#include <stdio.h>

#include "base/system/process.h"
#include "base/threads/queue.h"
#include "client/client.h"
#include "client/terminal.h"
#include "model/export/export.h"

enum { SHARD_MB_MOST = 1 << 20, GRACE_MS = 10000 /* to remove files that are only half written */ };

struct exporting {
    const char *model, *folder;
    int shard_mb;
    enum weight_form form;
    bool is_json, is_quiet;
    struct terminal terminal; /* of the progress */
    int percent;              /* the last one shown */
    struct queue *interrupts; /* shut by a signal */
};

static int take_word(void *fields, char *word, struct error *err)
{
    struct exporting *e = fields;
    if (!e->model) return client_take_argument(&e->model, word, "model", err);
    return client_take_argument(&e->folder, word, "model and one folder", err);
}

static int read_form(void *field, const char *option, const char *text, struct error *err)
{
    (void)option;
    return weight_form_find(field, text, err);
}

#define FIELD(member) OPTION_FIELD(struct exporting, member)

static const struct option_row rows[] = {
    {"shard-mb", 0, "MB", FIELD(shard_mb), .least = 1, .most = SHARD_MB_MOST, .standard_int = 4000,
     .help = "Most megabytes of weights in one file"},
    {"weights", 0, "FORM", OPTION_READ(struct exporting, form, read_form),
     .help = "bf16, or int8 or int4 for the matrices of the layers; default bf16"},
    {"json", 0, NULL, FIELD(is_json), .help = "Print one JSON object when done"},
    {"quiet", 0, NULL, FIELD(is_quiet), .help = "Print nothing when done, and no progress"},
    {0},
};

static const char doc[] =
    "Writes MODEL, a folder or synthetic:SHAPE,seed=S..., to the folder DIR, which must be new or "
    "empty: config.json, model.safetensors (several with an index where it is large) in bf16, "
    "and the tokenizer's files.\v"
    "A model in fp32 or fp16 is rounded to bf16, norms and biases too. With --weights int8 or "
    "int4 the matrices of the layers are stored in the form of compressed-tensors (pack-quantized, "
    "groups of 32), which vLLM and transformers read too; embedding and head stay bf16. Files get "
    "their names only when all of them are complete; a broken export leaves nothing, a killed "
    "one leaves *.partial.\n\n" CLIENT_STATUS_DOC;

static int prepare(struct exporting *e, int argc, char **argv, struct error *err)
{
    const struct option_program program = {.variables = "OUTRIDER_EXPORT_",
                                           .example =
                                               "outrider export models/target out --weights int4",
                                           .args_doc = "MODEL DIR",
                                           .doc = doc,
                                           .parts = {{rows, e, NULL}},
                                           .take = take_word};
    int rc = option_program_parse(&program, argc, argv, err);
    if (rc) return rc;
    if (e->folder) return 0;
    return error_set(err, ERR_ARGUMENT, "%s is missing: outrider export MODEL DIR",
                     e->model ? "DIR" : "MODEL");
}

static void on_stop(void *arg)
{
    struct exporting *e = arg;
    queue_shut(e->interrupts);
}

static bool on_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct exporting *e = arg;
    int percent = (int)(100 * (double)done_bytes / (double)total_bytes);
    if (e->terminal.is_terminal && !e->is_quiet && percent != e->percent) {
        e->percent = percent;
        fprintf(stderr, "\r%3d %% of %.1f GB%s", percent, (double)total_bytes * 1e-9,
                done_bytes == total_bytes ? "\n" : "");
    }
    return !queue_is_shut(e->interrupts);
}

static int print_result(const struct exporting *e, const struct export_result *result,
                        struct error *err)
{
    if (e->is_quiet) return 0;
    if (e->is_json) {
        return client_print_json(json_pack("{ss sI si sb}", "folder", e->folder, "bytes",
                                           (json_int_t)result->n_bytes, "files", result->n_shards,
                                           "tokenizer", (int)result->has_tokenizer),
                                 err);
    }
    printf("%s: %.1f MB of weights in %d file%s%s\n", e->folder, (double)result->n_bytes * 1e-6,
           result->n_shards, result->n_shards == 1 ? "" : "s",
           result->has_tokenizer ? "" : ", no tokenizer");
    return client_flush(err);
}

static int run(struct exporting *e, struct error *err)
{
    const struct export_options o = {.shard_bytes = (uint64_t)e->shard_mb * 1000000,
                                     .progress = on_progress,
                                     .arg = e,
                                     .form = e->form};
    struct export_result result;
    int rc = 0;
    TRY(queue_open(&e->interrupts, 1, err));
    TRY(process_open(&(struct process_calls){.on_stop = on_stop, .arg = e}, GRACE_MS, err));
    TRY(model_export(e->model, e->folder, &o, &result, err));
    rc = print_result(e, &result, err);
out:
    process_close();
    queue_close(e->interrupts);
    return rc;
}

int export_main(int argc, char **argv)
{
    struct exporting e = {.terminal = terminal_of(stderr)};
    struct error err;
    if (prepare(&e, argc, argv, &err)) return client_fail_local(&err);
    return run(&e, &err) ? client_fail_local(&err) : CLIENT_OK;
}
