/* Reading a GGUF file from one place to the next. Every length is checked against what is left of
 * the file before anything is read or allocated for it. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/text/utf8.h"
#include "model/gguf/internal.h"

uint32_t gguf_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint64_t gguf_u64(const uint8_t *at)
{
    return gguf_u32(at) | (uint64_t)gguf_u32(at + 4) << 32;
}

int gguf_take(struct gguf_reader *in, uint64_t n, const char *what, const uint8_t **out,
              struct error *err)
{
    if (n > in->size - in->at) {
        return error_set(err, ERR_FORMAT,
                         "%s is cut short or damaged: %.120s at byte %zu has %" PRIu64
                         " bytes, the file ends after %zu",
                         in->origin, what, in->at, n, in->size);
    }
    *out = in->data + in->at;
    in->at += (size_t)n;
    return 0;
}

int gguf_take_u32(struct gguf_reader *in, const char *what, uint32_t *out, struct error *err)
{
    const uint8_t *at = NULL;
    int rc = gguf_take(in, 4, what, &at, err);
    if (!rc) *out = gguf_u32(at);
    return rc;
}

int gguf_take_u64(struct gguf_reader *in, const char *what, uint64_t *out, struct error *err)
{
    const uint8_t *at = NULL;
    int rc = gguf_take(in, 8, what, &at, err);
    if (!rc) *out = gguf_u64(at);
    return rc;
}

static bool is_name(const uint8_t *text, size_t len)
{
    if (len == 0 || utf8_prefix((const char *)text, len) != len) return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < 0x20 || text[i] == 0x7f) return false;
    }
    return true;
}

int gguf_take_name(struct gguf_reader *in, size_t most_bytes, const char *what, char **out,
                   struct error *err)
{
    const uint8_t *at = NULL;
    uint64_t len = 0;
    int rc = 0;
    TRY(gguf_take_u64(in, what, &len, err));
    if (len > most_bytes) {
        return error_set(err, ERR_FORMAT,
                         "%s: %s at byte %zu has %" PRIu64 " bytes; the most is %zu", in->origin,
                         what, in->at - 8, len, most_bytes);
    }
    TRY(gguf_take(in, len, what, &at, err));
    if (!is_name(at, (size_t)len)) {
        return error_set(err, ERR_FORMAT, "%s: %s at byte %zu is no text", in->origin, what,
                         in->at - (size_t)len);
    }
    TRY(mem_array(out, (size_t)len + 1, 1, err));
    memcpy(*out, at, (size_t)len);
out:
    return rc;
}
