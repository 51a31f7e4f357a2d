/* Makes tokens of the texts of --ban. */
#include "client/ban_texts.h"

#include <inttypes.h>
#include <string.h>

#include "base/text/buffer.h"

static int ban_text(struct generate_options *o, const struct tokenizer *tok, const char *text,
                    size_t len, struct error *err)
{
    struct token_ids ids = {0};
    int rc = 0;
    TRY(tokenizer_encode(tok, text, len, TOKENIZER_PARSE_SPECIAL, &ids, err));
    if (ids.n) TRY(generate_options_ban(o, "--ban", &ids, err));
out:
    token_ids_free(&ids);
    return rc;
}

static int ban_both(struct generate_options *o, const struct tokenizer *tok, const char *text,
                    struct error *err)
{
    struct buffer blank = {0};
    int rc = 0;
    TRY(ban_text(o, tok, text, strlen(text), err));
    if (text[0] == ' ') goto out;
    TRY(buffer_append(&blank, " ", 1, err));
    TRY(buffer_append(&blank, text, strlen(text), err));
    TRY(ban_text(o, tok, (const char *)blank.data, blank.len, err));
out:
    buffer_free(&blank);
    return rc;
}

int ban_texts_apply(struct generate_options *o, uint64_t *fingerprint, struct error *err)
{
    struct tokenizer *tok = NULL;
    int rc = 0;
    *fingerprint = 0;
    if (!o->n_ban_texts) return 0;
    TRY(tokenizer_open(&tok, o->tokenizer, err));
    *fingerprint = tokenizer_fingerprint(tok);
    for (int i = 0; i < o->n_ban_texts; i++) {
        TRY(ban_both(o, tok, o->ban_texts[i], err));
    }
out:
    tokenizer_close(tok);
    return rc;
}

int ban_texts_check(const struct generate_options *o, uint64_t fingerprint,
                    const struct service_description *service, struct error *err)
{
    if (!o->n_ban_texts || fingerprint == service->tokenizer_fingerprint) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "--tokenizer %.200s is not the tokenizer of %.160s (fingerprints %016" PRIx64
                     " and %016" PRIx64 "): name the folder of its model, or use --ban-ids",
                     o->tokenizer, o->connection.address, fingerprint,
                     service->tokenizer_fingerprint);
}
