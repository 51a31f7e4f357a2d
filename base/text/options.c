/* Strict parsers of option values. The C library's number parsers accept blanks, signs, other
 * bases, "inf" and "nan", so the characters are checked first. Error texts cut long values. */
#include "base/text/options.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_CHARS = 60, NUMBER_BYTES = 16 };

/* Reads digits up to the end of text. False when there are none, other characters, or the number is
 * over `most`. */
static bool read_digits(uint64_t *out, const char *text, uint64_t most)
{
    uint64_t value = 0;
    if (*text == '\0') return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return false;
        uint64_t digit = (uint64_t)(*text - '0');
        if (value > (most - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

static bool read_int(int *out, const char *text, int least, int most)
{
    bool is_negative = *text == '-';
    uint64_t size = 0;
    if (!read_digits(&size, text + is_negative, (uint64_t)1 << 31)) return false;
    int64_t value = is_negative ? -(int64_t)size : (int64_t)size;
    if (value < least || value > most) return false;
    *out = (int)value;
    return true;
}

int options_int(int *out, const char *option, const char *text, int least, int most,
                struct error *err)
{
    if (read_int(out, text, least, most)) return 0;
    return error_set(err, ERR_ARGUMENT, "%s: '%.*s' is not a whole number from %d to %d", option,
                     SHOWN_CHARS, text, least, most);
}

int options_u64(uint64_t *out, const char *option, const char *text, struct error *err)
{
    if (read_digits(out, text, UINT64_MAX)) return 0;
    return error_set(err, ERR_ARGUMENT, "%s: '%.*s' is not a whole number from 0 to %llu", option,
                     SHOWN_CHARS, text, (unsigned long long)UINT64_MAX);
}

/* True for a decimal number as strtof reads it, and nothing else. */
static bool is_decimal(const char *text)
{
    size_t len = strlen(text);
    if (len == 0 || len > SHOWN_CHARS) return false;
    if (strspn(text, "0123456789.eE+-") != len) return false;
    char first = text[0] == '-' ? text[1] : text[0];
    return first == '.' || (first >= '0' && first <= '9');
}

int options_float(float *out, const char *option, const char *text, float least, float most,
                  struct error *err)
{
    char *end = NULL;
    float value = is_decimal(text) ? strtof(text, &end) : 0;
    if (end && *end == '\0' && isfinite(value) && value >= least && value <= most) {
        *out = value;
        return 0;
    }
    return error_set(err, ERR_ARGUMENT, "%s: '%.*s' is not a number from %g to %g", option,
                     SHOWN_CHARS, text, (double)least, (double)most);
}

int options_word(int *out, const char *option, const char *text, const char *const *words,
                 int n_words, struct error *err)
{
    char list[ERROR_TEXT_BYTES / 2] = "";
    size_t len = 0;
    for (int i = 0; i < n_words; i++) {
        if (strcmp(words[i], text) == 0) {
            *out = i;
            return 0;
        }
        const char *before = i == 0 ? "" : i == n_words - 1 ? " or " : ", ";
        int n = snprintf(list + len, sizeof list - len, "%s%s", before, words[i]);
        if (n > 0) len += (size_t)n;
        if (len >= sizeof list) len = sizeof list - 1;
    }
    return error_set(err, ERR_ARGUMENT, "%s: '%.*s' is not one of %s", option, SHOWN_CHARS, text,
                     list);
}

/* Copies the piece up to the next comma or the end; false if it is too long for a number. */
static bool cut_piece(char piece[NUMBER_BYTES], const char *text, size_t *len)
{
    *len = strcspn(text, ",");
    if (*len >= NUMBER_BYTES) return false;
    memcpy(piece, text, *len);
    piece[*len] = '\0';
    return true;
}

int options_int_list(int32_t *out, int *n, int n_max, const char *option, const char *text,
                     struct options_range range, struct error *err)
{
    int n_read = 0;
    *n = 0;
    for (const char *at = text;; at++) {
        char piece[NUMBER_BYTES];
        size_t len = 0;
        int value = 0;
        if (!cut_piece(piece, at, &len) || !read_int(&value, piece, range.least, range.most)) {
            return error_set(err, ERR_ARGUMENT,
                             "%s: '%.*s' is not a list of whole numbers from %d to %d", option,
                             SHOWN_CHARS, text, range.least, range.most);
        }
        if (n_read == n_max) {
            return error_set(err, ERR_ARGUMENT, "%s: '%.*s' has more than %d numbers", option,
                             SHOWN_CHARS, text, n_max);
        }
        out[n_read++] = value;
        at += len;
        if (*at == '\0') break;
    }
    *n = n_read;
    return 0;
}
