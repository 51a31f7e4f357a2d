/* The target group: connecting, and the exchange of one step. Its rows: verify.c. */
#include "coordinator/target/target.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "coordinator/discovery/discovery.h"
#include "coordinator/target/step_watch.h"
#include "rpc/client.h"
#include "rpc/health_wire.h"

enum { LOOK_US = 20000 }; /* how often a wait for one rank looks at the others */

struct rank_link {
    char address[TARGET_ADDRESS_BYTES];
    struct rpc_stream *stream; /* NULL = not connected */
    struct rpc_stream *health; /* watches the rank's health; NULL = not any more */
    struct target_description description;
};

struct target {
    struct rpc_client *client;
    struct rank_link links[RANKS_MAX]; /* in rank order once connected */
    int n_ranks;
    uint64_t tokenizer_fingerprint;
    int step_timeout_s;
    bool is_connected, was_connected;
    bool is_leaving;      /* a rank does not serve any more */
    target_look_fn *look; /* NULL = nobody wants to */
    void *look_arg;
    struct step_watch watch;
    uint64_t last_id;
    int64_t sent_us; /* when the last step was sent */
    struct buffer out, in;
    /* Decoded replies: of a step, until the next one, and of a further question about it. */
    struct arena replies, further;
    struct arena told; /* of `conventions` */
    struct target_conventions conventions;
};

enum { REPLY_ARENA_BYTES = (96 << 20) + FEATURE_BYTES_MAX, TOLD_ARENA_BYTES = 4 << 20 };

static const struct target_conventions no_conventions = {.template_file = "",
                                                         .chat_template = "",
                                                         .temperature = WIRE_OPEN,
                                                         .top_p = WIRE_OPEN,
                                                         .min_p = WIRE_OPEN,
                                                         .repetition_penalty = WIRE_OPEN,
                                                         .top_k = WIRE_OPEN};

int target_open(struct target **target, const struct target_options *options, struct error *err)
{
    int rc = 0;
    struct target *t = NULL;
    const struct rpc_client_options client = {.certificates = options->certificates,
                                              .server_name = options->server_name,
                                              .api_key = options->group_key};
    *target = NULL;
    TRY(mem_array(&t, 1, sizeof *t, err));
    t->tokenizer_fingerprint = options->tokenizer_fingerprint;
    t->step_timeout_s = options->step_timeout_s;
    t->conventions = no_conventions;
    TRY(arena_open(&t->replies, REPLY_ARENA_BYTES, err));
    TRY(arena_open(&t->further, REPLY_ARENA_BYTES, err));
    TRY(arena_open(&t->told, TOLD_ARENA_BYTES, err));
    TRY(rpc_client_open(&t->client, &client, err));
    *target = t;
    t = NULL;
out:
    target_close(t);
    return rc;
}

void target_close(struct target *t)
{
    if (!t) return;
    target_disconnect(t);
    rpc_client_close(t->client);
    buffer_free(&t->out);
    buffer_free(&t->in);
    arena_close(&t->replies);
    arena_close(&t->further);
    arena_close(&t->told);
    free(t);
}

void target_disconnect(struct target *t)
{
    for (int i = 0; i < t->n_ranks; i++) {
        rpc_stream_close(t->links[i].health);
        rpc_stream_close(t->links[i].stream);
        t->links[i].health = t->links[i].stream = NULL;
    }
    t->is_connected = t->is_leaving = false;
}

bool target_is_connected(const struct target *t)
{
    return t->is_connected;
}

bool target_is_leaving(const struct target *t)
{
    return t->is_leaving;
}

const struct target_description *target_description(const struct target *t)
{
    return &t->links[0].description;
}

const struct target_conventions *target_conventions(const struct target *t)
{
    return &t->conventions;
}

void target_kernels(const struct target *t, const char *kernels[RANKS_MAX], int *n)
{
    *n = t->was_connected ? t->n_ranks : 0;
    for (int i = 0; i < *n; i++) {
        kernels[i] = t->links[i].description.kernels;
    }
}

static int compare_ranks(const void *a, const void *b)
{
    return ((const struct rank_link *)a)->description.rank -
           ((const struct rank_link *)b)->description.rank;
}

