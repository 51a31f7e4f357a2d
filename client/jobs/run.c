/* Every line that is under way has a slot. A slot goes from step to step, and each step is one call
 * of the service: Submit, Watch and, if watching broke off, Get, which tells whether the job ended
 * or only the connection. */
#include "client/jobs/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "client/jobs/jobs.h"
#include "client/token_table.h"

enum {
    TURN_US = 100000,
    SEND_US = 10 * 1000000,
    RETRY_FIRST_US = 200000,
    RETRY_MOST_US = 1000000,
    FULL_US = 500000, /* before the next try where too many requests wait */
    /* How often a job is submitted anew because the service could not serve it; with pauses that
     * double from RETRY_FIRST_US up to RETRY_MOST_US. */
    ATTEMPTS_MAX = 8,
    ATTEMPT_BYTES = 8, /* of "~2" */
    HASH_BYTES = 18
};

enum step { STEP_FREE, STEP_SUBMIT, STEP_WATCH, STEP_GET };

struct jobs_slot {
    enum step step;
    const struct jobs_line *line;
    struct jobs_entry entry;
    char id[JOB_ID_BYTES];
    bool existed;
    int attempt;                 /* 1, 2, ...: from the second on it is a part of the key */
    int64_t begin_us;            /* of the step, which may be in the future */
    int64_t pause_us;            /* before the next try */
    struct rpc_stream *stream;   /* NULL: the step has not begun */
    struct jobs_answer *answers; /* [entry.request.n] */
    json_t *echoed;              /* the prompt's tokens; NULL = they were not asked for */
    bool has_ended;              /* what Get told */
    enum job_end end;
    char error[ERROR_TEXT_BYTES];
};

/* ---- slots ---- */

static void forget_answers(struct jobs_slot *slot)
{
    json_decref(slot->echoed);
    slot->echoed = NULL;
    for (int i = 0; slot->answers && i < slot->entry.request.n; i++) {
        token_ids_free(&slot->answers[i].ids);
        buffer_free(&slot->answers[i].text);
        json_decref(slot->answers[i].logprobs);
        slot->answers[i] = (struct jobs_answer){0};
    }
}

static void slot_free(struct jobs_slot *slot)
{
    rpc_stream_close(slot->stream);
    forget_answers(slot);
    free(slot->answers);
    jobs_entry_free(&slot->entry);
    *slot = (struct jobs_slot){0};
}

static void go_to(struct jobs_slot *slot, enum step step, int64_t pause_us)
{
    rpc_stream_close(slot->stream);
    slot->stream = NULL;
    slot->step = step;
    slot->begin_us = clock_now_us() + pause_us;
}

/* Goes to `step`, which may be the one that failed, after a pause, which doubles each time. */
static void try_again(struct jobs_slot *slot, enum step step)
{
    slot->pause_us = slot->pause_us ? 2 * slot->pause_us : RETRY_FIRST_US;
    if (slot->pause_us > RETRY_MOST_US) slot->pause_us = RETRY_MOST_US;
    go_to(slot, step, slot->pause_us);
}

/* ---- the beginning of a step ---- */

/* From the second attempt on the key is another one. Of a long key a hash must do for the end. */
static void make_key(const struct jobs_slot *slot, char key[JOB_KEY_BYTES])
{
    const char *own = slot->entry.key;
    int most = JOB_KEY_BYTES - ATTEMPT_BYTES, len = (int)strlen(own);
    if (slot->attempt == 1) {
        snprintf(key, JOB_KEY_BYTES, "%s", own);
    } else if (len < most) {
        snprintf(key, JOB_KEY_BYTES, "%.*s~%d", len, own, slot->attempt);
    } else {
        snprintf(key, JOB_KEY_BYTES, "%.*s-%016" PRIx64 "~%d", most - HASH_BYTES, own,
                 (uint64_t)XXH3_64bits(own, (size_t)len), slot->attempt);
    }
}

