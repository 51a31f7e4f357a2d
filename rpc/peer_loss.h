/* Connections on which the loss of the other host, or of the way to it, shows within 4 s. For files
 * of rpc/ only. */
#pragma once

#include <grpc/grpc.h>
#include <stdbool.h>

/* Sets *arg so that the connections of a channel or a server notice it; false where this gRPC is
 * not one that the code knows. They take the kernel's probes for that, so a process that is busy or
 * stopped on a host that answers is no loss. */
bool rpc_peer_loss_arg(grpc_arg *arg);
