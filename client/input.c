/* Reads the text of a command. */
#include "client/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/text/options.h"

enum { READ_BYTES = 65536, PIECE_BYTES = 24 };

static int read_stdin(char **text, size_t *len, struct error *err)
{
    size_t capacity = 0;
    *len = 0;
    for (;;) {
        int rc = mem_grow(text, &capacity, *len + READ_BYTES + 1, err);
        if (rc) return rc;
        ssize_t n = read(STDIN_FILENO, *text + *len, READ_BYTES);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            return error_set(err, ERR_IO, "cannot read the standard input: %s", strerror(errno));
        }
        if (n == 0) break;
        *len += (size_t)n;
        if (*len > INPUT_BYTES_MAX) {
            return error_set(err, ERR_FORMAT, "the standard input has more than %d bytes",
                             INPUT_BYTES_MAX);
        }
    }
    (*text)[*len] = '\0';
    return 0;
}

int input_open(struct input *input, const char *argument, const char *file, const char *what,
               struct error *err)
{
    int rc = 0;
    *input = (struct input){0};
    if (argument && file) {
        return error_set(err, ERR_ARGUMENT, "give the %s as an argument or by --file, not both",
                         what);
    }
    bool is_stdin = argument ? strcmp(argument, "-") == 0 : !file;
    if (argument && !is_stdin) {
        *input = (struct input){.text = argument, .len = strlen(argument)};
        return 0;
    }
    if (!argument && !file && isatty(STDIN_FILENO)) {
        return error_set(err, ERR_ARGUMENT,
                         "no %s: give it as an argument, by --file or on the standard input", what);
    }
    if (file) {
        TRY(file_read_text(&input->owned, &input->len, file, INPUT_BYTES_MAX, err));
    } else {
        TRY(read_stdin(&input->owned, &input->len, err));
    }
    if (input->len && input->owned[input->len - 1] == '\n') input->owned[--input->len] = '\0';
    input->text = input->owned;
out:
    if (rc) input_close(input);
    return rc;
}

void input_close(struct input *input)
{
    free(input->owned);
    *input = (struct input){0};
}

int input_ids(struct token_ids *ids, const char *option, const char *text, struct error *err)
{
    static const char separators[] = ", \t\r\n";
    int rc = 0;
    for (const char *at = text + strspn(text, separators); *at; at += strspn(at, separators)) {
        char piece[PIECE_BYTES];
        size_t len = strcspn(at, separators);
        int id = 0;
        snprintf(piece, sizeof piece, "%.*s", (int)(len < PIECE_BYTES ? len : PIECE_BYTES), at);
        TRY(options_int(&id, option, piece, 0, INT32_MAX, err));
        TRY(token_ids_append(ids, &id, 1, err));
        at += len;
    }
    if (ids->n == 0) return error_set(err, ERR_ARGUMENT, "%s: there is no token id", option);
out:
    return rc;
}

int input_read_ids(void *field, const char *option, const char *text, struct error *err)
{
    return input_ids(field, option, text, err);
}

int input_json_ids(struct token_ids *ids, const json_t *list, const char *key, const char *place,
                   struct error *err)
{
    if (list && !json_is_array(list)) {
        return error_set(err, ERR_FORMAT, "%s: %s is no list of token ids", place, key);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t value = json_is_integer(item) ? json_integer_value(item) : -1;
        if (value < 0 || value > INT32_MAX) {
            return error_set(err, ERR_FORMAT, "%s: item %zu of %s is no token id", place, i, key);
        }
        int32_t id = (int32_t)value;
        int rc = token_ids_append(ids, &id, 1, err);
        if (rc) return rc;
    }
    return 0;
}