static int encode_step(struct jobs_slot *slot, struct buffer *request, struct error *err)
{
    char key[JOB_KEY_BYTES];
    switch (slot->step) {
    case STEP_SUBMIT:
        make_key(slot, key);
        const struct submit_request submit = {.request = slot->entry.request, .key = key};
        return submit_request_encode(request, &submit, err);
    case STEP_WATCH:
        forget_answers(slot);
        return watch_request_encode(request, &(struct watch_request){.id = slot->id}, err);
    default:
        return job_request_encode(request, slot->id, err);
    }
}

static int begin_step(struct jobs_run *run, struct jobs_slot *slot, struct error *err)
{
    static const char *const paths[] = {[STEP_SUBMIT] = JOBS_SERVICE "Submit",
                                        [STEP_WATCH] = JOBS_SERVICE "Watch",
                                        [STEP_GET] = JOBS_SERVICE "Get"};
    struct server *server = run->server;
    struct buffer request = {0};
    int rc = 0;
    TRY(encode_step(slot, &request, err));
    TRY(rpc_stream_open(&slot->stream, server->client, server->address, paths[slot->step], false,
                        server->deadline_us, err));
    TRY(rpc_stream_send(slot->stream, request.data, request.len, clock_now_us() + SEND_US, err));
    TRY(rpc_stream_half_close(slot->stream, err));
out:
    buffer_free(&request);
    return rc;
}

/* ---- messages ---- */

static int take_tokens(struct jobs_run *run, struct jobs_slot *slot,
                       const struct generate_tokens *tokens, struct error *err)
{
    struct jobs_answer *answer = &slot->answers[tokens->index];
    int rc = 0;
    TRY(token_ids_append(&answer->ids, tokens->ids, (size_t)tokens->n, err));
    TRY(buffer_append(&answer->text, tokens->text, tokens->text_len, err));
    if (tokens->logprobs && !answer->logprobs) answer->logprobs = json_array();
    for (int i = 0; tokens->logprobs && i < tokens->n; i++) {
        const struct token_line line = token_line_of(tokens, i);
        json_array_append_new(answer->logprobs, token_line_json(&line));
    }
    run->n_tokens += tokens->n;
out:
    return rc;
}

static int take_echo(struct jobs_slot *slot, const struct score_reply *echo, struct error *err)
{
    for (int i = 0; i < echo->n; i++) {
        const struct token_line line = token_line_of_score(&echo->tokens[i]);
        if (!slot->echoed) slot->echoed = json_array();
        if (json_array_append_new(slot->echoed, token_line_json(&line))) {
            return error_set(err, ERR_NO_MEMORY, "no memory for the prompt's tokens");
        }
    }
    return 0;
}

static int take_reply(struct jobs_run *run, struct jobs_slot *slot,
                      const struct generate_reply *reply, struct error *err)
{
    if (reply->echo) return take_echo(slot, reply->echo, err);
    int index = reply->tokens ? reply->tokens->index : reply->summary->index;
    if (index >= slot->entry.request.n) {
        return error_set(err, ERR_FORMAT, "%.160s sends sequence %d of %d", run->server->address,
                         index, slot->entry.request.n);
    }
    if (reply->tokens) return take_tokens(run, slot, reply->tokens, err);
    struct jobs_answer *answer = &slot->answers[index];
    answer->counters = reply->summary->counters;
    answer->prompt_tokens = reply->summary->prompt_tokens;
    snprintf(answer->finish_reason, sizeof answer->finish_reason, "%s",
             reply->summary->finish_reason);
    return 0;
}

static int take_status(struct jobs_slot *slot, const struct job_status *job)
{
    snprintf(slot->id, sizeof slot->id, "%s", job->id);
    if (slot->step == STEP_SUBMIT) slot->existed = job->existed;
    slot->has_ended = job->state == JOB_STATE_ENDED;
    slot->end = job->end;
    snprintf(slot->error, sizeof slot->error, "%s", slot->has_ended ? job->error : "");
    return 0;
}

