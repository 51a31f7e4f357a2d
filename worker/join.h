/* How ranks without MPI find each other: they call Describe of rank 0, which offers the id of an
 * NCCL communicator while it waits for them. A rank cannot join a group that is complete, nor one
 * that holds something else. */
#pragma once

#include "proto/target_wire.h"
#include "worker/lead_watch.h"

/* Asks rank 0 at `lead` until it offers an id, for at most timeout_s seconds; theirs is its
 * description.
 * Errors: ERR_ARGUMENT it is not rank 0 of our group, or the two ranks differ in something that
 * they must share (the sentence says in what); ERR_TIMEOUT with the last reason; errors of
 * Describe. */
int join_ask(struct target_description *theirs, const struct target_description *mine,
             const char *lead, const struct lead_access *access, int timeout_s, struct error *err);
