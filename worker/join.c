/* A rank asks its lead, rank 0. Rank 0 may start later, may still belong to a group that is just
 * ending, or the address may be wrong. So the rank asks again until the deadline, and stops earlier
 * only at an answer that more time would not change. */
#include "worker/join.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "rpc/client.h"

enum { AGAIN_MS = 200 };

/* target_description_differs. A group that is complete may have loaded its weights and have the
 * fingerprint of all their bytes, which this rank does not know yet. */
static const char *differs(const struct target_description *theirs,
                           const struct target_description *mine)
{
    struct target_description known = *mine;
    if (!theirs->has_nccl_id) known.model_fingerprint = theirs->model_fingerprint;
    return target_description_differs(theirs, &known);
}

/* Checks that `mine` belongs to the group of rank 0. */
static int check_lead(const struct target_description *theirs,
                      const struct target_description *mine, const char *lead, struct error *err)
{
    const char *what = differs(theirs, mine);
    if (theirs->rank != 0) {
        return error_set(err, ERR_ARGUMENT,
                         "the worker at %s is rank %d; --lead is the address of rank 0", lead,
                         theirs->rank);
    }
    if (theirs->n_ranks != mine->n_ranks) {
        return error_set(err, ERR_ARGUMENT,
                         "the worker at %s has a group of %d ranks, ours has %d: --ranks must be "
                         "the same",
                         lead, theirs->n_ranks, mine->n_ranks);
    }
    if (!what) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "rank %d has another %s than rank 0 at %s; start all ranks with the same "
                     "files and flags",
                     mine->rank, what, lead);
}

/* One call. After ERR_UNAVAILABLE and ERR_TIMEOUT it is worth trying again. */
static int ask_once(struct rpc_client *client, struct buffer *reply,
                    struct target_description *theirs, const struct target_description *mine,
                    const char *lead, int64_t deadline_us, struct error *err)
{
    int rc = 0;
    const struct rpc_request request = {
        .address = lead, .path = "/outrider.target.v1.Target/Describe", .deadline_us = deadline_us};
    TRY(rpc_client_call(client, &request, reply, err));
    TRY(target_description_decode(reply->data, reply->len, theirs, err));
    TRY(check_lead(theirs, mine, lead, err));
    if (!theirs->has_nccl_id) {
        rc = error_set(err, ERR_UNAVAILABLE,
                       "rank 0 at %s waits for no more ranks: its group is complete", lead);
    }
out:
    return rc;
}

int join_ask(struct target_description *theirs, const struct target_description *mine,
             const char *lead, const struct lead_access *access, int timeout_s, struct error *err)
{
    const struct timespec pause = {.tv_nsec = AGAIN_MS * 1000000L};
    int64_t deadline_us = clock_now_us() + (int64_t)timeout_s * 1000000;
    const struct rpc_client_options options = {.certificates = access->certificates,
                                               .api_key = access->key};
    struct rpc_client *client = NULL;
    struct buffer reply = {0};
    struct error why = {0}; /* the last reason apart from the deadline itself */
    int rc = rpc_client_open(&client, &options, err);
    while (!rc) {
        rc = ask_once(client, &reply, theirs, mine, lead, deadline_us, err);
        if (rc != ERR_UNAVAILABLE && rc != ERR_TIMEOUT) break;
        if (rc == ERR_UNAVAILABLE || !why.code) why = *err;
        if (clock_now_us() >= deadline_us) {
            rc = error_set(err, ERR_TIMEOUT,
                           "rank %d has not found its group within %d s: %.300s; start rank 0, or "
                           "correct --lead",
                           mine->rank, timeout_s, why.text);
            break;
        }
        log_line(LOG_LEVEL_DEBUG, "lead_not_ready", "address=%s text=\"%s\"", lead, err->text);
        nanosleep(&pause, NULL);
        rc = 0;
    }
    rpc_client_close(client);
    buffer_free(&reply);
    return rc;
}
