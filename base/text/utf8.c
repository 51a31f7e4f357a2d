/* UTF-8, byte by byte. */
#include "base/text/utf8.h"

#include <stdint.h>

/* Bytes of the character that text[len] begins with; 0 if it is not a character, or NUL. */
static size_t char_bytes(const uint8_t *text, size_t len)
{
    uint8_t lead = text[0];
    if (lead < 0x80) return lead ? 1 : 0;
    size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || len < n) return 0;
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;  /* overlong below */
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf; /* surrogates, > U+10FFFF */
    if (text[1] < low || text[1] > high) return 0;
    for (size_t i = 2; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
    }
    return n;
}

size_t utf8_prefix(const char *text, size_t len)
{
    const uint8_t *bytes = (const uint8_t *)text;
    size_t pos = 0;
    while (pos < len) {
        size_t n = char_bytes(bytes + pos, len - pos);
        if (!n) break;
        pos += n;
    }
    return pos;
}

void utf8_clean(char *text, size_t len)
{
    for (size_t pos = 0;;) {
        pos += utf8_prefix(text + pos, len - pos);
        if (pos == len) return;
        text[pos++] = '?';
    }
}
