/* Names of models for clients. */
#include "model/checkpoint/served_name.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/system/hub_cache.h"
#include "base/text/utf8.h"
#include "model/checkpoint/layers.h"
#include "model/gguf/gguf.h"

enum { PATH_BYTES = 4096 };

/* path[0, len) without its folders and without slashes at its end; "/" stays. */
static const char *last_part(const char *path, size_t *len)
{
    while (*len > 1 && path[*len - 1] == '/') {
        (*len)--;
    }
    size_t first = *len;
    while (first > 0 && path[first - 1] != '/') {
        first--;
    }
    if (first == *len) return path;
    *len -= first;
    return path + first;
}

/* The length of path[0, len) without "/" and "/." at its end; 0 for the current folder. */
static size_t len_without_dots(const char *path, size_t len)
{
    for (;;) {
        if (len > 1 && path[len - 1] == '/') {
            len--;
        } else if (len > 0 && path[len - 1] == '.' && (len == 1 || path[len - 2] == '/')) {
            len--;
        } else {
            return len;
        }
    }
}

/* The length of a file's name without ".gguf" and without "-00001-of-00002" before it. */
static size_t len_without_ending(const char *name, size_t len)
{
    static const char ending[] = ".gguf", form[] = "-ddddd-of-ddddd";
    size_t ending_len = sizeof ending - 1, form_len = sizeof form - 1, i = 0;
    if (len <= ending_len || memcmp(name + len - ending_len, ending, ending_len) != 0) return len;
    len -= ending_len;
    if (len <= form_len) return len;
    const char *number = name + len - form_len;
    while (i < form_len &&
           (form[i] == 'd' ? number[i] >= '0' && number[i] <= '9' : number[i] == form[i])) {
        i++;
    }
    return i < form_len ? len : len - form_len;
}

/* A text of the metadata that can be a name: none that is a path on the converter's disk, no blank
 * one, and none with control characters. */
static bool read_name(const struct gguf *gguf, const char *key, struct gguf_text *text)
{
    struct error ignored;
    bool is_blank = true;
    *text = (struct gguf_text){"", 0};
    if (gguf_read_text(gguf, key, text, &ignored) || text->len == 0) return false;
    if (strchr("/.~", text->data[0]) || memchr(text->data, '\\', text->len)) return false;
    for (size_t i = 0; i < text->len; i++) {
        unsigned char c = (unsigned char)text->data[i];
        if (c < ' ' || c == 0x7f) return false;
        if (c != ' ') is_blank = false;
    }
    return !is_blank && utf8_prefix(text->data, text->len) == text->len;
}

static void append(char *name, size_t size, const struct gguf_text *text)
{
    size_t n = strlen(name);
    snprintf(name + n, size - n, "%s%.*s", n ? "-" : "", (int)text->len, text->data);
    name[utf8_prefix(name, strlen(name))] = '\0';
}

/* Writes the name that a GGUF file gives its model; false: nothing that can be a name. */
static bool name_gguf(const char *path, char *name, size_t size)
{
    static const char *const parts[] = {"general.basename", "general.size_label",
                                        "general.finetune"};
    struct gguf_text text;
    struct gguf *gguf;
    struct error ignored;
    *name = '\0';
    if (!gguf_is_file(path) || gguf_open(&gguf, path, &ignored)) return false;
    if (read_name(gguf, "general.name", &text)) {
        append(name, size, &text);
    } else if (read_name(gguf, parts[0], &text)) {
        append(name, size, &text);
        for (int i = 1; i < 3; i++) {
            if (read_name(gguf, parts[i], &text)) append(name, size, &text);
        }
    }
    gguf_close(gguf);
    return *name != '\0';
}

static void append_layers(const char *list, char *name, size_t size)
{
    size_t n = strlen(name);
    if (list) snprintf(name + n, size - n, ",layers=%s", list);
}

static void name_synthetic(const char *model, char *name, size_t size)
{
    const char *shape = strchr(model, ':') + 1;
    size_t len = strcspn(shape, ",");
    const char *options = shape + len, *part = last_part(shape, &len);
    snprintf(name, size, "%.*s%.*s%s", (int)(shape - model), model, (int)len, part, options);
}

void checkpoint_served_name(const char *model, char *name, size_t size)
{
    if (strncmp(model, "synthetic:", 10) == 0) {
        name_synthetic(model, name, size);
        return;
    }
    char here[PATH_BYTES], own[PATH_BYTES], hub[HUB_NAME_BYTES];
    size_t len;
    const char *list = layers_split(model, &len);
    snprintf(own, sizeof own, "%.*s", (int)len, model);
    if (hub_cache_model(own, hub, sizeof hub)) {
        snprintf(name, size, "%s", hub);
        append_layers(list, name, size);
        return;
    }
    if (name_gguf(own, name, size)) {
        append_layers(list, name, size);
        return;
    }
    len = len_without_dots(model, len);
    if (len == 0 && *model && getcwd(here, sizeof here)) {
        model = here;
        len = strlen(here);
    }
    const char *part = last_part(model, &len);
    len = len_without_ending(part, len);
    snprintf(name, size, "%.*s", (int)len, part);
    append_layers(list, name, size);
}
