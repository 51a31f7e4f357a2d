#include "coordinator/openai/request/fields.h"

#include <stdio.h>
#include <string.h>

/* ---- readers ---- */

static void *place_of(const struct reading *r)
{
    return (char *)r->out + r->field->offset;
}

int openai_field_int(struct reading *r, const json_t *v)
{
    return openai_read_int(r->r, v, (int)r->field->least, (int)r->field->most, place_of(r));
}

int openai_field_float(struct reading *r, const json_t *v)
{
    return openai_read_float(r->r, v, r->field->least, r->field->most, place_of(r));
}

int openai_field_bool(struct reading *r, const json_t *v)
{
    return openai_read_bool(r->r, v, place_of(r));
}

int openai_field_not(struct reading *r, const json_t *v)
{
    bool value = true, *place = place_of(r);
    int rc = openai_read_bool(r->r, v, &value);
    if (!rc) *place = !value;
    return rc;
}

int openai_field_string(struct reading *r, const json_t *v)
{
    return openai_read_string(r->r, v, place_of(r));
}

int openai_field_refuse(struct reading *r, const json_t *v)
{
    return openai_is_empty(v) ? 0 : openai_refuse(r->r, "is not supported by this server");
}

int openai_field_neutral(struct reading *r, const json_t *v)
{
    double given = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
    bool is_number = json_is_boolean(v) || json_is_number(v);
    if (is_number && given == r->field->least) return 0;
    return openai_refuse(r->r, "is not supported by this server, but for its default %g",
                         r->field->least);
}

int openai_field_word(struct reading *r, const json_t *v, const char *const *words, int n, int *out)
{
    const char *text = json_string_value(v);
    for (int i = 0; i < n && text; i++) {
        if (strcmp(words[i], text)) continue;
        *out = i;
        return 0;
    }
    if (!text) return openai_refuse(r->r, "is %s, must be a string", openai_type_of(v));
    return openai_refuse(r->r, "is \"%.40s\", which is none of its words", text);
}

/* ---- tables ---- */

const struct field *openai_field_find(const struct field *list, size_t n, const char *name,
                                      enum openai_kind kind)
{
    unsigned bit = kind == OPENAI_CHAT ? CHAT : COMPLETION;
    for (size_t i = 0; i < n; i++) {
        if ((list[i].kinds & bit) && strcmp(list[i].name, name) == 0) return &list[i];
    }
    return NULL;
}

static void note_ignored(struct reading *r, const char *prefix, const char *name)
{
    char *ignored = r->out->ignored;
    size_t len = strlen(ignored);
    snprintf(ignored + len, OPENAI_IGNORED_BYTES - len, "%s%s%.40s", len ? "," : "", prefix, name);
}

int openai_read_fields(struct reading *r, const json_t *object, const struct field *list, size_t n,
                       const char *prefix)
{
    const char *name;
    json_t *v;
    char full[OPENAI_PARAM_BYTES];
    json_object_foreach((json_t *)(uintptr_t)object, name, v)
    {
        const struct field *field = openai_field_find(list, n, name, r->out->kind);
        if (!field || !field->read) {
            note_ignored(r, prefix, name);
            continue;
        }
        if (json_is_null(v)) continue;
        snprintf(full, sizeof full, "%s%s", prefix, name);
        r->r->field = full;
        r->field = field;
        int rc = field->read(r, v);
        if (rc) return rc;
    }
    return 0;
}
