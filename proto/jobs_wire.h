/* The messages about stored jobs as plain structs, and their codecs; proto/generation_wire.h says
 * what all codecs do. */
#pragma once

#include "proto/generation_wire.h"

enum {
    JOB_ID_BYTES = 64, /* with the NUL byte, as the next one */
    JOB_KEY_BYTES = 129,
    JOB_LIST_MAX = 1000
};

struct submit_request {
    struct generate_request request;
    const char *key; /* of idempotency; "" = none */
};

struct watch_request {
    const char *id;
    uint32_t from_token;
};

struct list_request {
    int page_size; /* 0 = default */
    const char *page_token;
    enum job_state state;
};

/* The text of a sequence of a job so far. */
struct job_text {
    int n_ids;
    const int32_t *ids;
    const char *text;
    size_t text_len;
    const struct generate_summary *summary; /* NULL while the sequence runs */
};

struct job_status {
    const char *id, *key, *error, *request_id;
    enum job_state state;
    enum job_end end; /* of an ended one */
    int n, prompt_tokens, completion_tokens;
    uint64_t submitted_ms, ended_ms; /* since 1970; 0 = not yet */
    bool existed;
    int n_texts;
    const struct job_text *texts; /* NULL: without the answer */
};

struct job_list {
    int n;
    const struct job_status *jobs;
    const char *next_page_token; /* "" = this was the last page */
};

int submit_request_encode(struct buffer *buf, const struct submit_request *req, struct error *err);
int submit_request_decode(const uint8_t *data, size_t len, struct arena *arena,
                          struct submit_request *req, struct error *err);
int watch_request_encode(struct buffer *buf, const struct watch_request *req, struct error *err);
int watch_request_decode(const uint8_t *data, size_t len, struct arena *arena,
                         struct watch_request *req, struct error *err);
/* A message that holds the id of a job alone. */
int job_request_encode(struct buffer *buf, const char *id, struct error *err);
int job_request_decode(const uint8_t *data, size_t len, struct arena *arena, const char **id,
                       struct error *err);
int list_request_encode(struct buffer *buf, const struct list_request *req, struct error *err);
int list_request_decode(const uint8_t *data, size_t len, struct arena *arena,
                        struct list_request *req, struct error *err);
int job_status_encode(struct buffer *buf, const struct job_status *job, struct error *err);
int job_status_decode(const uint8_t *data, size_t len, struct arena *arena, struct job_status *job,
                      struct error *err);
int job_list_encode(struct buffer *buf, const struct job_list *list, struct error *err);
int job_list_decode(const uint8_t *data, size_t len, struct arena *arena, struct job_list *list,
                    struct error *err);
