/* Printing for people: escapes and colours. */
#include "client/terminal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const style_codes[] = {
    [STYLE_PLAIN] = "\033[0m",       [STYLE_DIM] = "\033[2m",
    [STYLE_ACCEPTED] = "\033[32m",   [STYLE_SIBLING] = "\033[32;4m",
    [STYLE_REJECTED] = "\033[31;9m", [STYLE_REPLACEMENT] = "\033[34m",
    [STYLE_BONUS] = "\033[36m",
};

struct terminal terminal_of(FILE *out)
{
    const char *no_color = getenv("NO_COLOR"), *kind = getenv("TERM");
    bool is_terminal = isatty(fileno(out)) == 1;
    bool is_dumb = !kind || strcmp(kind, "dumb") == 0;
    return (struct terminal){
        .out = out,
        .is_terminal = is_terminal,
        .has_colors = is_terminal && !is_dumb && !(no_color && *no_color),
    };
}

bool terminal_share_file(FILE *a, FILE *b)
{
    struct stat of_a, of_b;
    if (fstat(fileno(a), &of_a) || fstat(fileno(b), &of_b)) return false;
    return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* Length and code point of the UTF-8 character at text[0..len); 1 and -1 if it is invalid. */
static size_t read_character(const unsigned char *text, size_t len, int32_t *character)
{
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = text[0] < 0x80 ? 1 : text[0] >= 0xF0 ? 4 : text[0] >= 0xE0 ? 3 : 2;
    *character = -1;
    if (n == 1) {
        *character = text[0];
        return 1;
    }
    if (n > len || text[0] < 0xC2 || text[0] > 0xF4) return 1;
    int32_t value = text[0] & (0x7F >> n);
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xC0) != 0x80) return 1;
        value = value << 6 | (text[i] & 0x3F);
    }
    bool is_surrogate = value >= 0xD800 && value <= 0xDFFF;
    if (value < least[n] || value > 0x10FFFF || is_surrogate) return 1;
    *character = value;
    return n;
}

static bool is_control(int32_t character)
{
    bool is_c0_or_c1 = character < 0x20 || (character >= 0x7F && character < 0xA0);
    bool is_direction = character == 0x200E || character == 0x200F ||
                        (character >= 0x2028 && character <= 0x202E) ||
                        (character >= 0x2066 && character <= 0x2069);
    return is_c0_or_c1 || is_direction;
}

/* Prints one character, escaped if necessary; returns about how many columns it takes. */
static int put_character(FILE *out, const unsigned char *text, size_t n, int32_t character)
{
    if (character < 0) return fprintf(out, "\\x%02x", text[0]);
    if (is_control(character)) {
        return fprintf(out, character < 0x80 ? "\\x%02x" : "\\u%04x", (unsigned)character);
    }
    fwrite(text, 1, n, out);
    return 1;
}

void terminal_text(const struct terminal *terminal, const char *text, size_t len)
{
    if (!terminal->is_terminal) {
        fwrite(text, 1, len, terminal->out);
        return;
    }
    for (size_t i = 0; i < len;) {
        const unsigned char *at = (const unsigned char *)text + i;
        int32_t character;
        size_t n = read_character(at, len - i, &character);
        if (character == '\n' || character == '\t') {
            fputc(character, terminal->out);
        } else {
            put_character(terminal->out, at, n, character);
        }
        i += n;
    }
}

int terminal_quoted(const struct terminal *terminal, const char *text, size_t len)
{
    int columns = 0;
    for (size_t i = 0; i < len;) {
        const unsigned char *at = (const unsigned char *)text + i;
        int32_t character;
        size_t n = read_character(at, len - i, &character);
        const char *short_form = character == '\n'   ? "\\n"
                                 : character == '\t' ? "\\t"
                                 : character == '\\' ? "\\\\"
                                 : character == '"'  ? "\\\""
                                                     : NULL;
        columns += short_form ? fprintf(terminal->out, "%s", short_form)
                              : put_character(terminal->out, at, n, character);
        i += n;
    }
    return columns;
}

void terminal_style(const struct terminal *terminal, enum terminal_style style)
{
    if (terminal->has_colors) fputs(style_codes[style], terminal->out);
}

void terminal_row(const char *name, const char *text)
{
    const struct terminal terminal = terminal_of(stdout);
    printf("%-22s", name);
    terminal_quoted(&terminal, text, strlen(text));
    fputc('\n', stdout);
}

void terminal_row_number(const char *name, int number)
{
    printf("%-22s%d\n", name, number);
}