/* Checks that the links, sorted by rank, are one whole group that fits our tokenizer. */
static int check_group(const struct target *t, struct error *err)
{
    const struct target_description *lead = &t->links[0].description;
    if (lead->n_ranks != t->n_ranks) {
        return error_set(err, ERR_UNAVAILABLE, "%s is a rank of a group of %d now, instead of %d",
                         t->links[0].address, lead->n_ranks, t->n_ranks);
    }
    for (int i = 0; i < t->n_ranks; i++) {
        const struct target_description *d = &t->links[i].description;
        if (d->rank != i || strcmp(d->group, lead->group) != 0) {
            return error_set(
                err, ERR_UNAVAILABLE,
                "%s says it is rank %d of group %s, expected rank %d of %s: give every "
                "rank of one group once",
                t->links[i].address, d->rank, d->group, i, lead->group);
        }
        const char *what = target_description_differs(d, lead);
        if (what) {
            return error_set(err, ERR_ARGUMENT,
                             "%s has another %s than %s: the ranks of a group must be equal",
                             t->links[i].address, what, t->links[0].address);
        }
        if (d->tokenizer_fingerprint != t->tokenizer_fingerprint) {
            return error_set(
                err, ERR_ARGUMENT,
                "the target %s at %s has another vocabulary than our tokenizer (%016llx, "
                "ours %016llx): draft and target must share one token table",
                d->model, t->links[i].address, (unsigned long long)d->tokenizer_fingerprint,
                (unsigned long long)t->tokenizer_fingerprint);
        }
    }
    return 0;
}

/* A rank whose health cannot be watched serves as well; it just cannot say that it leaves. */
static void watch_health(struct target *t, struct rank_link *link)
{
    struct error err;
    int rc = 0;
    TRY(health_request_encode(&t->out, "", &err));
    TRY(rpc_stream_open(&link->health, t->client, link->address, "/grpc.health.v1.Health/Watch",
                        false, INT64_MAX, &err));
    TRY(rpc_stream_send(link->health, t->out.data, t->out.len, INT64_MAX, &err));
    TRY(rpc_stream_half_close(link->health, &err));
out:
    if (!rc) return;
    rpc_stream_close(link->health);
    link->health = NULL;
}

/* Takes what a rank has said of its health, as far as it has come. */
static void look_at_health(struct target *t, struct rank_link *link)
{
    const uint8_t *data;
    size_t len;
    bool is_here = true;
    struct error err;
    while (link->health && is_here) {
        enum health_answer answer;
        int rc = rpc_stream_try_receive(link->health, &data, &len, &is_here, &err);
        if (!rc && is_here) rc = health_response_decode(data, len, &answer, &err);
        if (rc) {
            rpc_stream_close(link->health);
            link->health = NULL;
        } else if (is_here && answer == HEALTH_ANSWER_NOT_SERVING) {
            t->is_leaving = true;
        }
    }
}

/* Never 0. The file's name does not count. */
static uint64_t digest_of(const struct target_conventions *c)
{
    const float numbers[] = {c->temperature, c->top_p, c->min_p, c->repetition_penalty,
                             (float)c->top_k};
    uint64_t digest = XXH3_64bits(numbers, sizeof numbers);
    digest = XXH3_64bits_withSeed(c->chat_template, c->chat_template_len, digest);
    for (int i = 0; i < c->n_special; i++) {
        digest = XXH3_64bits_withSeed(c->special[i].name, strlen(c->special[i].name) + 1, digest);
        digest = XXH3_64bits_withSeed(c->special[i].text, strlen(c->special[i].text) + 1, digest);
    }
    return digest | 1;
}

/* Rank 0 speaks for its group. One that does not know the question has nothing to say. */
static int ask_conventions(struct target *t, int64_t deadline_us, struct error *err)
{
    const struct rpc_request request = {.address = t->links[0].address,
                                        .path = "/outrider.target.v1.Target/DescribeConventions",
                                        .deadline_us = deadline_us};
    t->conventions = no_conventions;
    arena_reset(&t->told);
    int rc = rpc_client_call(t->client, &request, &t->in, err);
    if (rc == ERR_UNSUPPORTED) return 0;
    if (rc) return rc;
    rc = target_conventions_decode(t->in.data, t->in.len, &t->told, &t->conventions, err);
    if (rc) t->conventions = no_conventions;
    return rc ? error_wrap(err, "%s", t->links[0].address) : 0;
}

