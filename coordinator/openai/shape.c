/* Chunks of a stream come with every round, so they are written as text; what is rare is made as a
 * tree of values. */
#include "coordinator/openai/shape.h"

#include <inttypes.h>
#include <string.h>

#include "base/text/json_text.h"

static const char *object_of(const struct openai_shape *shape)
{
    if (shape->kind == OPENAI_COMPLETION) return "text_completion";
    return shape->is_stream ? "chat.completion.chunk" : "chat.completion";
}

static int put(struct buffer *out, const char *text, struct error *err)
{
    return buffer_append(out, text, strlen(text), err);
}

int openai_shape_open(struct openai_shape *shape, const struct openai_request *request,
                      const char *id, const char *name, const char *fingerprint, int64_t created_s,
                      struct error *err)
{
    int rc = 0;
    *shape = (struct openai_shape){.kind = request->kind,
                                   .is_stream = request->is_stream,
                                   .includes_usage = request->includes_usage};
    struct buffer *head = &shape->head;
    TRY(put(head, "{\"id\":", err));
    TRY(json_text_string(head, id, strlen(id), err));
    TRY(json_text_format(head, err, ",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":",
                         object_of(shape), created_s));
    TRY(json_text_string(head, name, strlen(name), err));
    TRY(put(head, ",\"system_fingerprint\":", err));
    TRY(json_text_string(head, fingerprint, strlen(fingerprint), err));
out:
    return rc;
}

void openai_shape_close(struct openai_shape *shape)
{
    buffer_free(&shape->head);
}

/* ---- a choice ---- */

static int put_delta(struct buffer *out, const struct openai_said *said, struct error *err)
{
    int rc = 0;
    if (!said->len && said->finish_reason && !said->is_first) return put(out, "\"delta\":{}", err);
    TRY(put(out,
            said->is_first ? "\"delta\":{\"role\":\"assistant\",\"content\":"
                           : "\"delta\":{\"content\":",
            err));
    TRY(json_text_string(out, said->text, said->len, err));
    TRY(put(out, "}", err));
out:
    return rc;
}

static int put_message(struct buffer *out, const struct openai_said *said, struct error *err)
{
    int rc = 0;
    TRY(put(out, "\"message\":{\"role\":\"assistant\",\"content\":", err));
    TRY(json_text_string(out, said->text, said->len, err));
    TRY(put(out, ",\"refusal\":null}", err));
out:
    return rc;
}

static int put_content(const struct openai_shape *shape, struct buffer *out,
                       const struct openai_said *said, struct error *err)
{
    if (shape->kind == OPENAI_CHAT) {
        return shape->is_stream ? put_delta(out, said, err) : put_message(out, said, err);
    }
    int rc = put(out, "\"text\":", err);
    return rc ? rc : json_text_string(out, said->text, said->len, err);
}

static int put_logprobs(const struct openai_shape *shape, struct buffer *out,
                        const struct openai_said *said, struct error *err)
{
    if (!said->logprobs) return put(out, "null", err);
    return openai_logprobs_put(out, shape->kind, said->prompt_logprobs, said->logprobs, err);
}

int openai_shape_choice(const struct openai_shape *shape, struct buffer *out,
                        const struct openai_said *said, struct error *err)
{
    int rc = 0;
    TRY(json_text_format(out, err, "{\"index\":%d,", said->index));
    TRY(put_content(shape, out, said, err));
    TRY(put(out, ",\"logprobs\":", err));
    TRY(put_logprobs(shape, out, said, err));
    if (said->finish_reason) {
        TRY(json_text_format(out, err, ",\"finish_reason\":\"%s\"}", said->finish_reason));
    } else {
        TRY(put(out, ",\"finish_reason\":null}", err));
    }
out:
    return rc;
}

/* ---- chunks ---- */

int openai_shape_usage(struct buffer *out, const struct openai_usage *u, struct error *err)
{
    int rc = 0;
    TRY(json_text_format(out, err,
                         "{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
                         ",\"total_tokens\":%" PRId64 ",",
                         u->prompt_tokens, u->completion_tokens,
                         u->prompt_tokens + u->completion_tokens));
    TRY(json_text_format(out, err, "\"prompt_tokens_details\":{\"cached_tokens\":%" PRId64 "},",
                         u->cached_tokens));
    TRY(json_text_format(out, err,
                         "\"completion_tokens_details\":{\"accepted_prediction_tokens\":%" PRId64
                         ",\"rejected_prediction_tokens\":%" PRId64 "}}",
                         u->accepted, u->rejected));
out:
    return rc;
}

static int begin_event(const struct openai_shape *shape, struct buffer *out, struct error *err)
{
    int rc = put(out, "data: ", err);
    return rc ? rc : buffer_append(out, shape->head.data, shape->head.len, err);
}

int openai_shape_chunk(const struct openai_shape *shape, struct buffer *out,
                       const struct openai_said *said, const json_t *outrider, struct error *err)
{
    int rc = 0;
    TRY(begin_event(shape, out, err));
    TRY(put(out, ",\"choices\":[", err));
    TRY(openai_shape_choice(shape, out, said, err));
    TRY(put(out, shape->includes_usage ? "],\"usage\":null" : "]", err));
    if (outrider) {
        TRY(put(out, ",\"outrider\":", err));
        TRY(json_text_value(out, outrider, err));
    }
    TRY(put(out, "}\n\n", err));
out:
    return rc;
}

int openai_shape_end(const struct openai_shape *shape, struct buffer *out,
                     const struct openai_usage *usage, struct error *err)
{
    int rc = 0;
    if (shape->includes_usage) {
        TRY(begin_event(shape, out, err));
        TRY(put(out, ",\"choices\":[],\"usage\":", err));
        TRY(openai_shape_usage(out, usage, err));
        TRY(put(out, "}\n\n", err));
    }
    TRY(put(out, "data: [DONE]\n\n", err));
out:
    return rc;
}

