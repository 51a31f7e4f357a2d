/* Counting served tokens. */
#include "coordinator/engine/served_tokens.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/threads/monitor.h"
#include "model/tokenizer/token_counts.h"

static const int64_t idle_us = INT64_C(300) * 1000000, busy_us = INT64_C(900) * 1000000;

struct served_tokens {
    const char *path;
    struct token_counts counts;
    int64_t written_us;
    bool is_changed, is_open;
    struct monitor monitor;
};

static void write_list(struct served_tokens *t, int64_t now_us)
{
    struct error err;
    t->written_us = now_us;
    if (token_counts_write(&t->counts, t->path, &err)) {
        log_line(LOG_LEVEL_WARN, "counts_not_written", "text=\"%s\"", err.text);
    } else {
        t->is_changed = false;
    }
}

int served_tokens_open(struct served_tokens **served, const char *path, const struct tokenizer *tok,
                       struct error *err)
{
    int rc = 0;
    struct served_tokens *t = NULL;
    *served = NULL;
    TRY(mem_array(&t, 1, sizeof *t, err));
    t->path = path;
    monitor_open(&t->monitor);
    t->written_us = clock_now_us();
    TRY(token_counts_init(&t->counts, tok, err));
    rc = token_counts_read(&t->counts, path, err);
    if (rc && rc != ERR_NOT_FOUND) goto out;
    TRY(token_counts_write(&t->counts, path, err));
    t->is_open = true;
    *served = t;
    t = NULL;
out:
    if (rc) error_wrap(err, "--count-tokens");
    served_tokens_close(t);
    return rc;
}

void served_tokens_close(struct served_tokens *t)
{
    if (!t) return;
    if (t->is_open && t->is_changed) write_list(t, clock_now_us());
    token_counts_free(&t->counts);
    monitor_close(&t->monitor);
    free(t);
}

void served_tokens_count(struct served_tokens *t, const int32_t *ids, int n)
{
    if (!t || n <= 0) return;
    monitor_enter(&t->monitor);
    token_counts_add(&t->counts, ids, (size_t)n);
    t->is_changed = true;
    monitor_leave(&t->monitor);
}

void served_tokens_tick(struct served_tokens *t, int64_t now_us, bool is_idle)
{
    if (!t) return;
    monitor_enter(&t->monitor);
    int64_t pause_us = is_idle ? idle_us : busy_us;
    if (t->is_changed && now_us - t->written_us >= pause_us) write_list(t, now_us);
    monitor_leave(&t->monitor);
}