int target_connect(struct target *t, const struct found_group *group, int64_t deadline_us,
                   struct error *err)
{
    int rc = 0;
    target_disconnect(t);
    t->n_ranks = group->n_ranks;
    for (int i = 0; i < t->n_ranks; i++) {
        strcpy(t->links[i].address, group->addresses[i]);
    }
    for (int i = 0; i < t->n_ranks; i++) {
        const struct rpc_request request = {.address = t->links[i].address,
                                            .path = "/outrider.target.v1.Target/Describe",
                                            .deadline_us = deadline_us};
        TRY(rpc_client_call(t->client, &request, &t->in, err));
        TRY(target_description_decode(t->in.data, t->in.len, &t->links[i].description, err));
        if (t->links[i].description.is_busy) {
            rc = discovery_tell_busy(t->links[i].address, rpc_client_is_known(t->client), err);
            goto out;
        }
    }
    qsort(t->links, (size_t)t->n_ranks, sizeof *t->links, compare_ranks);
    TRY(check_group(t, err));
    TRY(ask_conventions(t, deadline_us, err));
    t->links[0].description.conventions = digest_of(&t->conventions);
    for (int i = 0; i < t->n_ranks; i++) {
        TRY(rpc_stream_open(&t->links[i].stream, t->client, t->links[i].address,
                            "/outrider.target.v1.Target/Run", false, INT64_MAX, err));
        watch_health(t, &t->links[i]);
    }
    t->last_id = 0;
    step_watch_init(&t->watch, (int64_t)t->step_timeout_s * 1000000);
    t->is_connected = t->was_connected = true;
out:
    if (rc) target_disconnect(t);
    return rc;
}

/* One stream broke, and with it the whole group is lost. */
static int lose(struct target *t, int rank, struct error *err)
{
    int code = err->code == ERR_TIMEOUT ? ERR_TIMEOUT : ERR_UNAVAILABLE;
    char why[ERROR_TEXT_BYTES];
    memcpy(why, err->text, sizeof why);
    log_line(LOG_LEVEL_WARN, "target_lost", "rank=%d address=%s text=\"%s\"", rank,
             t->links[rank].address, why);
    target_disconnect(t);
    return error_set(err, code, "the target group lost rank %d at %s: %.300s", rank,
                     t->links[rank].address, why);
}

/* Loses the group if a stream has ended, as far as earlier polls and receives have seen. */
static int lose_broken(struct target *t, struct error *err)
{
    for (int i = 0; i < t->n_ranks; i++) {
        if (!rpc_stream_is_over(t->links[i].stream)) continue;
        const uint8_t *data;
        size_t len;
        int rc = rpc_stream_receive(t->links[i].stream, &data, &len, 0, err);
        if (!rc || rc == ERR_CLOSED) error_set(err, ERR_UNAVAILABLE, "the rank ended the stream");
        return lose(t, i, err);
    }
    return 0;
}

int target_poll(struct target *t, struct error *err)
{
    if (!t->is_connected) return 0;
    rpc_client_poll(t->client);
    for (int i = 0; i < t->n_ranks; i++) {
        look_at_health(t, &t->links[i]);
    }
    return lose_broken(t, err);
}

/* Decodes one rank's reply and checks that it answers this step. */
static int take_reply(struct target *t, int rank, bool is_step, const uint8_t *data, size_t len,
                      struct step_reply *reply, struct error *err)
{
    const struct target_description *d = &t->links[rank].description;
    struct arena *arena = is_step ? &t->replies : &t->further;
    int rc = step_reply_decode(data, len, d->vocab_size, d->n_slices, arena, reply, err);
    if (!rc && reply->id != t->last_id) {
        rc = error_set(err, ERR_FORMAT, "it answers step %llu instead of %llu",
                       (unsigned long long)reply->id, (unsigned long long)t->last_id);
    }
    return rc;
}

static int count_rows(const struct step *step)
{
    int n = 0;
    for (int i = 0; i < step->n_lanes; i++) {
        n += step->lanes[i].n_rows;
    }
    for (int i = 0; i < step->n_more; i++) {
        n += step->more[i].n_rows;
    }
    return n;
}

