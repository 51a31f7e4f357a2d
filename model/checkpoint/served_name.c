/* Names of models for clients. */
#include "model/checkpoint/served_name.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model/checkpoint/layers.h"

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
    char here[PATH_BYTES];
    size_t len;
    const char *list = layers_split(model, &len);
    len = len_without_dots(model, len);
    if (len == 0 && *model && getcwd(here, sizeof here)) {
        model = here;
        len = strlen(here);
    }
    const char *part = last_part(model, &len);
    snprintf(name, size, "%.*s%s%s", (int)len, part, list ? ",layers=" : "", list ? list : "");
}
