/* outrider record: texts of a running server with the target's features, for training draft models
 * that read these. Each text is generated where the prompts do not bring one, and then scored with
 * features: these are the same bits that a draft model gets while it serves. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "client/client.h"
#include "client/generate_options.h"
#include "client/record/prompts.h"
#include "client/record/recording.h"
#include "client/server.h"

enum { PATH_BYTES = 1024, PARTS_MAX = 1 << 20 };

struct record_options {
    const char *prompts, *out;
    struct feature_wish features;
    int top_n;
    int part, n_parts; /* of the texts; 0: all of them */
};

struct record {
    struct record_options options;
    struct generate_options generate;
    struct record_prompts prompts;
    struct recording text;
    struct buffer request;
    struct server server;
    /* Copies of names of what is served, because descriptions are lent. */
    char model[256], arithmetic[64];
    struct service_description served;
    int n_written, n_kept, n_short;
};

/* ---- the command line ---- */

static int read_boundaries(void *field, const char *option, const char *text, struct error *err)
{
    struct feature_wish *wish = field;
    struct token_ids list = {0};
    int rc = 0;
    TRY(input_ids(&list, option, text, err));
    wish->n = 0;
    if (list.n > FEATURE_WISH_MAX) {
        rc = error_set(err, ERR_ARGUMENT, "%s: %zu boundaries, at most %d are taken", option,
                       list.n, FEATURE_WISH_MAX);
        goto out;
    }
    for (size_t i = 0; i < list.n; i++) {
        int32_t least = i ? list.data[i - 1] + 1 : 0;
        if (list.data[i] < least || list.data[i] > UINT16_MAX) {
            rc = error_set(err, ERR_ARGUMENT,
                           "%s: %d after %d; boundaries ascend, and layer 0 begins at 0", option,
                           list.data[i], least - 1);
            goto out;
        }
        wish->boundaries[wish->n++] = list.data[i];
    }
out:
    token_ids_free(&list);
    return rc;
}

/* K/N: part K of N, from 1 on. */
static int read_part(void *fields, const char *option, const char *text, struct error *err)
{
    struct record_options *o = fields;
    char rest;
    if (sscanf(text, "%d/%d%c", &o->part, &o->n_parts, &rest) == 2 && o->part >= 1 &&
        o->part <= o->n_parts && o->n_parts <= PARTS_MAX) {
        return 0;
    }
    return error_set(err, ERR_ARGUMENT, "%s %.40s: expected K/N, part K of N, such as 1/4", option,
                     text);
}

static const struct option_row rows[] = {
    OPTION_GROUP("Recording", "--prompts=prompts.jsonl --boundaries=2,15,27 --out=features"),
    {"prompts", 0, "FILE", OPTION_FIELD(struct record_options, prompts),
     .help = "An object a line, with \"prompt\", a text, or \"prompt_ids\"; with \"answer_ids\" "
             "beside these, the text is not generated"},
    {"boundaries", 0, "LIST", OPTION_READ(struct record_options, features, read_boundaries),
     .help = "Record the residual stream before these layers, such as 2,15,27, at most 8; the "
             "number of layers means after the last one, before the final norm"},
    {"normed", 0, NULL, OPTION_FIELD(struct record_options, features.normed),
     .help = "Record also, as the last column, what the head reads: after the final norm"},
    {"top", 't', "N", OPTION_FIELD(struct record_options, top_n), .most = SCORE_TOP_MAX,
     .standard = "0",
     .help = "Record the N best tokens after each token with their log-probabilities, 0 to 64"},
    {"out", 0, "FOLDER", OPTION_FIELD(struct record_options, out),
     .help = "Write NUMBER.safetensors there for each line; those that are there already are "
             "left as they are, whatever they hold, so a command that was interrupted can be given "
             "again"},
    {"part", 0, "K/N", .read = read_part,
     .help = "Record every N-th text alone, from text K on, so that N commands share the work"},
    {0},
};

static const struct option_row connection_of_record[] = {
    OPTION_GROUP("Connection", "--address=10.0.0.1:7070"),
    CLIENT_ADDRESS_ROW(struct generate_options),
    {0},
};

