/* Lists of layers in the names of models. */
#include "model/checkpoint/layers.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static const char option[] = ",layers=";
enum { OPTION_LEN = sizeof option - 1 };

/* ---- names ---- */

static const char *last_option(const char *name)
{
    const char *last = NULL;
    for (const char *at = strstr(name, option); at; at = strstr(at + 1, option)) {
        last = at;
    }
    return last;
}

/* True if the last layers= of a synthetic name is a list and not the number of its layers. */
static bool is_list_of_synthetic(const char *name, const char *at)
{
    const char *list = at + OPTION_LEN;
    if (strcmp(list, "all") == 0) return true;
    size_t n_digits = strspn(list, "0123456789");
    if (list[strspn(list, "0123456789,-")] != '\0' || *list == '\0') return false;
    return list[n_digits] != '\0' || strtol(list, NULL, 10) == 0 || strstr(name, option) != at;
}

const char *layers_split(const char *name, size_t *model_len)
{
    const char *at = last_option(name);
    bool is_synthetic = strncmp(name, "synthetic:", 10) == 0;
    *model_len = strlen(name);
    if (!at || strchr(at, '/')) return NULL;
    if (is_synthetic && !is_list_of_synthetic(name, at)) return NULL;
    *model_len = (size_t)(at - name);
    return at + OPTION_LEN;
}

int layers_strip(char **model, const char *name, struct error *err)
{
    size_t len;
    layers_split(name, &len);
    *model = strndup(name, len);
    if (!*model) return error_set(err, ERR_NO_MEMORY, "no memory for the name of a model");
    return 0;
}

/* ---- lists ---- */

struct layers_reader {
    const char *list, *at, *model;
    int n_layers, n;
    int *layers; /* [n_layers], of which n are filled */
};

static int wrong(const struct layers_reader *r, const char *what, struct error *err)
{
    return error_set(err, ERR_ARGUMENT,
                     "layers=%.100s: %s; %.200s has %d layers, 0 to %d, and a list is such as "
                     "0-3,12-15 or all",
                     r->list, what, r->model, r->n_layers, r->n_layers - 1);
}

static int read_number(struct layers_reader *r, int *number, struct error *err)
{
    char what[96], *end = NULL;
    size_t n_digits = strspn(r->at, "0123456789");
    errno = 0;
    long value = n_digits ? strtol(r->at, &end, 10) : 0;
    if (!n_digits) {
        snprintf(what, sizeof what, "'%.20s' does not begin with the number of a layer", r->at);
        return wrong(r, what, err);
    }
    if (errno || value >= r->n_layers) {
        snprintf(what, sizeof what, "there is no layer %.*s", n_digits > 20 ? 20 : (int)n_digits,
                 r->at);
        return wrong(r, what, err);
    }
    r->at = end;
    *number = (int)value;
    return 0;
}

static int add_range(struct layers_reader *r, int first, int last, struct error *err)
{
    char what[96];
    if (last < first) {
        snprintf(what, sizeof what, "the range %d-%d is reversed", first, last);
        return wrong(r, what, err);
    }
    if (r->n > 0 && first <= r->layers[r->n - 1]) {
        snprintf(what, sizeof what, "layer %d follows layer %d, but layers ascend, each once",
                 first, r->layers[r->n - 1]);
        return wrong(r, what, err);
    }
    for (int i = first; i <= last; i++) {
        r->layers[r->n++] = i;
    }
    return 0;
}

static int read_range(struct layers_reader *r, struct error *err)
{
    int first = 0, last = 0, rc = 0;
    TRY(read_number(r, &first, err));
    last = first;
    if (*r->at == '-') {
        r->at++;
        TRY(read_number(r, &last, err));
    }
    rc = add_range(r, first, last, err);
out:
    return rc;
}

static int read_list(struct layers_reader *r, struct error *err)
{
    int rc = 0;
    if (strcmp(r->list, "all") == 0) return add_range(r, 0, r->n_layers - 1, err);
    TRY(read_range(r, err));
    while (*r->at == ',') {
        r->at++;
        TRY(read_range(r, err));
    }
    if (*r->at) {
        char what[64];
        snprintf(what, sizeof what, "'%.20s' is not understood", r->at);
        rc = wrong(r, what, err);
    }
out:
    return rc;
}

int layers_parse(int **layers, int *n, const char *list, const char *model, int n_layers,
                 struct error *err)
{
    struct layers_reader r = {.list = list, .at = list, .model = model, .n_layers = n_layers};
    int rc = 0;
    TRY(mem_array(&r.layers, (size_t)n_layers, sizeof *r.layers, err));
    TRY(read_list(&r, err));
    *layers = r.layers;
    *n = r.n;
    r.layers = NULL;
out:
    free(r.layers);
    return rc;
}

void layers_format(const int *layers, int n, char *text, size_t text_bytes)
{
    size_t len = 0;
    if (n == 1 && layers[0] > 0) {
        snprintf(text, text_bytes, "%d-%d", layers[0], layers[0]);
        return;
    }
    text[0] = '\0';
    for (int i = 0, last; i < n && len < text_bytes; i = last + 1) {
        last = i;
        while (last + 1 < n && layers[last + 1] == layers[last] + 1) {
            last++;
        }
        int added = snprintf(text + len, text_bytes - len, "%s%d", i ? "," : "", layers[i]);
        len += (size_t)added;
        if (last == i || len >= text_bytes) continue;
        len += (size_t)snprintf(text + len, text_bytes - len, "-%d", layers[last]);
    }
}
