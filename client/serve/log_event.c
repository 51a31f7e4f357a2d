/* Reads lines of logs. */
#include "client/serve/log_event.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void copy(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text ? text : "");
}

static bool read_json(struct log_event *event, const char *line)
{
    json_t *object = json_loads(line, 0, NULL);
    const char *name = json_string_value(json_object_get(object, "event"));
    copy(event->name, sizeof event->name, name);
    copy(event->level, sizeof event->level, json_string_value(json_object_get(object, "level")));
    copy(event->program, sizeof event->program,
         json_string_value(json_object_get(object, "program")));
    copy(event->fields, sizeof event->fields, line);
    event->is_json = true;
    json_decref(object);
    return name != NULL;
}

/* "2026-11-28T01:28:46.716Z info outrider-worker[4287] ready rank=0 ..." */
bool log_event_read(struct log_event *event, const char *line)
{
    char year[8], program[LOG_WORD_BYTES];
    int end = 0;
    *event = (struct log_event){.is_json = false};
    if (line[0] == '{') return read_json(event, line);
    int n = sscanf(line, "%4[0-9]-%*[^ ] %63s %63[^[ ][%*d] %63s%n", year, event->level, program,
                   event->name, &end);
    if (n != 4 || !end) return false;
    copy(event->program, sizeof event->program, program);
    copy(event->fields, sizeof event->fields, line + end);
    return true;
}

static const char *find_in_json(const struct log_event *event, const char *key, char *text,
                                size_t size)
{
    json_t *object = json_loads(event->fields, 0, NULL), *value = json_object_get(object, key);
    copy(text, size, json_string_value(value));
    json_decref(object);
    return text;
}

/* Copies a value that ends with a blank, or in quotes, up to its other quote. */
static void copy_value(char *text, size_t size, const char *value)
{
    bool is_quoted = *value == '"';
    size_t n = 0;
    if (is_quoted) value++;
    for (; *value && *value != (is_quoted ? '"' : ' ') && n + 1 < size; value++) {
        if (is_quoted && *value == '\\' && value[1]) value++;
        text[n++] = *value;
    }
    text[n] = '\0';
}

const char *log_event_field(const struct log_event *event, const char *key, char *text, size_t size)
{
    size_t len = strlen(key);
    bool in_quotes = false;
    text[0] = '\0';
    if (event->is_json) return find_in_json(event, key, text, size);
    for (const char *at = event->fields; *at; at++) {
        if (in_quotes && *at == '\\' && at[1]) {
            at++;
        } else if (*at == '"') {
            in_quotes = !in_quotes;
        } else if (!in_quotes && *at == ' ' && strncmp(at + 1, key, len) == 0 &&
                   at[1 + len] == '=') {
            copy_value(text, size, at + len + 2);
            return text;
        }
    }
    return text;
}
