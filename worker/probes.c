/* A rank's server of one page and of what probes ask for. */
#include "worker/probes.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory.h"
#include "http/metrics_server.h"

struct probes {
    struct beat *beat;
    struct metrics_server *server;
    /* Set once by the engine thread and read by the server's: NULL before the rank serves. */
    _Atomic(struct rank_signals *) signals;
    atomic_bool is_draining; /* likewise, by the thread that stops the rank */
};

static int write_metrics(void *arg, struct buffer *out, struct error *err)
{
    struct probes *probes = arg;
    struct rank_signals *signals = atomic_load(&probes->signals);
    return signals ? rank_signals_write(signals, out, err) : 0;
}

static int check_live(void *arg, struct error *err)
{
    const struct probes *probes = arg;
    return beat_check(probes->beat, err);
}

static int check_ready(void *arg, struct error *err)
{
    struct probes *probes = arg;
    if (!atomic_load(&probes->signals)) {
        return error_set(err, ERR_UNAVAILABLE,
                         "this rank still starts: it waits for its group or loads its weights");
    }
    if (atomic_load(&probes->is_draining)) {
        return error_set(err, ERR_UNAVAILABLE,
                         "this rank is ending: it takes no coordinator any more");
    }
    return beat_check(probes->beat, err);
}

int probes_open(struct probes **out, const char *address, struct beat *beat, struct error *err)
{
    int rc = 0;
    struct probes *probes = NULL;
    *out = NULL;
    TRY(mem_array(&probes, 1, sizeof *probes, err));
    probes->beat = beat;
    const struct metrics_server_options options = {.address = address,
                                                   .write = write_metrics,
                                                   .ready = check_ready,
                                                   .live = check_live,
                                                   .arg = probes};
    TRY(metrics_server_open(&probes->server, &options, err));
    *out = probes;
    probes = NULL;
out:
    free(probes);
    return rc;
}

void probes_close(struct probes *probes)
{
    if (!probes) return;
    metrics_server_close(probes->server);
    free(probes);
}

void probes_set_serving(struct probes *probes, struct rank_signals *signals)
{
    if (probes) atomic_store(&probes->signals, signals);
}

void probes_set_draining(struct probes *probes)
{
    if (probes) atomic_store(&probes->is_draining, true);
}

const char *probes_address(const struct probes *probes)
{
    return probes ? metrics_server_address(probes->server) : "";
}
