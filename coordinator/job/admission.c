/* Text to ids, and into the queue. */
#include "coordinator/job/admission.h"

#include <time.h>

#include "coordinator/job/chat_prompt.h"
#include "coordinator/job/groups.h"
#include "lookup/predicted.h"

enum { REQUEST_SLACK_BYTES = 1 << 20 };

static int check_ids(const struct admission *a, const int32_t *ids, int n, struct error *err)
{
    int n_vocab = atomic_load(&a->n_vocab);
    for (int i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= n_vocab) {
            return error_set(err, ERR_ARGUMENT, "token id %d is outside of the vocabulary of %d",
                             ids[i], n_vocab);
        }
    }
    return 0;
}

/* The prompt of a request: a text, or ids when it is NULL. */
struct prompt_source {
    const char *text;
    size_t len;
    const int32_t *ids;
    int n_ids;
    unsigned flags; /* of tokenizer_encode */
};

static int fill_prompt(const struct admission *a, struct token_ids *prompt,
                       const struct prompt_source *from, struct error *err)
{
    if (!from->text) {
        int rc = check_ids(a, from->ids, from->n_ids, err);
        return rc ? rc : token_ids_append(prompt, from->ids, (size_t)from->n_ids, err);
    }
    if (from->len > (size_t)a->max_prompt_bytes) {
        return error_set(err, ERR_ARGUMENT, "the text has %zu bytes, more than the %d allowed",
                         from->len, a->max_prompt_bytes);
    }
    return tokenizer_encode(a->tok, from->text, from->len, from->flags, prompt, err);
}

static unsigned encode_flags(bool adds_no_special, bool parses_no_special)
{
    return (adds_no_special ? 0 : TOKENIZER_ADD_SPECIAL) |
           (parses_no_special ? 0 : TOKENIZER_PARSE_SPECIAL);
}

int admission_message_bytes(const struct admission *a)
{
    return a->max_prompt_bytes + REQUEST_SLACK_BYTES;
}

/* The ids that a request names beside its prompt. */
static int check_edits(const struct admission *a, const struct generate_request *req,
                       struct error *err)
{
    int rc = check_ids(a, req->stop_ids, req->n_stop_ids, err);
    if (rc) return error_wrap(err, "stop_token_ids");
    for (int i = 0; i < req->n_biases; i++) {
        rc = check_ids(a, &req->biases[i].id, 1, err);
        if (rc) return error_wrap(err, "logit_bias");
    }
    for (int i = 0; i < req->n_bans; i++) {
        rc = check_ids(a, req->bans[i].ids, req->bans[i].n, err);
        if (rc) return error_wrap(err, "bad_words");
    }
    return 0;
}

/* As the answer would have it: no special tokens, and no token in front. */
static int fill_prediction(const struct admission *a, struct job *job,
                           const struct generate_request *req, struct error *err)
{
    struct token_ids ids = {0};
    int rc = 0;
    if (!req->prediction || !req->prediction_len) return 0;
    if (req->prediction_len > (size_t)a->max_prompt_bytes) {
        return error_set(err, ERR_ARGUMENT, "prediction has %zu bytes, more than the %d allowed",
                         req->prediction_len, a->max_prompt_bytes);
    }
    rc = tokenizer_encode(a->tok, req->prediction, req->prediction_len, 0, &ids, err);
    if (rc == ERR_ARGUMENT) error_wrap(err, "prediction");
    if (!rc && ids.n > 0) rc = predicted_open(&job->predicted, ids.data, (int)ids.n, err);
    token_ids_free(&ids);
    return rc;
}

/* Roles and texts; NULL = no memory. */
static json_t *messages_json(const struct generate_request *req)
{
    json_t *list = json_array();
    for (int i = 0; i < req->n_messages; i++) {
        const struct chat_message *from = &req->messages[i];
        json_t *message =
            json_pack("{ss ss%}", "role", from->role, "content", from->content, from->content_len);
        if (!json_array_append_new(list, message)) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static int fill_conversation(const struct admission *a, struct job *job,
                             const struct generate_request *req, struct error *err)
{
    struct chat_template *chat;
    int rc = served_chat_get(a->chat, &chat, err);
    if (rc) return rc;
    const struct chat_prompt prompt = {
        .chat = chat,
        .tok = a->tok,
        .messages = messages_json(req),
        .adds_generation_prompt = true,
        .guards_users = a->guards_users,
        .most_bytes = a->max_prompt_bytes,
        .now_s = (int64_t)time(NULL),
    };
    rc = prompt.messages ? chat_prompt_encode(&prompt, &job->prompt, err)
                         : error_set(err, ERR_NO_MEMORY, "no memory for a conversation");
    json_decref(prompt.messages);
    chat_template_close(chat);
    return rc;
}

int admission_fill_generate(const struct admission *a, struct job *job,
                            const struct generate_request *req, struct error *err)
{
    const struct prompt_source from = {
        .text = req->prompt,
        .len = req->prompt_len,
        .ids = req->prompt_ids,
        .n_ids = req->n_prompt_ids,
        .flags = encode_flags(req->adds_no_special, req->parses_no_special),
    };
    int rc = 0;
    TRY(check_edits(a, req, err));
    if (req->n_messages && !req->prompt) {
        TRY(fill_conversation(a, job, req, err));
    } else {
        TRY(fill_prompt(a, &job->prompt, &from, err));
    }
    TRY(fill_prediction(a, job, req, err));
    TRY(generate_request_keep(&job->generate, &job->arena, req, err));
out:
    return rc;
}

int admission_fill_score(const struct admission *a, struct job *job,
                         const struct score_request *req, struct error *err)
{
    const struct prompt_source from = {
        .text = req->text,
        .len = req->text_len,
        .ids = req->ids,
        .n_ids = req->n_ids,
        .flags = encode_flags(req->adds_no_special, req->parses_no_special),
    };
    if (feature_wish_columns(&req->features) && !a->serves_features) {
        return error_set(err, ERR_UNSUPPORTED,
                         "the target's features are not served here: start the coordinator with "
                         "--serve-features");
    }
    job->score = (struct score_request){.top_n = req->top_n, .features = req->features};
    return fill_prompt(a, &job->prompt, &from, err);
}

/* Asks the coordinator itself: whichever engine serves has the answer. */
static int ask(const struct admission *a, struct job *job, struct error *err)
{
    int rc = queue_push(a->control, job, err);
    if (!rc) groups_wake(a->groups);
    return rc;
}

int admission_submit_take(struct admission *a, struct job *job, struct error *err)
{
    bool is_control = job->kind == JOB_DESCRIBE;
    int rc = is_control ? 0 : job_charge(job, a->budget, err); /* Describe answers always */
    if (rc) return rc;
    if (!is_control && atomic_fetch_add(&a->n_waiting, 1) >= a->capacity) {
        rc = error_set(err, ERR_EXHAUSTED, "there is room for %d", a->capacity);
    }
    if (!rc) rc = is_control ? ask(a, job, err) : groups_place(a->groups, -1, job, err);
    if (rc && !is_control) admission_begun(a);
    if (rc == ERR_EXHAUSTED) error_wrap(err, "too many requests are waiting; try again later");
    if (rc == ERR_CLOSED) rc = error_set(err, ERR_UNAVAILABLE, "the coordinator is shutting down");
    return rc;
}

void admission_begun(struct admission *a)
{
    atomic_fetch_sub(&a->n_waiting, 1);
}

void admission_count_refusal(struct admission *a, int code)
{
    signals_add(a->signals, SIGNAL_ENDS, (int)job_end_of_refusal(code), 1);
}