static const char doc[] =
    "Writes texts of a running server down with the target's features, rows of its residual "
    "stream, "
    "for training draft models that read them. The coordinator needs --serve-features.\v"
    "Each text is a safetensors file with tokens I32 [N], features BF16 [N-1][columns][width], "
    "logprobs F32 [N-1] of tokens 1 and on, and with --top best_ids and best_logprobs "
    "[N-1][top].\n\n" CLIENT_STATUS_DOC;

static int prepare(struct record *r, int argc, char **argv, struct error *err)
{
    const struct record_options *o = &r->options;
    struct connection *connection = &r->generate.connection;
    const struct option_program program = {
        .doc = doc,
        .example = "outrider record --prompts prompts.jsonl --boundaries 2,15 --out DIR",
        .parts = {{rows, &r->options, NULL},
                  {request_rows, &r->generate, NULL},
                  {connection_of_record, &r->generate, NULL},
                  {connection_rows, connection, NULL}}};
    int rc = 0;
    generate_options_init(&r->generate);
    TRY(option_program_parse(&program, argc, argv, err));
    TRY(connection_open(connection, err));
    TRY(generate_options_check(&r->generate, err));
    const char *missing = !o->prompts                               ? "--prompts FILE"
                          : !o->out                                 ? "--out FOLDER"
                          : feature_wish_columns(&o->features) == 0 ? "--boundaries LIST"
                                                                    : NULL;
    if (missing) return error_set(err, ERR_ARGUMENT, "give %s", missing);
    TRY(record_prompts_read(&r->prompts, o->prompts, err));
    if (mkdir(o->out, 0777) && errno != EEXIST) {
        rc = error_set(err, ERR_IO, "cannot make the folder %.300s: %s", o->out, strerror(errno));
    }
out:
    return rc;
}

/* ---- one text ---- */

static int misunderstood(const struct record *r, struct error *err)
{
    return error_wrap(err, "%.160s sends what this client does not understand", r->server.address);
}

/* The tokens of an answer; with the summary come those of the prompt, which are before them. */
static int take_answer(struct record *r, struct token_ids *answer,
                       const struct generate_reply *reply, struct error *err)
{
    int rc = 0;
    if (reply->tokens) {
        TRY(token_ids_append(answer, reply->tokens->ids, (size_t)reply->tokens->n, err));
    } else if (reply->summary && reply->summary->prompt_ids) {
        TRY(token_ids_append(&r->text.ids, reply->summary->prompt_ids,
                             (size_t)reply->summary->prompt_tokens, err));
        snprintf(r->text.rule, sizeof r->text.rule, "%s", reply->summary->rule);
    }
out:
    return rc;
}

/* Asks for the text after the prompt. */
static int generate(struct record *r, const struct record_prompt *prompt, struct token_ids *answer,
                    struct error *err)
{
    struct generate_request request = r->generate.request;
    const uint8_t *data;
    size_t len;
    int rc = 0;
    request.prompt = prompt->text;
    request.prompt_len = prompt->text ? strlen(prompt->text) : 0;
    request.prompt_ids = prompt->ids.data;
    request.n_prompt_ids = (int)prompt->ids.n;
    TRY(generate_request_encode(&r->request, &request, err));
    TRY(server_start(&r->server, "/outrider.generation.v1.Generation/Generate", &r->request, err));
    while (!(rc = server_receive(&r->server, &data, &len, err))) {
        struct generate_reply reply;
        struct arena *arena;
        TRY(server_arena(&r->server, len, &arena, err));
        rc = generate_reply_decode(data, len, arena, &reply, err);
        if (rc) return misunderstood(r, err);
        TRY(take_answer(r, answer, &reply, err));
    }
    if (rc == ERR_CLOSED) rc = 0;
    if (!rc && r->text.ids.n == 0) {
        rc = error_set(err, ERR_UNAVAILABLE, "%.160s ended the text without a summary",
                       r->server.address);
    }
out:
    return rc;
}

/* Makes the text: the prompt's ids and those of the answer. */
static int find_text(struct record *r, const struct record_prompt *prompt, struct error *err)
{
    struct token_ids answer = {0};
    int rc = 0;
    r->text.ids.n = 0;
    if (prompt->answer.n) {
        snprintf(r->text.rule, sizeof r->text.rule, "%s", RECORDING_GIVEN);
        TRY(token_ids_append(&r->text.ids, prompt->ids.data, prompt->ids.n, err));
        TRY(token_ids_append(&answer, prompt->answer.data, prompt->answer.n, err));
    } else {
        TRY(generate(r, prompt, &answer, err));
    }
    r->text.n_prompt = r->text.ids.n;
    TRY(token_ids_append(&r->text.ids, answer.data, answer.n, err));
out:
    token_ids_free(&answer);
    return rc;
}

