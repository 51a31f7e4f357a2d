/* Pieces: the bytes of each token in running text. They are made once, when a tokenizer is read;
 * detokenize.c does what depends on neighbouring tokens. */
#include "model/tokenizer/decode.h"

/* Applies the decoder's stages that look at one token alone to content; *out may lie in scratch. */
static int token_text(const struct decoder *decoder, const struct matcher *matcher,
                      struct text content, struct normalizer_scratch *scratch, struct text *out,
                      struct error *err)
{
    *out = content;
    if (decoder->byte_level) {
        size_t len;
        scratch->bufs[0].len = 0;
        int rc = text_buf_append(&scratch->bufs[0], content.data, content.len, err);
        if (rc) return rc;
        if (byte_level_decode(content, scratch->bufs[0].data, &len)) {
            *out = (struct text){scratch->bufs[0].data, len};
        }
        return 0;
    }
    if (decoder->metaspace[0]) {
        scratch->bufs[0].len = 0;
        int rc = text_buf_replace(&scratch->bufs[0], content, decoder->metaspace, " ", err);
        *out = (struct text){scratch->bufs[0].data, scratch->bufs[0].len};
        return content.len ? rc : 0;
    }
    return normalizer_run(&decoder->replaces, matcher, content, false, scratch, out, err);
}

int decoder_make_piece(const struct decoder *decoder, const struct matcher *matcher,
                       struct token_table *table, int32_t id, struct text content,
                       struct normalizer_scratch *scratch, struct error *err)
{
    struct text text;
    int rc = token_text(decoder, matcher, content, scratch, &text, err);
    if (rc) return rc;
    int byte = decoder->byte_fallback ? byte_token_value(text) : -1;
    if (byte < 0) return token_table_set_piece(table, id, text.data, text.len, err);
    char value = (char)byte;
    table->flags[id] |= TOKEN_BYTE;
    return token_table_set_piece(table, id, &value, 1, err);
}
