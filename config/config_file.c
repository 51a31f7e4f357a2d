/* Reads files of options with libyaml. */
#include "config/config_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { NAME_BYTES = 64, PLACE_BYTES = 256 };

/* A value that the program uses as long as it runs. */
struct kept {
    struct kept *next;
    char text[];
};

static struct kept *kept_values;

struct config {
    const char *path;
    yaml_parser_t parser;
    yaml_event_t event; /* the last one, if has_event */
    bool has_event;
    char name[NAME_BYTES], place[PLACE_BYTES]; /* of the option whose value is read */
    option_put *put;
    void *arg;
};

static const char *keep(const char *text)
{
    size_t size = strlen(text) + 1;
    struct kept *kept = malloc(sizeof *kept + size);
    if (!kept) return NULL;
    memcpy(kept->text, text, size);
    kept->next = kept_values;
    kept_values = kept;
    return kept->text;
}

static void note_place(struct config *c)
{
    snprintf(c->place, sizeof c->place, "%.200s, line %zu", c->path, c->event.start_mark.line + 1);
}

/* Reads the next event into c->event. */
static int next(struct config *c, struct error *err)
{
    if (c->has_event) yaml_event_delete(&c->event);
    c->has_event = false;
    if (!yaml_parser_parse(&c->parser, &c->event)) {
        if (c->parser.error == YAML_MEMORY_ERROR) return error_set(err, ERR_NO_MEMORY, "no memory");
        return error_set(err, ERR_ARGUMENT, "%.200s, line %zu: not YAML: %s", c->path,
                         c->parser.problem_mark.line + 1,
                         c->parser.problem ? c->parser.problem : "it cannot be read");
    }
    c->has_event = true;
    note_place(c);
    return 0;
}

/* Hands the scalar of the event on. */
static int put_scalar(struct config *c, struct error *err)
{
    const char *text = (const char *)c->event.data.scalar.value;
    bool is_plain = c->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (strlen(text) != c->event.data.scalar.length) {
        return error_set(err, ERR_ARGUMENT, "%s: the value of %s has a zero byte", c->place,
                         c->name);
    }
    if (is_plain && (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0)) {
        return error_set(err, ERR_ARGUMENT, "%s: %s has no value; leave the line out", c->place,
                         c->name);
    }
    const char *value = keep(text);
    if (!value) return error_set(err, ERR_NO_MEMORY, "no memory for %s", c->path);
    const struct option_given given = {.name = c->name, .value = value, .place = c->place};
    return c->put(c->arg, &given, err);
}

static int refuse_value(const struct config *c, struct error *err)
{
    return error_set(err, ERR_ARGUMENT,
                     "%s: the value of %s is to be a word, a number or a list of these", c->place,
                     c->name);
}

/* Reads a value, or each of a list. */
static int read_value(struct config *c, struct error *err)
{
    int rc = 0;
    TRY(next(c, err));
    if (c->event.type == YAML_SCALAR_EVENT) return put_scalar(c, err);
    if (c->event.type != YAML_SEQUENCE_START_EVENT) return refuse_value(c, err);
    for (;;) {
        TRY(next(c, err));
        if (c->event.type == YAML_SEQUENCE_END_EVENT) return 0;
        if (c->event.type != YAML_SCALAR_EVENT) return refuse_value(c, err);
        TRY(put_scalar(c, err));
    }
out:
    return rc;
}

static int refuse_form(const struct config *c, struct error *err)
{
    return error_set(err, ERR_ARGUMENT,
                     "%s: expected lines of options, such as \"log-level: debug\"", c->place);
}

static int read_mapping(struct config *c, struct error *err)
{
    int rc = 0;
    for (;;) {
        TRY(next(c, err));
        if (c->event.type == YAML_MAPPING_END_EVENT) return 0;
        if (c->event.type != YAML_SCALAR_EVENT) return refuse_form(c, err);
        snprintf(c->name, sizeof c->name, "%s", (const char *)c->event.data.scalar.value);
        TRY(read_value(c, err));
    }
out:
    return rc;
}

/* An empty file has no options. */
static int read_document(struct config *c, struct error *err)
{
    int rc = 0;
    TRY(next(c, err)); /* the stream */
    TRY(next(c, err));
    if (c->event.type == YAML_STREAM_END_EVENT) return 0;
    TRY(next(c, err)); /* what the document is */
    if (c->event.type != YAML_MAPPING_START_EVENT) return refuse_form(c, err);
    TRY(read_mapping(c, err));
    TRY(next(c, err)); /* its end */
    TRY(next(c, err));
    if (c->event.type != YAML_STREAM_END_EVENT) return refuse_form(c, err);
out:
    return rc;
}

int config_file_read(const char *path, option_put *put, void *arg, struct error *err)
{
    struct config c = {.path = path, .put = put, .arg = arg};
    FILE *file = fopen(path, "rb");
    if (!file) {
        return error_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO,
                         "--config %.200s cannot be read: %s", path, strerror(errno));
    }
    if (!yaml_parser_initialize(&c.parser)) {
        fclose(file);
        return error_set(err, ERR_NO_MEMORY, "no memory for %s", path);
    }
    yaml_parser_set_input_file(&c.parser, file);
    int rc = read_document(&c, err);
    if (c.has_event) yaml_event_delete(&c.event);
    yaml_parser_delete(&c.parser);
    fclose(file);
    return rc;
}