/* Keeps why a rank has no answer for row r. Where several ranks have none, the lowest says why, but
 * a full reply does not hide a reason for which asking again is of no use. */
static void note_failure(const struct row_reply *row, int r, int rank, struct arena *arena,
                         struct target_answer *answer)
{
    static const struct error no_text = {ERR_INTERNAL,
                                         "a rank has no answer for the row, and there "
                                         "is no room for what it says"};
    int code = row->no_room ? ERR_EXHAUSTED : ERR_INTERNAL;
    const struct error *before = answer->failures[r];
    if (before && (before->code == ERR_INTERNAL || code == ERR_EXHAUSTED)) return;
    struct error *failure = arena_take(arena, 1, sizeof *failure);
    answer->failures[r] = failure ? failure : &no_text;
    if (!failure) return;
    error_set(failure, code, "rank %d has no answer for the row: %.400s", rank, row->error_text);
}

/* All ranks come to the same refusals; the texts of the first one are kept. */
static int take_refusals(const struct step_reply *reply, int rank, int n_lanes,
                         struct target_answer *answer, struct error *err)
{
    if (rank == 0) {
        answer->n_refused = reply->n_refused;
        answer->refused = reply->refused;
    }
    bool is_same = reply->n_refused == answer->n_refused;
    for (int i = 0; is_same && i < reply->n_refused; i++) {
        is_same =
            reply->refused[i].lane == answer->refused[i].lane && reply->refused[i].lane < n_lanes;
    }
    if (is_same) return 0;
    return error_set(err, ERR_FORMAT, "it refused other lanes than rank 0");
}

/* True if row r belongs to a lane that was left out; *next walks along the refusals. */
static bool is_left_out(const struct target_answer *answer, int r, int *next)
{
    int lane = answer->row_lanes[r];
    while (*next < answer->n_refused && answer->refused[*next].lane < lane) {
        (*next)++;
    }
    return *next < answer->n_refused && answer->refused[*next].lane == lane;
}

/* Puts a rank's slices in their places. Missing, doubled or foreign slices are an error. */
static int place_slices(const struct target *t, int rank, const struct step_reply *reply,
                        struct arena *arena, struct target_answer *answer, struct error *err)
{
    int n_local = answer->n_slices / t->n_ranks, n_taken = 0, next = 0;
    for (int r = 0; r < answer->n_rows; r++) {
        if (is_left_out(answer, r, &next)) continue;
        if (n_taken == reply->n_rows) {
            return error_set(err, ERR_FORMAT, "only %d rows came", reply->n_rows);
        }
        const struct row_reply *row = &reply->rows[n_taken++];
        if (row->error_text) {
            note_failure(row, r, rank, arena, answer);
            continue;
        }
        bool fits = row->n_slices == n_local;
        for (int s = 0; fits && s < n_local; s++) {
            fits = row->slices[s].slice == rank * n_local + s;
        }
        if (!fits) {
            return error_set(err, ERR_FORMAT, "row %d does not hold the slices of rank %d", r,
                             rank);
        }
        memcpy(&answer->slices[r * answer->n_slices + rank * n_local], row->slices,
               (size_t)n_local * sizeof *row->slices);
    }
    if (n_taken == reply->n_rows) return 0;
    return error_set(err, ERR_FORMAT, "%d rows came instead of %d", reply->n_rows, n_taken);
}

/* True if one of the elements is NaN or infinite. */
static bool has_no_number(const struct lane_features *features)
{
    bool has = false;
    for (int i = 0; i < features->n; i++) {
        has |= (features->data[i] & 0x7f80) == 0x7f80;
    }
    return has;
}

/* Gives each lane that wants features its own; all other ranks send none. Lanes that were left out
 * have none. Features that are not numbers are dropped, as if the rank had had none: what follows
 * from them would not be numbers either. */
