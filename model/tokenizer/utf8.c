/* UTF-8 as the tokenizer needs it: what is valid, where characters end, which are blanks. */
#include "model/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/memory.h"

int text_buf_append(struct text_buf *buf, const char *data, size_t len, struct error *err)
{
    if (len > SIZE_MAX / 4 - buf->len) {
        return error_set(err, ERR_NO_MEMORY, "no memory for a text of %zu bytes", len);
    }
    size_t need = buf->len + len;
    int rc = mem_grow(&buf->data, &buf->capacity, need ? need : 1, err);
    if (rc) return rc;
    if (len) memcpy(buf->data + buf->len, data, len);
    buf->len = need;
    return 0;
}

int text_buf_replace(struct text_buf *buf, struct text text, const char *mark, const char *with,
                     struct error *err)
{
    size_t mark_len = strlen(mark);
    int rc = 0;
    for (size_t at = 0; !rc && at < text.len;) {
        if (text.len - at >= mark_len && memcmp(text.data + at, mark, mark_len) == 0) {
            rc = text_buf_append(buf, with, strlen(with), err);
            at += mark_len;
        } else {
            rc = text_buf_append(buf, text.data + at, 1, err);
            at++;
        }
    }
    return rc;
}

void text_buf_free(struct text_buf *buf)
{
    free(buf->data);
    *buf = (struct text_buf){0};
}

static bool in_range(uint8_t byte, uint8_t least, uint8_t most)
{
    return byte >= least && byte <= most;
}

int text_classify(const char *data, size_t len, size_t *used)
{
    uint8_t lead = (uint8_t)data[0];
    *used = 1;
    if (lead < 0x80) return 1;
    if (lead < 0xc2 || lead > 0xf4) return -1;
    size_t n = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint8_t least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (size_t i = 1; i < n; i++) {
        if (i == len) return 0;
        if (!in_range((uint8_t)data[i], least, most)) return -1;
        *used = i + 1;
        least = 0x80;
        most = 0xbf;
    }
    return 1;
}

size_t text_valid_length(const char *data, size_t len)
{
    size_t at = 0;
    while (at < len) {
        uint64_t eight;
        if (len - at >= sizeof eight) { /* ASCII, eight at a time */
            memcpy(&eight, data + at, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                at += sizeof eight;
                continue;
            }
        }
        size_t used;
        if (text_classify(data + at, len - at, &used) != 1) break;
        at += used;
    }
    return at;
}

size_t text_char_length(char lead)
{
    uint8_t byte = (uint8_t)lead;
    return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

int32_t text_char(const char *data, size_t *used)
{
    uint8_t lead = (uint8_t)data[0];
    *used = text_char_length(data[0]);
    if (*used == 1) return lead;
    int32_t c = lead & (0xff >> (*used + 1));
    for (size_t i = 1; i < *used; i++)
        c = c << 6 | (data[i] & 0x3f);
    return c;
}

int32_t text_char_before(const char *data, size_t end, size_t *used)
{
    size_t begin = end - 1;
    while (begin && ((uint8_t)data[begin] & 0xc0) == 0x80)
        begin--;
    return text_char(data + begin, used);
}

int text_shown_length(const char *data, size_t len, int most)
{
    if (len <= (size_t)most) return (int)len;
    size_t at = 0;
    while (at + text_char_length(data[at]) <= (size_t)most)
        at += text_char_length(data[at]);
    return (int)at;
}

bool text_is_space(int32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    if (c == 0x85) return true;
    utf8proc_category_t category = utf8proc_category(c);
    return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
           category == UTF8PROC_CATEGORY_ZP;
}

bool text_is_word(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default: /* Other_Alphabetic symbols and the joiners */
        return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
               (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c ||
               c == 0x200d;
    }
}