static int take_message(struct jobs_run *run, struct jobs_slot *slot, const uint8_t *data,
                        size_t len, struct error *err)
{
    struct generate_reply reply;
    struct job_status job;
    struct arena *arena;
    int rc = 0;
    run->progress_us = clock_now_us();
    run->trouble.code = 0;
    TRY(server_arena(run->server, len, &arena, err));
    if (slot->step == STEP_WATCH) {
        TRY(generate_reply_decode(data, len, arena, &reply, err));
        TRY(take_reply(run, slot, &reply, err));
    } else {
        TRY(job_status_decode(data, len, arena, &job, err));
        TRY(take_status(slot, &job));
    }
out:
    return rc;
}

/* ---- the end of a step ---- */

static int finish(struct jobs_run *run, struct jobs_slot *slot, enum job_end end, const char *error,
                  struct error *err)
{
    const struct jobs_result result = {.line = slot->line,
                                       .entry = &slot->entry,
                                       .id = slot->id,
                                       .error = error,
                                       .end = end,
                                       .existed = slot->existed,
                                       .n = slot->entry.request.n,
                                       .answers = slot->answers,
                                       .echoed = slot->echoed};
    int rc = run->on_result(run->arg, &result, err);
    slot_free(slot);
    return rc;
}

/* The job has ended as Get told. One that the service could not serve is submitted anew. */
static int finish_failed(struct jobs_run *run, struct jobs_slot *slot, struct error *err)
{
    bool is_servers = slot->end == JOB_END_UNAVAILABLE || slot->end == JOB_END_SHUTDOWN;
    if (!is_servers || slot->attempt == ATTEMPTS_MAX) {
        return finish(run, slot, slot->end, slot->error, err);
    }
    slot->attempt++;
    try_again(slot, STEP_SUBMIT);
    return 0;
}

static int end_well(struct jobs_run *run, struct jobs_slot *slot, struct error *err)
{
    enum job_end end = JOB_END_STOP;
    switch (slot->step) {
    case STEP_SUBMIT:
        if (slot->attempt == 1) slot->pause_us = 0;
        go_to(slot, STEP_WATCH, 0);
        return 0;
    case STEP_WATCH:
        for (int i = 0; i < slot->entry.request.n; i++) {
            if (!slot->answers[i].finish_reason[0]) {
                try_again(slot, STEP_GET); /* the stream ended without its summary */
                return 0;
            }
            if (strcmp(slot->answers[i].finish_reason, "length") == 0) end = JOB_END_LENGTH;
        }
        return finish(run, slot, end, "", err);
    default:
        if (slot->has_ended && slot->error[0]) return finish_failed(run, slot, err);
        try_again(slot, STEP_WATCH);
        return 0;
    }
}

/* True if the same call may succeed later. */
static bool is_passing(int code)
{
    return code == ERR_UNAVAILABLE || code == ERR_EXHAUSTED || code == ERR_TIMEOUT ||
           code == ERR_CANCELLED;
}

static int end_badly(struct jobs_run *run, struct jobs_slot *slot, const struct error *why,
                     struct error *err)
{
    run->trouble = *why;
    if (slot->step == STEP_SUBMIT) {
        if (why->code == ERR_TIMEOUT && slot->entry.request.timeout_ms) {
            return finish(run, slot, JOB_END_DEADLINE, why->text, err);
        }
        if (!is_passing(why->code)) return finish(run, slot, JOB_END_REFUSED, why->text, err);
        if (why->code == ERR_EXHAUSTED) { /* the service is there and has no room yet */
            run->progress_us = clock_now_us();
            run->trouble.code = 0;
            go_to(slot, STEP_SUBMIT, FULL_US);
        } else {
            try_again(slot, STEP_SUBMIT);
        }
    } else if (why->code == ERR_NOT_FOUND) { /* the coordinator was started anew */
        try_again(slot, STEP_SUBMIT);
    } else if (slot->step == STEP_WATCH) {
        try_again(slot, STEP_GET);
    } else if (is_passing(why->code)) {
        try_again(slot, STEP_GET);
    } else {
        return finish(run, slot, JOB_END_FAILED, why->text, err);
    }
    return 0;
}

