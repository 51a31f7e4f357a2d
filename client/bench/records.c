/* Keeps what became of each request, and shows it as JSON. */
#include "client/bench/records.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "client/client.h"

void records_free(struct records *records)
{
    for (size_t i = 0; i < records->n; i++) {
        struct record *record = &records->items[i];
        for (int t = 0; t < record->n_texts; t++) {
            free(record->texts[t].messages);
        }
        free(record->texts);
        free(record->error);
    }
    free(records->items);
    *records = (struct records){0};
}

int records_begin(struct records *records, const struct bench_arm *arm, int repetition, int number,
                  int n_texts, int64_t begin_us, size_t *at, struct error *err)
{
    struct record_text *texts;
    int rc = mem_grow(&records->items, &records->capacity, records->n + 1, err);
    if (!rc) rc = mem_array(&texts, (size_t)n_texts, sizeof *texts, err);
    if (rc) return rc;
    *at = records->n++;
    records->items[*at] = (struct record){.arm = arm,
                                          .repetition = repetition,
                                          .number = number,
                                          .begin_us = begin_us,
                                          .queue_us = -1,
                                          .prompt_tokens = -1,
                                          .texts = texts,
                                          .n_texts = n_texts};
    return 0;
}

int records_tokens(struct records *records, size_t at, const struct generate_tokens *tokens,
                   int64_t at_us, struct error *err)
{
    struct record *record = &records->items[at];
    if (tokens->index >= record->n_texts) return 0;
    struct record_text *text = &record->texts[tokens->index];
    int rc = mem_grow(&text->messages, &text->capacity, text->n + 1, err), n_accepted = 0;
    if (rc) return rc;
    for (int i = 0; i < tokens->n; i++) {
        n_accepted += tokens->origins[i] == TOKEN_ACCEPTED ? 1 : 0;
    }
    text->messages[text->n++] = (struct record_message){at_us, tokens->n, n_accepted};
    return 0;
}

void records_summary(struct records *records, size_t at, const struct generate_summary *summary)
{
    struct record *record = &records->items[at];
    record->prompt_tokens = summary->prompt_tokens;
    if (summary->index >= record->n_texts) return;
    struct record_text *text = &record->texts[summary->index];
    snprintf(text->finish_reason, sizeof text->finish_reason, "%s", summary->finish_reason);
    if (summary->index == 0) record->queue_us = (int64_t)summary->counters.queue_us;
}

void records_end(struct records *records, size_t at, int64_t at_us, const struct error *why)
{
    struct record *record = &records->items[at];
    record->total_us = at_us;
    if (why) record->error = strdup(why->text);
}

/* ---- JSON ---- */

static json_t *seconds_json(int64_t us)
{
    return client_json_number(us >= 0 ? (double)us / 1e6 : (double)NAN);
}

static json_t *text_json(const struct record_text *text)
{
    json_t *gaps = json_array(), *tokens = json_array(), *accepted = json_array();
    int n_tokens = 0;
    for (size_t i = 0; i < text->n; i++) {
        const struct record_message *message = &text->messages[i];
        n_tokens += message->n_tokens;
        if (i > 0) {
            json_array_append_new(gaps, seconds_json(message->at_us - message[-1].at_us));
        }
        json_array_append_new(tokens, json_integer(message->n_tokens));
        json_array_append_new(accepted, json_integer(message->n_accepted));
    }
    return json_pack("{so si so so so so}", "finish_reason",
                     text->finish_reason[0] ? json_string(text->finish_reason) : json_null(),
                     "completion_tokens", n_tokens, "ttft",
                     seconds_json(text->n ? text->messages[0].at_us : -1), "itls", gaps,
                     "tokens_per_message", tokens, "accepted_per_message", accepted);
}

static json_t *record_json(const struct record *record)
{
    json_t *texts = json_array();
    for (int i = 0; i < record->n_texts; i++) {
        json_array_append_new(texts, text_json(&record->texts[i]));
    }
    bool is_known = record->prompt_tokens >= 0;
    const char *error = record->error;
    return json_pack("{ss si si so so so so so so}", "arm", record->arm->label, "repetition",
                     record->repetition, "request", record->number, "start",
                     seconds_json(record->begin_us), "latency", seconds_json(record->total_us),
                     "queue", seconds_json(record->queue_us), "prompt_tokens",
                     is_known ? json_integer(record->prompt_tokens) : json_null(), "texts", texts,
                     "error", error ? client_json_text(error, strlen(error)) : json_null());
}

json_t *records_json(const struct records *records)
{
    json_t *array = json_array();
    for (size_t i = 0; i < records->n; i++) {
        json_array_append_new(array, record_json(&records->items[i]));
    }
    return array;
}