/* ---- "outrider" ---- */

static const char *const origins[] = {"plain", "accepted", "replacement", "bonus"};

/* A probability, where it is known. */
static void set_known(json_t *object, const char *key, float value)
{
    if (value >= 0) json_object_set_new(object, key, json_real((double)value));
}

static json_t *guess_of(const struct generate_guess *guess)
{
    json_t *made =
        json_pack("{s:i, s:i, s:i, s:s, s:f}", "place", guess->place, "sibling", guess->sibling,
                  "id", (int)guess->id, "text", guess->text, "q", (double)guess->q);
    set_known(made, "p", guess->p);
    if (guess->is_untried) json_object_set_new(made, "untried", json_true());
    return made;
}

static json_t *details_of(const struct generate_round *round)
{
    json_t *list = json_array();
    for (int i = 0; i < round->n_guesses; i++) {
        json_array_append_new(list, guess_of(&round->guesses[i]));
    }
    json_t *times =
        json_pack("{s:I, s:I, s:I, s:I, s:I}", "draft", (json_int_t)round->draft_us, "verify",
                  (json_int_t)round->verify_us, "collective", (json_int_t)round->collective_us,
                  "wire", (json_int_t)round->wire_us, "total", (json_int_t)round->total_us);
    return json_pack("{s:s, s:o, s:i, s:o, s:i, s:i}", "drafter", round->drafter, "guesses", list,
                     "kept", round->n_kept, "time_us", times, "lanes", round->n_lanes, "rows",
                     round->n_rows);
}

/* p of token i, if the round tells. */
static float p_of(const struct generate_tokens *tokens, int i)
{
    const struct generate_round *round = tokens->round;
    if (!round || i > round->n_kept) return -1;
    return i < round->n_kept ? round->guesses[i].p : round->next_p;
}

json_t *openai_shape_round(const struct generate_tokens *tokens)
{
    json_t *list = json_array();
    for (int i = 0; i < tokens->n; i++) {
        json_t *one = json_pack("{s:i, s:s, s:i}", "id", (int)tokens->ids[i], "origin",
                                origins[tokens->origins[i]], "text_end", (int)tokens->text_ends[i]);
        set_known(one, "p", p_of(tokens, i));
        json_array_append_new(list, one);
    }
    json_t *made = json_pack("{s:i, s:o}", "index", tokens->index, "tokens", list);
    if (tokens->round) json_object_set_new(made, "round", details_of(tokens->round));
    if (tokens->rejected_id >= 0) {
        json_object_set_new(
            made, "rejected",
            json_pack("{s:i, s:s}", "id", (int)tokens->rejected_id, "text", tokens->rejected_text));
    }
    return made;
}

/* Each word is one value, which all its places share. */
json_t *openai_shape_origins(const uint8_t *list, size_t n)
{
    enum { N_WORDS = sizeof origins / sizeof *origins };
    json_t *words[N_WORDS], *made = json_array();
    for (int i = 0; i < N_WORDS; i++) {
        words[i] = json_string(origins[i]);
    }
    for (size_t i = 0; i < n; i++) {
        json_array_append(made, words[list[i]]);
    }
    for (int i = 0; i < N_WORDS; i++) {
        json_decref(words[i]);
    }
    return made;
}

static json_t *counts_of(const uint32_t counts[DRAFT_MAX])
{
    int n = DRAFT_MAX;
    json_t *list = json_array();
    while (n && !counts[n - 1]) {
        n--;
    }
    for (int i = 0; i < n; i++) {
        json_array_append_new(list, json_integer(counts[i]));
    }
    return list;
}

static json_t *times_of(const struct generate_counters *c)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "queue",
                     (json_int_t)c->queue_us, "prompt", (json_int_t)c->prompt_us, "total",
                     (json_int_t)c->total_us, "rounds", (json_int_t)c->rounds_us, "draft",
                     (json_int_t)c->draft_us, "verify", (json_int_t)c->verify_us, "collective",
                     (json_int_t)c->collective_us, "wire", (json_int_t)c->wire_us, "accept",
                     (json_int_t)c->accept_us);
}

json_t *openai_shape_summary(const struct generate_summary *s)
{
    const struct generate_counters *c = &s->counters;
    double tested = (double)c->accepted + c->rejections;
    return json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
        "s:I, s:I, "
        "s:I, s:f, s:f, "
        "s:o, s:o, s:o}",
        "index", s->index, "rule", s->rule, "strategy", strategy_names[s->strategy], "arithmetic",
        s->arithmetic, "speculation_off", s->speculation_off, "seed", (json_int_t)s->seed, "rounds",
        (json_int_t)c->rounds, "drafted", (json_int_t)c->drafted, "accepted",
        (json_int_t)c->accepted, "found", (json_int_t)c->found, "found_accepted",
        (json_int_t)c->found_accepted, "siblings", (json_int_t)c->siblings, "siblings_accepted",
        (json_int_t)c->siblings_accepted, "staged", (json_int_t)c->staged, "appended",
        (json_int_t)c->appended, "appended_accepted", (json_int_t)c->appended_accepted, "predicted",
        (json_int_t)c->predicted, "predicted_accepted", (json_int_t)c->predicted_accepted,
        "rejections", (json_int_t)c->rejections, "preemptions", (json_int_t)c->preemptions, "alpha",
        tested > 0 ? c->accepted / tested : 0.0, "mean_n_draft",
        c->rounds ? (double)c->drafted / c->rounds : 0.0, "tested_per_position",
        counts_of(c->tested_at), "accepted_per_position", counts_of(c->accepted_at), "time_us",
        times_of(c));
}
