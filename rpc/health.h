/* The standard service grpc.health.v1.Health: a few names, each of which is serving or not, that
 * clients ask for (Check) or follow (Watch). It is a service like any other: it is put into the
 * list of a server. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "rpc/method.h"

struct rpc_health; /* locked inside */

/* Knows the name "", which means the whole process and does not serve until it is set.
 * Errors: ERR_NO_MEMORY. */
int rpc_health_open(struct rpc_health **health, struct error *err);
/* After the server that offers it is closed. Accepts NULL. */
void rpc_health_close(struct rpc_health *health);

/* For the list of one server; public, so that probes need no key. Its watches end when that server
 * begins to close. */
struct rpc_service rpc_health_service(struct rpc_health *health);

/* Sets the health of a name, up to 8 of them, and tells those who watch it. Any thread. */
void rpc_health_set(struct rpc_health *health, const char *name, bool is_serving);

/* As it was set last; false if it never was. Any thread. */
bool rpc_health_is_serving(struct rpc_health *health, const char *name);