/* ---- turns ---- */

/* Takes what has come for a slot; *has_moved when something has. */
static int poll_slot(struct jobs_run *run, struct jobs_slot *slot, bool *has_moved,
                     struct error *err)
{
    struct error why = {0};
    const uint8_t *data;
    size_t len;
    bool is_here = false;
    if (slot->step == STEP_FREE || clock_now_us() < slot->begin_us) return 0;
    if (!slot->stream && begin_step(run, slot, &why)) return end_badly(run, slot, &why, err);
    int rc = rpc_stream_try_receive(slot->stream, &data, &len, &is_here, &why);
    if (!rc && !is_here) return 0;
    *has_moved = true;
    if (!rc) return take_message(run, slot, data, len, err);
    return rc == ERR_CLOSED ? end_well(run, slot, err) : end_badly(run, slot, &why, err);
}

static int start_line(struct jobs_run *run, struct jobs_slot *slot, struct error *err)
{
    const struct jobs_line *line = &run->lines[run->n_started++];
    struct error why;
    if (jobs_entry_read(&slot->entry, line, run->run, &why)) {
        return run->on_bad_line(run->arg, line, &why) ? error_set(err, why.code, "%s", why.text)
                                                      : 0;
    }
    int n = slot->entry.request.n > 0 ? slot->entry.request.n : 1;
    slot->line = line;
    slot->attempt = 1;
    slot->step = STEP_SUBMIT;
    return mem_array(&slot->answers, (size_t)n, sizeof *slot->answers, err);
}

static int turn(struct jobs_run *run, bool *has_moved, struct error *err)
{
    int rc = 0;
    run->n_running = 0;
    for (int i = 0; i < run->concurrency && !rc; i++) {
        struct jobs_slot *slot = &run->slots[i];
        while (!rc && slot->step == STEP_FREE && run->n_started < run->n_lines) {
            rc = start_line(run, slot, err);
        }
        if (!rc) rc = poll_slot(run, slot, has_moved, err);
        if (slot->step != STEP_FREE) run->n_running++;
    }
    return rc;
}

static int check_patience(const struct jobs_run *run, struct error *err)
{
    if (!run->trouble.code || clock_now_us() - run->progress_us < run->retry_s * INT64_C(1000000)) {
        return 0;
    }
    return error_set(err, ERR_UNAVAILABLE,
                     "nothing has come for %d s (%.300s); jobs that were submitted go on, and the "
                     "same command takes their answers up",
                     run->retry_s, run->trouble.text);
}

static int run_turns(struct jobs_run *run, struct error *err)
{
    int rc = 0;
    while (!rc) {
        bool has_moved = false;
        TRY(turn(run, &has_moved, err));
        if (!run->n_running && run->n_started == run->n_lines) break;
        run->on_turn(run->arg);
        TRY(server_check_interrupt(run->server, err));
        TRY(check_patience(run, err));
        if (!has_moved) rpc_client_wait(run->server->client, clock_now_us() + TURN_US);
    }
out:
    return rc;
}

int jobs_run(struct jobs_run *run, struct error *err)
{
    int rc = mem_array(&run->slots, (size_t)run->concurrency, sizeof *run->slots, err);
    if (rc) return rc;
    run->progress_us = clock_now_us();
    rc = run_turns(run, err);
    for (int i = 0; i < run->concurrency; i++) {
        slot_free(&run->slots[i]);
    }
    free(run->slots);
    return rc;
}