static int place_features(const struct target *t, int rank, const struct step *step,
                          const struct step_reply *reply, struct target_answer *answer,
                          struct target_cost *cost, struct error *err)
{
    int n_taken = 0, next = 0, dim = t->links[0].description.dim;
    for (int i = 0; i < step->n_lanes && rank == 0 && !reply->feature_error; i++) {
        while (next < answer->n_refused && answer->refused[next].lane < i) {
            next++;
        }
        bool is_refused = next < answer->n_refused && answer->refused[next].lane == i;
        size_t bytes = features_bytes(&step->features, dim, step->lanes[i].n_features);
        if (is_refused || bytes == 0) continue;
        if (n_taken == reply->n_features ||
            (size_t)reply->features[n_taken].n * sizeof(uint16_t) != bytes) {
            return error_set(err, ERR_FORMAT, "the features of lane %d are not %zu bytes", i,
                             bytes);
        }
        struct lane_features features = reply->features[n_taken++];
        cost->feature_bytes += bytes;
        if (has_no_number(&features)) {
            answer->feature_error = "they are not numbers";
        } else {
            answer->features[i] = features;
        }
    }
    if (n_taken != reply->n_features) {
        return error_set(err, ERR_FORMAT, "features of %d lanes came, which nobody wants",
                         reply->n_features - n_taken);
    }
    if (rank == 0 && reply->feature_error) answer->feature_error = reply->feature_error;
    cost->feature_us += reply->feature_us;
    return 0;
}

static void note_times(const struct step_reply *reply, struct target_cost *slowest)
{
    int64_t compute = reply->compute_us, collective = reply->collective_us;
    if (compute + collective > slowest->compute_us + slowest->collective_us) {
        slowest->compute_us = compute;
        slowest->collective_us = collective;
    }
}

void target_set_look(struct target *t, target_look_fn *look, void *arg)
{
    t->look = look;
    t->look_arg = arg;
}

/* Between two waits for a step that has not been answered. Errors: the group is lost. */
static int look_around(struct target *t, int rank, struct error *err)
{
    struct step_watch *watch = &t->watch;
    step_watch_look(watch, clock_now_us());
    if (t->look && !t->look(t->look_arg, step_watch_is_overdue(watch))) {
        error_set(err, ERR_UNAVAILABLE, "nobody waits for its answer any more");
        return lose(t, rank, err);
    }
    if (!step_watch_is_over(watch)) return 0;
    error_set(err, ERR_UNAVAILABLE,
              "no answer for %lld ms, where steps like this one take much less",
              (long long)(watch->waited_us / 1000));
    return lose(t, rank, err);
}

/* Waits for one rank's reply. It looks at the other ranks meanwhile, because when one of them is
 * gone this one waits for it in a collective and will not answer. Errors: the group is lost. */
static int receive_reply(struct target *t, int rank, const uint8_t **data, size_t *len,
                         int64_t deadline_us, struct error *err)
{
    for (;;) {
        int64_t look_us = clock_now_us() + LOOK_US;
        bool is_last = look_us >= deadline_us;
        int rc = rpc_stream_receive(t->links[rank].stream, data, len,
                                    is_last ? deadline_us : look_us, err);
        if (!rc) return 0;
        if (rc != ERR_TIMEOUT) return lose(t, rank, err);
        struct error late = *err;
        rc = lose_broken(t, err);
        if (rc) return rc;
        *err = late;
        if (is_last) return lose(t, rank, err);
        rc = look_around(t, rank, err);
        if (rc) return rc;
    }
}

/* Receives all replies, also when one of them is an error, so that no stream keeps an old reply. */
static int gather(struct target *t, const struct step *step, struct arena *arena,
                  struct target_answer *answer, struct target_cost *slowest, struct error *err)
{
    int64_t deadline_us = clock_now_us() + (int64_t)t->step_timeout_s * 1000000;
    struct error refusal = {0};
    for (int i = 0; i < t->n_ranks; i++) {
        const uint8_t *data;
        size_t len;
        struct step_reply reply;
        int rc = receive_reply(t, i, &data, &len, deadline_us, err);
        if (rc) return rc;
        slowest->bytes_received += len;
        if (take_reply(t, i, step->n_lanes > 0, data, len, &reply, err)) return lose(t, i, err);
        if (reply.error_text) {
            error_set(&refusal, ERR_INTERNAL, "rank %d refused the step: %.400s", i,
                      reply.error_text);
        } else if (!refusal.code && (take_refusals(&reply, i, step->n_lanes, answer, err) ||
                                     place_slices(t, i, &reply, arena, answer, err) ||
                                     place_features(t, i, step, &reply, answer, slowest, err))) {
            return lose(t, i, err);
        }
        note_times(&reply, slowest);
    }
    if (refusal.code) *err = refusal;
    return refusal.code;
}

