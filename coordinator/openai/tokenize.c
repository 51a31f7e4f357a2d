/* /tokenize and /detokenize, with the fields of vLLM and of llama.cpp. */
#include <string.h>

#include "coordinator/openai/body.h"
#include "coordinator/openai/internal.h"

/* ---- tokenize ---- */

static const char *text_field(const struct openai_reading *r)
{
    return json_object_get(r->root, "prompt") ? "prompt" : "content";
}

/* How the answer shows the tokens, beside their ids. */
struct shown {
    bool has_pieces;  /* llama.cpp's with_pieces */
    bool has_strings; /* vLLM's return_token_strs */
};

static int read_flag(struct openai_reading *r, const char *field, bool *out)
{
    const json_t *v = json_object_get(r->root, field);
    r->field = field;
    return v && !json_is_null(v) ? openai_read_bool(r, v, out) : 0;
}

/* Refuses fields that would change the ids and are not supported. */
static int refuse_unsupported(struct openai_reading *r)
{
    static const char *const names[] = {"chat_template", "continue_final_message", "documents",
                                        "tools"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *v = json_object_get(r->root, names[i]);
        r->field = names[i];
        if (v && !openai_is_empty(v)) return openai_refuse(r, "is not supported by this server");
    }
    return 0;
}

/* The text of {"prompt": ...} or {"content": ...}. */
static int read_text(struct openai_reading *r, const char **text, size_t *len)
{
    const json_t *v = json_object_get(r->root, "prompt");
    r->field = v ? "prompt" : "content";
    if (!v) v = json_object_get(r->root, "content");
    if (!v) return openai_refuse(r, "is missing, as are prompt and messages");
    *len = json_string_length(v);
    return openai_read_string(r, v, text);
}

/* vLLM adds BOS and the like to a "prompt" where nothing is said, llama.cpp does not add them to
 * "content". */
static int read_encode_flags(struct openai_reading *r, unsigned *flags)
{
    bool adds = json_object_get(r->root, "prompt") != NULL, parses = true;
    int rc = 0;
    TRY(read_flag(r, "add_special", &adds));
    TRY(read_flag(r, "add_special_tokens", &adds));
    TRY(read_flag(r, "parse_special", &parses));
    *flags = (adds ? TOKENIZER_ADD_SPECIAL : 0) | (parses ? TOKENIZER_PARSE_SPECIAL : 0);
out:
    return rc;
}

static int encode_text(struct openai_api *api, struct openai_reading *r, struct token_ids *ids)
{
    const struct admission *admission = api->options.admission;
    const char *text = "";
    size_t len = 0;
    unsigned flags;
    int rc = 0;
    TRY(read_text(r, &text, &len));
    if (len > (size_t)admission->max_prompt_bytes) {
        return openai_refuse(r, "has %zu bytes, more than the %d allowed", len,
                             admission->max_prompt_bytes);
    }
    TRY(read_encode_flags(r, &flags));
    TRY(tokenizer_encode(admission->tok, text, len, flags, ids, r->err));
out:
    return rc;
}

/* Reads values for the template, as a conversation has them. */
static int read_values(struct openai_reading *r, json_t **out)
{
    json_t *v = json_object_get(r->root, "chat_template_kwargs");
    r->field = "chat_template_kwargs";
    if (!v || json_is_null(v)) return 0;
    if (!json_is_object(v)) {
        return openai_refuse(r, "is %s, must be an object", openai_type_of(v));
    }
    *out = v;
    return 0;
}

/* The template writes BOS and the like itself. */
static int refuse_added(struct openai_reading *r)
{
    bool adds = false;
    int rc = read_flag(r, "add_special_tokens", &adds);
    if (rc || !adds) return rc;
    return openai_refuse(r, "is true, must be false with messages: the template adds them");
}

static int encode_chat(struct openai_api *api, struct openai_reading *r, struct token_ids *ids)
{
    struct openai_request request = {.messages = json_object_get(r->root, "messages"),
                                     .add_generation_prompt = true};
    int rc = 0;
    TRY(openai_check_messages(r, request.messages));
    TRY(read_flag(r, "add_generation_prompt", &request.add_generation_prompt));
    TRY(refuse_added(r));
    TRY(read_values(r, &request.template_values));
    TRY(openai_chat_prompt(api, &request, r, ids));
out:
    return rc;
}

/* As llama.cpp writes a piece: a text, or its bytes where it is not UTF-8. */
static json_t *piece_of(const struct tokenizer *tok, int32_t id)
{
    size_t len;
    const char *piece = tokenizer_piece(tok, id, &len);
    json_t *text = json_stringn(piece, len);
    if (text) return text;
    text = json_array();
    for (size_t i = 0; i < len; i++) {
        json_array_append_new(text, json_integer((unsigned char)piece[i]));
    }
    return text;
}

static json_t *string_of(const struct tokenizer *tok, int32_t id)
{
    size_t len;
    const char *content = tokenizer_content(tok, id, &len);
    json_t *text = json_stringn(content, len);
    return text ? text : json_string("\xef\xbf\xbd");
}