static int score(struct record *r, struct error *err)
{
    const struct record_options *o = &r->options;
    const struct score_request request = {.ids = r->text.ids.data,
                                          .n_ids = (int)r->text.ids.n,
                                          .top_n = o->top_n,
                                          .features = o->features};
    const uint8_t *data;
    size_t len;
    int rc = 0;
    TRY(recording_begin(&r->text, feature_wish_columns(&o->features), o->top_n, err));
    TRY(score_request_encode(&r->request, &request, err));
    TRY(server_start(&r->server, "/outrider.generation.v1.Generation/Score", &r->request, err));
    while (!(rc = server_receive(&r->server, &data, &len, err))) {
        struct score_reply reply;
        struct arena *arena;
        TRY(server_arena(&r->server, len, &arena, err));
        rc = score_reply_decode(data, len, arena, &reply, err);
        if (!rc) rc = recording_add(&r->text, &reply, err);
        if (rc == ERR_FORMAT) return misunderstood(r, err);
        if (rc) goto out;
    }
    if (rc == ERR_CLOSED) rc = 0;
    if (!rc && !recording_is_whole(&r->text)) {
        rc = error_set(err, ERR_UNAVAILABLE, "%.160s ended the scores after token %zu of %zu",
                       r->server.address, r->text.n_scored, r->text.ids.n);
    }
out:
    return rc;
}

/* A text of one token has no feature before a token. */
static int record_one(struct record *r, const struct record_prompt *prompt, struct error *err)
{
    char path[PATH_BYTES];
    int rc = 0;
    int n = snprintf(path, sizeof path, "%s/%06d.safetensors", r->options.out, prompt->line);
    if (n >= PATH_BYTES) return error_set(err, ERR_ARGUMENT, "--out: the name is too long");
    if (access(path, F_OK) == 0) {
        r->n_kept++;
        return 0;
    }
    TRY(find_text(r, prompt, err));
    if (r->text.ids.n < 2) {
        r->n_short++;
        goto out;
    }
    TRY(score(r, err));
    TRY(recording_write(&r->text, path, &r->options.features, &r->generate.request, &r->served,
                        err));
    r->n_written++;
out:
    return rc ? error_wrap(err, "line %d of the prompts", prompt->line) : 0;
}

static int run(struct record *r, struct error *err)
{
    struct service_description served;
    int rc = 0;
    TRY(server_open(&r->server, &r->generate.connection, 0, err));
    TRY(server_describe(&r->server, &served, err));
    snprintf(r->model, sizeof r->model, "%s", served.target_model);
    snprintf(r->arithmetic, sizeof r->arithmetic, "%s", served.arithmetic);
    r->served = (struct service_description){.target_model = r->model,
                                             .arithmetic = r->arithmetic,
                                             .model_fingerprint = served.model_fingerprint};
    for (size_t i = 0; i < r->prompts.n; i++) {
        bool is_ours =
            r->options.n_parts == 0 || (int)(i % (size_t)r->options.n_parts) == r->options.part - 1;
        if (is_ours) TRY(record_one(r, &r->prompts.data[i], err));
    }
    printf("%d texts recorded in %s", r->n_written, r->options.out);
    if (r->n_kept) printf(", %d were there already", r->n_kept);
    if (r->n_short) printf(", %d of one token left out", r->n_short);
    fputc('\n', stdout);
    rc = client_flush(err);
out:
    return rc;
}

int record_main(int argc, char **argv)
{
    static struct record r; /* the lists of its options make it large */
    struct error err;
    int status = CLIENT_OK;
    r = (struct record){0};
    if (prepare(&r, argc, argv, &err)) {
        status = client_fail_local(&err);
    } else if (run(&r, &err)) {
        server_explain(&r.server, &err);
        status = client_fail(&err);
    }
    server_close(&r.server);
    record_prompts_free(&r.prompts);
    recording_free(&r.text);
    buffer_free(&r.request);
    generate_options_free(&r.generate);
    return status;
}