bool target_has_answered(struct target *t)
{
    bool all = true;
    rpc_client_poll(t->client);
    for (int i = 0; i < t->n_ranks; i++) {
        if (rpc_stream_is_over(t->links[i].stream)) return true;
        all = all && rpc_stream_has_message(t->links[i].stream);
    }
    return all;
}

/* The lane of each row; further values are of a step in the past, where nothing is refused. */
static void list_row_lanes(const struct step *step, int n_rows, int *lanes)
{
    int n = 0;
    for (int i = 0; i < step->n_lanes; i++) {
        for (int r = 0; r < step->lanes[i].n_rows; r++) {
            lanes[n++] = i;
        }
    }
    while (n < n_rows) {
        lanes[n++] = -1;
    }
}

static int answer_begin(const struct target *t, const struct step *step, struct arena *arena,
                        struct target_answer *answer, struct error *err)
{
    size_t n_rows = (size_t)count_rows(step);
    size_t n_slices = (size_t)t->links[0].description.n_slices;
    *answer = (struct target_answer){.n_rows = (int)n_rows, .n_slices = (int)n_slices};
    answer->slices = arena_take(arena, n_rows * n_slices, sizeof *answer->slices);
    answer->failures = arena_take(arena, n_rows, sizeof *answer->failures);
    int *lanes = arena_take(arena, n_rows, sizeof *lanes);
    if (!answer->slices || !answer->failures || !lanes) {
        return error_set(err, ERR_NO_MEMORY, "too many rows for one step");
    }
    list_row_lanes(step, (int)n_rows, lanes);
    answer->row_lanes = lanes;
    answer->features = arena_take(arena, (size_t)step->n_lanes, sizeof *answer->features);
    if (!answer->features) return error_set(err, ERR_NO_MEMORY, "too many lanes for one step");
    for (int i = 0; i < step->n_lanes; i++) {
        answer->features[i] = (struct lane_features){0};
    }
    for (size_t r = 0; r < n_rows; r++) {
        answer->failures[r] = NULL;
    }
    return 0;
}

int target_step_send(struct target *t, struct step *step, struct arena *arena,
                     struct target_answer *answer, struct target_cost *cost, struct error *err)
{
    int rc = 0;
    int64_t start_us = clock_now_us();
    if (!t->is_connected) {
        return error_set(err, ERR_UNAVAILABLE, "the target group is not connected");
    }
    TRY(answer_begin(t, step, arena, answer, err));
    if (step->n_lanes) arena_reset(&t->replies);
    arena_reset(&t->further);
    step->id = ++t->last_id;
    TRY(step_encode(&t->out, step, err));
    step_watch_begin(&t->watch, step, target_description(t), start_us);
    for (int i = 0; i < t->n_ranks; i++) {
        rc = rpc_stream_ask(t->links[i].stream, t->out.data, t->out.len,
                            start_us + (int64_t)t->step_timeout_s * 1000000, err);
        if (rc) return lose(t, i, err);
    }
    t->sent_us = start_us;
    cost->bytes_sent += t->out.len * (size_t)t->n_ranks;
out:
    return rc;
}

int target_step_receive(struct target *t, const struct step *step, struct arena *arena,
                        struct target_answer *answer, struct target_cost *cost, struct error *err)
{
    struct target_cost slowest = {0};
    int rc = gather(t, step, arena, answer, &slowest, err);
    if (!rc) step_watch_end(&t->watch, clock_now_us() - t->sent_us);
    cost->bytes_received += slowest.bytes_received;
    cost->compute_us += slowest.compute_us;
    cost->collective_us += slowest.collective_us;
    cost->feature_us += slowest.feature_us;
    cost->feature_bytes += slowest.feature_bytes;
    cost->total_us += clock_now_us() - t->sent_us;
    return rc;
}

int target_step(struct target *t, struct step *step, struct arena *arena,
                struct target_answer *answer, struct target_cost *cost, struct error *err)
{
    int rc = target_step_send(t, step, arena, answer, cost, err);
    return rc ? rc : target_step_receive(t, step, arena, answer, cost, err);
}