static json_t *tokens_of(const struct openai_api *api, const struct token_ids *ids,
                         const struct shown *shown)
{
    const struct tokenizer *tok = api->options.admission->tok;
    struct served_model_info info;
    json_t *list = json_array(), *strings = shown->has_strings ? json_array() : json_null();
    served_model_get(api->options.model, &info);
    for (size_t i = 0; i < ids->n; i++) {
        int32_t id = ids->data[i];
        json_t *token = json_integer(id);
        if (shown->has_pieces)
            token = json_pack("{s:o, s:o}", "id", token, "piece", piece_of(tok, id));
        json_array_append_new(list, token);
        if (shown->has_strings) json_array_append_new(strings, string_of(tok, id));
    }
    return json_pack("{s:I, s:i, s:o, s:o}", "count", (json_int_t)ids->n, "max_model_len",
                     info.context_limit, "tokens", list, "token_strs", strings);
}

static int tokenize(struct openai_api *api, struct openai_reading *r, json_t **answer)
{
    struct token_ids ids = {0};
    struct shown shown = {0};
    bool is_chat = json_is_array(json_object_get(r->root, "messages"));
    int rc = 0;
    TRY(refuse_unsupported(r));
    TRY(read_flag(r, "with_pieces", &shown.has_pieces));
    TRY(read_flag(r, "return_token_strs", &shown.has_strings));
    TRY(is_chat ? encode_chat(api, r, &ids) : encode_text(api, r, &ids));
    *answer = tokens_of(api, &ids, &shown);
out:
    if (rc == ERR_ARGUMENT && !*r->wrong->param) {
        openai_blame(r, is_chat ? "messages" : text_field(r));
    }
    token_ids_free(&ids);
    return rc;
}

/* ---- detokenize ---- */

int openai_decode_ids(struct openai_api *api, const int32_t *ids, int n, bool skip_special,
                      struct buffer *out, struct error *err)
{
    struct detokenizer *detok;
    const char *text;
    size_t len;
    int rc = detokenizer_open(&detok, api->options.admission->tok, skip_special, err);
    if (rc) return rc;
    for (int i = 0; i < n; i++) {
        TRY(detokenizer_push(detok, ids[i], &text, &len, err));
        TRY(buffer_append(out, text, len, err));
    }
    TRY(detokenizer_finish(detok, &text, &len, err));
    TRY(buffer_append(out, text, len, err));
out:
    detokenizer_close(detok);
    return rc;
}

static int check_ids(struct openai_api *api, struct openai_reading *r, const int32_t *ids, int n)
{
    int n_vocab = atomic_load(&api->options.admission->n_vocab);
    for (int i = 0; i < n; i++) {
        if (ids[i] < n_vocab) continue;
        return openai_refuse(r, "has the id %d, outside of the vocabulary of %d", ids[i], n_vocab);
    }
    return 0;
}

static int detokenize(struct openai_api *api, struct openai_reading *r, json_t **answer)
{
    const int32_t *ids;
    int n, rc = 0;
    struct buffer text = {0};
    r->field = "tokens";
    const json_t *v = json_object_get(r->root, "tokens");
    if (!v) return openai_refuse(r, "is missing");
    TRY(openai_read_ids(r, v, GENERATE_PROMPT_IDS_MAX, &ids, &n));
    TRY(check_ids(api, r, ids, n));
    TRY(openai_decode_ids(api, ids, n, false, &text, r->err));
    const char *data = text.data ? (const char *)text.data : "";
    /* llama.cpp's clients look for "content", vLLM's for "prompt". */
    *answer = json_pack("{s:s%, s:s%}", "prompt", data, text.len, "content", data, text.len);
out:
    buffer_free(&text);
    return rc;
}

/* ---- both ---- */

typedef int answer_fn(struct openai_api *api, struct openai_reading *r, json_t **answer);

static int answer_body(struct intake_task *task, answer_fn *make, struct error *err)
{
    struct openai_answer *a = openai_answer_of(task->stream);
    struct openai_reading reading = {
        .arena = &task->arena, .err = err, .wrong = openai_answer_error(a)};
    struct openai_body body = {0};
    json_t *answer = NULL;
    int rc = 0;
    TRY(openai_body_parse(&body, (const char *)task->message.data, task->message.len,
                          task->admission->budget, err));
    reading.root = body.root;
    TRY(make(task->state, &reading, &answer));
    openai_answer_json(openai_answer_exchange(a), answer);
out:
    openai_body_free(&body);
    return rc;
}

static int tokenize_work(struct intake_task *task, struct error *err)
{
    return answer_body(task, tokenize, err);
}

static int detokenize_work(struct intake_task *task, struct error *err)
{
    return answer_body(task, detokenize, err);
}

void openai_tokenize(struct openai_api *api, struct http_exchange *x)
{
    openai_start(api, x, "req", api, tokenize_work, false);
}

void openai_detokenize(struct openai_api *api, struct http_exchange *x)
{
    openai_start(api, x, "req", api, detokenize_work, false);
}
