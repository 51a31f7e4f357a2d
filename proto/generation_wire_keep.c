/* A copy of a request without its prompt and its prediction. A job waits with this, and not with
 * what it was decoded from, which is as large as the prompt and several times larger while it is
 * decoded. */
#include "proto/generation_wire.h"

#include <string.h>

enum { LINE_BYTES = 64 }; /* an arena rounds every block up to this */

/* Counts at first, because the arena has no base then; copies in the second pass. */
struct keeper {
    struct arena *arena;
    size_t n_bytes;
};

static void *keep(struct keeper *k, const void *data, size_t bytes)
{
    k->n_bytes += (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    if (!k->arena || !bytes) return NULL;
    void *copy = arena_take(k->arena, bytes, 1);
    if (copy) memcpy(copy, data, bytes);
    return copy;
}

static const char *keep_text(struct keeper *k, const char *text)
{
    return text && text[0] ? keep(k, text, strlen(text) + 1) : "";
}

static void keep_stops(struct keeper *k, struct generate_request *req)
{
    const char **stops = keep(k, req->stop, (size_t)req->n_stop * sizeof *stops);
    for (int i = 0; i < req->n_stop; i++) {
        const char *text = keep_text(k, req->stop[i]);
        if (stops) stops[i] = text;
    }
    req->stop = stops;
}

static void keep_bans(struct keeper *k, struct generate_request *req)
{
    struct token_ban *bans = keep(k, req->bans, (size_t)req->n_bans * sizeof *bans);
    for (int i = 0; i < req->n_bans; i++) {
        const int32_t *ids =
            keep(k, req->bans[i].ids, (size_t)req->bans[i].n * sizeof *req->bans[i].ids);
        if (bans) bans[i].ids = ids;
    }
    req->bans = bans;
}

static struct generate_request keep_parts(struct keeper *k, struct generate_request req)
{
    req.rule = keep_text(k, req.rule);
    req.request_id = keep_text(k, req.request_id);
    req.client = keep_text(k, req.client);
    req.biases = keep(k, req.biases, (size_t)req.n_biases * sizeof *req.biases);
    req.stop_ids = keep(k, req.stop_ids, (size_t)req.n_stop_ids * sizeof *req.stop_ids);
    keep_stops(k, &req);
    keep_bans(k, &req);
    req.prompt = NULL;
    req.prompt_len = 0;
    req.prompt_ids = NULL;
    req.n_prompt_ids = 0;
    req.prediction = NULL;
    req.prediction_len = 0;
    return req;
}

int generate_request_keep(struct generate_request *kept, struct arena *arena,
                          const struct generate_request *req, struct error *err)
{
    struct keeper count = {0};
    keep_parts(&count, *req);
    int rc = arena_open(arena, count.n_bytes, err);
    if (rc) return rc;
    struct keeper copy = {.arena = arena};
    *kept = keep_parts(&copy, *req);
    return 0;
}
