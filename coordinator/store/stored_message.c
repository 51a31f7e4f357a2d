#include "coordinator/store/stored_message.h"

/* The first arena's size. How much a message decodes into depends on its parts, not only on its
 * bytes, so the arena doubles until it is enough. */
enum { LEAST_BYTES = 8192 };

int stored_message_decode(struct generate_reply *reply, struct arena *arena,
                          const struct job_message *message, struct error *err)
{
    for (size_t wanted = LEAST_BYTES;; wanted = 2 * arena->size_bytes) {
        if (arena->size_bytes < wanted) {
            arena_close(arena);
            int rc = arena_open(arena, wanted, err);
            if (rc) return rc;
        }
        arena_reset(arena);
        int rc = generate_reply_decode(message->data, message->len, arena, reply, err);
        if (rc != ERR_NO_MEMORY) return rc;
    }
}
