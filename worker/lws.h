/* The place of a rank whose pod is one of a LeaderWorkerSet's group: Kubernetes' LeaderWorkerSet
 * puts it into the environment of every container (LWS_WORKER_INDEX, LWS_GROUP_SIZE,
 * LWS_LEADER_ADDRESS). */
#pragma once

#include "worker/address.h"

struct lws_place {
    int rank, n_ranks;
    char lead[ADDRESS_BYTES]; /* the leader's address with the port of --listen */
};

/* Errors: ERR_ARGUMENT a variable is missing or makes no sense, or listen is not HOST:PORT with a
 * port that all ranks can have. */
int lws_read(struct lws_place *place, const char *listen, struct error *err);
