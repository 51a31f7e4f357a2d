/* Reads a LeaderWorkerSet's variables. */
#include "worker/lws.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text/options.h"

static int read_variable(const char **value, const char *name, struct error *err)
{
    *value = getenv(name);
    if (*value && **value) return 0;
    return error_set(err, ERR_ARGUMENT,
                     "--lws: %s is not set; it is in the pods of a LeaderWorkerSet (elsewhere give "
                     "--rank, --ranks and --lead)",
                     name);
}

static int read_number(int *out, const char *name, int least, int most, struct error *err)
{
    const char *value;
    int rc = read_variable(&value, name, err);
    return rc ? rc : options_int(out, name, value, least, most, err);
}

/* Every rank has a pod and an address of its own, so that all of them can have one port. */
static int make_lead(struct lws_place *place, const char *leader, const char *listen,
                     struct error *err)
{
    const char *colon = strrchr(listen, ':');
    bool is_unix = strncmp(listen, "unix:", 5) == 0;
    if (is_unix || !colon || !colon[1] || strcmp(colon, ":0") == 0) {
        return error_set(err, ERR_ARGUMENT,
                         "--lws: --listen %.200s has no port at which the other pods find rank 0; "
                         "give HOST:PORT",
                         listen);
    }
    if (snprintf(place->lead, ADDRESS_BYTES, "%s%s", leader, colon) < ADDRESS_BYTES) return 0;
    return error_set(err, ERR_ARGUMENT, "LWS_LEADER_ADDRESS %.100s... is too long", leader);
}

int lws_read(struct lws_place *place, const char *listen, struct error *err)
{
    int rc = 0;
    const char *leader;
    *place = (struct lws_place){0};
    TRY(read_number(&place->rank, "LWS_WORKER_INDEX", 0, RANKS_MAX - 1, err));
    TRY(read_number(&place->n_ranks, "LWS_GROUP_SIZE", 1, RANKS_MAX, err));
    TRY(read_variable(&leader, "LWS_LEADER_ADDRESS", err));
    TRY(make_lead(place, leader, listen, err));
    if (place->rank >= place->n_ranks) {
        rc = error_set(err, ERR_ARGUMENT,
                       "LWS_WORKER_INDEX %d of LWS_GROUP_SIZE %d: pods count "
                       "from 0",
                       place->rank, place->n_ranks);
    }
out:
    return rc;
}
