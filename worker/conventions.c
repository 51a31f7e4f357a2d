/* The files of the folder, as they go to the coordinator. */
#include "worker/conventions.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/tokenizer/chat_template.h"
#include "proto/target_wire.h"

_Static_assert((int)WIRE_OPEN == (int)CONFIG_OPEN, "what a folder leaves open stays open");

static struct target_conventions sampling_of(const struct checkpoint *checkpoint)
{
    const struct config_sampling *s = &checkpoint_config(checkpoint)->sampling;
    bool is_synthetic = checkpoint_is_synthetic(checkpoint);
    return (struct target_conventions){
        .template_file = "",
        .temperature = is_synthetic ? WIRE_OPEN : s->temperature,
        .top_p = is_synthetic ? WIRE_OPEN : s->top_p,
        .min_p = is_synthetic ? WIRE_OPEN : s->min_p,
        .repetition_penalty = is_synthetic ? WIRE_OPEN : s->repetition_penalty,
        .top_k = is_synthetic ? WIRE_OPEN : s->top_k,
    };
}

static int add_end(struct end_ids *ends, const struct chat_source *source,
                   const struct tokenizer *tok, int n_vocab, struct error *err)
{
    const json_t *text = json_object_get(source->special, "eos_token");
    if (!text) return 0;
    int32_t id = tokenizer_find(tok, json_string_value(text), json_string_length(text));
    if (id < 0 || id >= n_vocab || end_ids_add(ends, id)) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "more than %d tokens end a text: those of \"eos_token_id\" and the eos_token "
                     "of tokenizer_config.json",
                     END_IDS_MAX);
}

/* transformers would give it an id beyond the model's. */
static void tell_missing(const struct chat_source *source, const struct tokenizer *tok)
{
    const char *name;
    json_t *text;
    json_object_foreach(source->special, name, text)
    {
        size_t len = json_string_length(text);
        if (!len || tokenizer_find(tok, json_string_value(text), len) >= 0) continue;
        log_line(LOG_LEVEL_WARN, "special_token_missing",
                 "name=%s text=\"the tokenizer has no token %.100s, which stays plain text\"", name,
                 json_string_value(text));
    }
}

static int check_template(const struct chat_source *source, struct error *err)
{
    if (source->len <= WIRE_TEMPLATE_BYTES_MAX) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "%s: the chat template has %zu bytes, at most %d are "
                     "taken",
                     source->origin, source->len, WIRE_TEMPLATE_BYTES_MAX);
}

int conventions_read(struct buffer *out, struct end_ids *ends, const struct checkpoint *checkpoint,
                     const struct tokenizer *tok, int n_vocab, struct error *err)
{
    struct target_conventions told = sampling_of(checkpoint);
    struct special_text special[CHAT_TEMPLATE_SPECIAL_MAX];
    struct chat_source source = {0};
    const char *name;
    json_t *text;
    int rc = 0;
    if (checkpoint_is_synthetic(checkpoint)) return target_conventions_encode(out, &told, err);
    TRY(chat_source_read(&source, checkpoint_name(checkpoint), NULL, err));
    TRY(check_template(&source, err));
    tell_missing(&source, tok);
    TRY(add_end(ends, &source, tok, n_vocab, err));
    if (source.text) {
        told.template_file = source.origin;
        told.chat_template = source.text;
        told.chat_template_len = source.len;
    }
    told.special = special;
    json_object_foreach(source.special, name, text)
    {
        special[told.n_special++] = (struct special_text){name, json_string_value(text)};
    }
    TRY(target_conventions_encode(out, &told, err));
out:
    chat_source_free(&source);
    return rc;
}

const char *conventions_show_ends(const struct end_ids *ends, char *text, size_t size)
{
    size_t len = 0;
    snprintf(text, size, "none");
    for (int i = 0; i < ends->n && len < size; i++) {
        int n = snprintf(text + len, size - len, "%s%" PRId32, i ? "," : "", ends->ids[i]);
        len += n > 0 ? (size_t)n : 0;
    }
    return text;
}
