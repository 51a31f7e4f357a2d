/* The API keys of a running server: who may call, and as whom. Every door asks here. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>

#include "access/key_file.h"

/* Rights of a key: its holder is a client with a name, a share and limits. The limits follow the
 * file when it is read again; jobs that hold the grant of a key that is gone go on. Counted
 * references; any thread. */
struct grant {
    char name[KEY_NAME_BYTES];                 /* immutable */
    atomic_int weight, max_jobs, max_priority; /* as in struct key_entry */
    atomic_int n_jobs;                         /* of the holder, waiting or running */
    atomic_int n_refs;
};

void grant_ref(struct grant *grant);
/* Accepts NULL. */
void grant_release(struct grant *grant);

/* The name of the holder, who owns the jobs that he submits; "" of NULL. */
const char *grant_name(const struct grant *grant);

/* Counts a job of the holder, until grant_leave. Errors: ERR_EXHAUSTED the holder has as many as
 * the key allows. */
int grant_enter(struct grant *grant, struct error *err);
void grant_leave(struct grant *grant);

struct keys; /* locked inside */

/* Reads the file; no key at all is allowed, and keeps everybody out.
 * Errors: those of file_read_text; ERR_FORMAT with file and line, also if others than its owner may
 * write the file. */
int keys_open(struct keys **keys, const char *path, struct error *err);
/* Grants may outlive it. Accepts NULL. */
void keys_close(struct keys *keys);

/* Reads the file again, for SIGHUP, and says in the log what came of it: a bad file changes
 * nothing. Accepts NULL. */
void keys_reload(struct keys *keys);

/* The grant of a key, which the caller releases. Takes equally long whatever the key and whichever
 * it is. Errors: ERR_UNAUTHENTICATED. */
int keys_find(struct keys *keys, const char *key, size_t len, struct grant **grant,
              struct error *err);

/* Finds the grant for the value of an authorization header (access/authorization.h); NULL: there
 * was none. Without keys (NULL) everybody may call, and *grant is NULL.
 * Errors: ERR_UNAUTHENTICATED, with what to send. */
int keys_authorize(struct keys *keys, const char *authorization, size_t len, struct grant **grant,
                   struct error *err);

/* How many keys_authorize has refused. Accepts NULL. */
int64_t keys_refused(const struct keys *keys);
