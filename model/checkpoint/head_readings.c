/* Readings of the ids of layers in a head's config.json. Sources: EAGLE's modeling_llama_kv.py
 * keeps the residual stream before layers 2, L / 2 and L - 3; vLLM, speculators and llama.cpp read
 * an id at the top of the file as the stream before that layer; SGLang and SpecForge write ids into
 * "eagle_config" and mean the stream after that layer, as DFlash and DSpark do in
 * "target_layer_ids". */
#include "model/checkpoint/head_readings.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_FEATURES = 3 };

struct readings {
    const struct head_config *head;
    int n_layers;
    struct head_reading *out;
    int n;
};

/* True if the ids name layers of which the output is meant. */
static bool ids_are_outputs(const struct head_config *head)
{
    return head->ids_from == HEAD_IDS_IN_EAGLE_CONFIG || head->ids_from == HEAD_IDS_OF_OUTPUTS;
}

static bool is_same(const struct head_reading *a, const struct head_reading *b)
{
    return a->normed == b->normed && a->n == b->n &&
           memcmp(a->boundaries, b->boundaries, (size_t)a->n * sizeof *a->boundaries) == 0;
}

/* True if the target has these features, and the head takes as many. */
static bool fits(const struct readings *r, const struct head_reading *reading)
{
    int n_features = r->head->entry.n_features;
    if (reading->normed) return n_features == 1;
    for (int i = 0; i < reading->n; i++) {
        int least = i ? reading->boundaries[i - 1] + 1 : 0;
        if (reading->boundaries[i] < least || reading->boundaries[i] > r->n_layers) return false;
    }
    return reading->n == n_features;
}

static void offer(struct readings *r, const struct head_reading *reading)
{
    if (!fits(r, reading)) return;
    for (int i = 0; i < r->n; i++) {
        if (is_same(&r->out[i], reading)) return;
    }
    r->out[r->n++] = *reading;
}

static void offer_ids(struct readings *r, const char *name, int distance)
{
    struct head_reading reading = {.name = name, .n = r->head->n_ids};
    for (int i = 0; i < reading.n; i++) {
        reading.boundaries[i] = r->head->ids[i] + distance;
    }
    if (reading.n > 0) offer(r, &reading);
}

int head_readings(const struct head_config *head, int n_layers,
                  struct head_reading out[HEAD_READINGS_MAX], int *n, struct error *err)
{
    struct readings r = {.head = head, .n_layers = n_layers, .out = out};
    const struct head_reading normed = {.name = "normed", .normed = true};
    const struct head_reading last = {"last layer", 1, {n_layers}, false};
    const struct head_reading usual = {
        "default", DEFAULT_FEATURES, {2, n_layers / 2, n_layers - 3}, false};
    bool is_later = ids_are_outputs(head);
    if (head->reads_normed) offer(&r, &normed);
    if (is_later) offer_ids(&r, "one layer later", 1);
    offer_ids(&r, "as written", 0);
    if (!is_later) offer_ids(&r, "one layer later", 1);
    if (r.n < HEAD_READINGS_MAX) offer(&r, &usual);
    if (r.n < HEAD_READINGS_MAX) offer(&r, &normed);
    if (r.n < HEAD_READINGS_MAX) offer(&r, &last);
    *n = r.n;
    if (r.n > 0) return 0;
    return error_set(err, ERR_UNSUPPORTED,
                     "the head reads %d features, and its ids name no such layers of a target of "
                     "%d",
                     head->entry.n_features, n_layers);
}

const char *head_reading_show(const struct head_config *head, char text[HEAD_READING_BYTES])
{
    bool is_later = ids_are_outputs(head), is_of_block = head->ids_from == HEAD_IDS_OF_OUTPUTS;
    size_t len = 0;
    if (head->reads_normed) {
        snprintf(text, HEAD_READING_BYTES, "the normed feature, which lm_head reads");
        return text;
    }
    if (head->n_ids == 0) {
        snprintf(text, HEAD_READING_BYTES,
                 "boundaries 2, L / 2 and L - 3 of L layers: the file names none");
        return text;
    }
    for (int i = 0; i < head->n_ids; i++) {
        len += (size_t)snprintf(text + len, HEAD_READING_BYTES - len, "%s%d",
                                i ? ", " : "boundaries ", head->ids[i] + (is_later ? 1 : 0));
    }
    snprintf(text + len, HEAD_READING_BYTES - len, "%s",
             is_of_block ? ": one after the ids of \"target_layer_ids\""
             : is_later  ? ": one after the ids of \"eagle_config\""
                         : ": the ids, as written");
    return text;
}
