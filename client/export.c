/* outrider export: writes a model as a Hugging Face folder that other engines read. Needs no
 * server. */
#include <errno.h>
#include <stdio.h>

#include "base/system/process.h"
#include "base/text/options.h"
#include "base/threads/queue.h"
#include "client/client.h"
#include "client/terminal.h"
#include "model/export/export.h"

enum {
    OPT_SHARD = 256,
    OPT_WEIGHTS,
    OPT_JSON,
    OPT_QUIET,
    SHARD_MB_DEFAULT = 4000,
    SHARD_MB_MOST = 1 << 20,
    GRACE_MS = 10000 /* to remove files that are only half written */
};

struct exporting {
    const char *model, *folder;
    int shard_mb;
    enum weight_form form;
    bool is_json, is_quiet;
    struct terminal terminal; /* of the progress */
    int percent;              /* the last one shown */
    struct queue *interrupts; /* shut by a signal */
    struct error *err;
};

static const struct argp_option options[] = {
    {"shard-mb", OPT_SHARD, "MB", 0, "Most megabytes of weights in one file; default 4000", 0},
    {"weights", OPT_WEIGHTS, "FORM", 0,
     "bf16, or int8 or int4 for the matrices of the layers; default bf16", 0},
    {"json", OPT_JSON, NULL, 0, "Print one JSON object when done", 0},
    {"quiet", OPT_QUIET, NULL, 0, "Print nothing when done, and no progress", 0},
    {0},
};

static const char doc[] =
    "Writes MODEL, a folder or synthetic:SHAPE,seed=S..., to the folder DIR, which must be new or "
    "empty: config.json, model.safetensors (several behind an index where it is large) in bf16, "
    "and the tokenizer's files.\v"
    "A model in fp32 or fp16 is rounded to bf16, norms and biases too. With --weights int8 or "
    "int4 the matrices of the layers are stored in the form of compressed-tensors (pack-quantized, "
    "groups of 32), which vLLM and transformers read too; embedding and head stay bf16. Files get "
    "their names only when all of them are complete; a broken export leaves nothing, a killed "
    "one leaves *.partial.\n\n" CLIENT_STATUS_DOC;

static error_t take_argument(struct exporting *e, char *argument)
{
    if (!e->model) return client_take_argument(&e->model, argument, "model", e->err);
    return client_take_argument(&e->folder, argument, "model and one folder", e->err);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct exporting *e = state->input;
    switch (key) {
    case OPT_SHARD:
        return client_parser_result(
            options_int(&e->shard_mb, "--shard-mb", arg, 1, SHARD_MB_MOST, e->err));
    case OPT_WEIGHTS:
        return client_parser_result(weight_form_find(&e->form, arg, e->err));
    case OPT_JSON:
        e->is_json = true;
        return 0;
    case OPT_QUIET:
        e->is_quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        return take_argument(e, arg);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int prepare(struct exporting *e, int argc, char **argv, struct error *err)
{
    const struct argp argp = {
        .options = options, .parser = parse_option, .args_doc = "MODEL DIR", .doc = doc};
    e->err = err;
    int rc = client_parse(&argp, argc, argv, e, err);
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
    struct exporting e = {.shard_mb = SHARD_MB_DEFAULT, .terminal = terminal_of(stderr)};
    struct error err;
    if (prepare(&e, argc, argv, &err)) return client_fail_local(&err);
    return run(&e, &err) ? client_fail_local(&err) : CLIENT_OK;
}
