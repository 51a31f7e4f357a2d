/* A copy of a request without its prompt and its prediction. A job waits with this, and not with
 * what it was decoded from, which is as large as the prompt and several times larger while it is
 * decoded. */
#include "proto/generation_wire.h"

#include "base/packer.h"

static const struct token_ban *keep_bans(struct packer *p, const struct generate_request *req)
{
    struct token_ban *bans = packer_array(p, req->bans, (size_t)req->n_bans, sizeof *bans);
    for (int i = 0; i < req->n_bans; i++) {
        const struct token_ban *from = &req->bans[i];
        const int32_t *ids = packer_array(p, from->ids, (size_t)from->n, sizeof *ids);
        if (bans) bans[i].ids = ids;
    }
    return bans;
}

static struct generate_request keep_parts(struct packer *p, struct generate_request req)
{
    req.rule = packer_string(p, req.rule);
    req.tree_rule = packer_string(p, req.tree_rule);
    req.request_id = packer_string(p, req.request_id);
    req.client = packer_string(p, req.client);
    req.biases = packer_array(p, req.biases, (size_t)req.n_biases, sizeof *req.biases);
    req.stop_ids = packer_array(p, req.stop_ids, (size_t)req.n_stop_ids, sizeof *req.stop_ids);
    req.stop = packer_strings(p, req.stop, req.n_stop);
    req.bans = keep_bans(p, &req);
    req.prompt = NULL;
    req.prompt_len = 0;
    req.prompt_ids = NULL;
    req.n_prompt_ids = 0;
    req.messages = NULL;
    req.n_messages = 0;
    req.prediction = NULL;
    req.prediction_len = 0;
    return req;
}

int generate_request_keep(struct generate_request *kept, struct arena *arena,
                          const struct generate_request *req, struct error *err)
{
    struct packer packer = {0};
    keep_parts(&packer, *req);
    int rc = arena_open(arena, packer.n_bytes, err);
    if (rc) return rc;
    packer = (struct packer){.block = arena->base};
    *kept = keep_parts(&packer, *req);
    arena->used_bytes = packer.n_bytes;
    return 0;
}
