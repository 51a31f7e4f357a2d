/* The normalizer: Unicode normal forms, text put in front, text replaced. */
#include "model/tokenizer/normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/memory.h"

enum { MAX_DECOMPOSITION = 64, SHORT_RUN = 16 };

void normalizer_chain_free(struct normalizer_chain *chain)
{
    for (int i = 0; i < chain->n; i++) {
        pattern_free(&chain->stages[i].pattern);
        free(chain->stages[i].content);
    }
    chain->n = 0;
}

void normalizer_scratch_free(struct normalizer_scratch *scratch)
{
    text_buf_free(&scratch->bufs[0]);
    text_buf_free(&scratch->bufs[1]);
    free(scratch->chars);
    free(scratch->sorted);
    *scratch = (struct normalizer_scratch){0};
}

static int combining_class(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Stable sort by combining class. utf8proc's own ordering takes the square of a run's length, and a
 * run of marks may be as long as the text; this takes one pass more than a short run needs. */
static void order_marks(int32_t *chars, size_t n, int32_t *sorted)
{
    if (n <= SHORT_RUN) {
        for (size_t i = 1; i < n; i++) {
            int32_t c = chars[i];
            size_t at = i;
            for (; at && combining_class(chars[at - 1]) > combining_class(c); at--) {
                chars[at] = chars[at - 1];
            }
            chars[at] = c;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[(combining_class(chars[i]) & 255) + 1]++;
    for (int i = 0; i < 256; i++)
        start[i + 1] += start[i];
    for (size_t i = 0; i < n; i++)
        sorted[start[combining_class(chars[i]) & 255]++] = chars[i];
    memcpy(chars, sorted, n * sizeof *chars);
}

static int decompose(struct normalizer_scratch *scratch, struct text text, int options,
                     size_t *n_chars, struct error *err)
{
    size_t n = 0;
    for (size_t at = 0; at < text.len;) {
        size_t used;
        int boundary = 0;
        int rc = mem_grow(&scratch->chars, &scratch->chars_capacity, n + MAX_DECOMPOSITION, err);
        if (rc) return rc;
        utf8proc_ssize_t n_new =
            utf8proc_decompose_char(text_char(text.data + at, &used), scratch->chars + n,
                                    MAX_DECOMPOSITION, (utf8proc_option_t)options, &boundary);
        if (n_new < 0 || n_new > MAX_DECOMPOSITION) {
            return error_set(err, ERR_INTERNAL, "utf8proc cannot decompose a character");
        }
        n += (size_t)n_new;
        at += used;
    }
    *n_chars = n;
    return 0;
}

static void order_runs(struct normalizer_scratch *scratch, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t begin = i;
        while (i < n && combining_class(scratch->chars[i]))
            i++;
        if (i - begin > 1) order_marks(scratch->chars + begin, i - begin, scratch->sorted);
    }
}

static bool is_ascii(struct text text)
{
    for (size_t i = 0; i < text.len; i++) {
        if ((uint8_t)text.data[i] >= 0x80) return false;
    }
    return true;
}

static int normalize_unicode(const struct normalizer *stage, struct normalizer_scratch *scratch,
                             struct text text, struct text_buf *out, struct error *err)
{
    size_t n = 0;
    if (is_ascii(text)) return text_buf_append(out, text.data, text.len, err);
    int rc = decompose(scratch, text, stage->unicode_options, &n, err);
    if (rc) return rc;
    rc = mem_grow(&scratch->sorted, &scratch->sorted_capacity, n, err);
    if (rc) return rc;
    order_runs(scratch, n);
    utf8proc_ssize_t n_left = utf8proc_normalize_utf32(scratch->chars, (utf8proc_ssize_t)n,
                                                       (utf8proc_option_t)stage->unicode_options);
    for (utf8proc_ssize_t i = 0; i < n_left; i++) {
        utf8proc_uint8_t bytes[4];
        utf8proc_ssize_t len = utf8proc_encode_char(scratch->chars[i], bytes);
        rc = text_buf_append(out, (const char *)bytes, (size_t)len, err);
        if (rc) return rc;
    }
    return 0;
}

static int check_growth(const struct text_buf *out, size_t limit, struct error *err)
{
    if (out->len <= limit) return 0;
    return error_set(err, ERR_FORMAT, "the normalizer makes this text more than %d times longer",
                     (int)NORMALIZER_MAX_GROWTH);
}

static int normalize_replace(const struct normalizer *stage, const struct matcher *matcher,
                             struct text text, size_t limit, struct text_buf *out,
                             struct error *err)
{
    struct pattern_scan scan = {.pattern = &stage->pattern, .matcher = matcher, .text = text};
    size_t done = 0, begin, end;
    int rc, found;
    while ((found = pattern_next(&scan, &begin, &end, err)) == 1) {
        rc = text_buf_append(out, text.data + done, begin - done, err);
        if (!rc) rc = text_buf_append(out, stage->content, stage->content_len, err);
        if (!rc) rc = check_growth(out, limit, err);
        if (rc) return rc;
        done = end;
    }
    return found ? found : text_buf_append(out, text.data + done, text.len - done, err);
}

static int normalize_prepend(const struct normalizer *stage, struct text text, struct text_buf *out,
                             struct error *err)
{
    int rc = text_buf_append(out, stage->content, stage->content_len, err);
    return rc ? rc : text_buf_append(out, text.data, text.len, err);
}

int normalizer_run(const struct normalizer_chain *chain, const struct matcher *matcher,
                   struct text text, bool continues, struct normalizer_scratch *scratch,
                   struct text *out, struct error *err)
{
    size_t limit = text.len * NORMALIZER_MAX_GROWTH + 4096;
    for (int i = 0; i < chain->n && text.len; i++) {
        const struct normalizer *stage = &chain->stages[i];
        if (stage->kind == NORMALIZER_PREPEND && continues) continue;
        struct text_buf *buf = &scratch->bufs[i % 2];
        buf->len = 0;
        int rc = 0;
        switch (stage->kind) {
        case NORMALIZER_UNICODE:
            rc = normalize_unicode(stage, scratch, text, buf, err);
            break;
        case NORMALIZER_PREPEND:
            rc = normalize_prepend(stage, text, buf, err);
            break;
        case NORMALIZER_REPLACE:
            rc = normalize_replace(stage, matcher, text, limit, buf, err);
            break;
        }
        if (!rc) rc = check_growth(buf, limit, err);
        if (rc) return rc;
        text = (struct text){buf->data ? buf->data : "", buf->len};
    }
    *out = text;
    return 0;
}
