/* ctest: libs=proto,rpc */
/* Many generations over one connection, for tests of what is generated.
 *   prog_generate ADDRESS describe   exits with 0 when the coordinator serves
 *   prog_generate ADDRESS [N]        reads lines, prints one line of JSON per generation
 * A line of the input is a list of KEY=VALUE without spaces inside: ids=1,2,3 max_tokens=N
 * temperature=X top_k=N top_p=X seed=N n_draft=N strategy=NAME threshold=X rule=NAME full_rows=0|1
 * ignore_eos=0|1 stop=WORD show_drafts=0|1, and repeat=N: N generations with the seeds seed,
 * seed + 1, ... Up to N requests are in flight, 32 if N is not given; answers are printed in the
 * order of the requests. With show_drafts=1 an answer lists each round: {"kept": how many guesses
 * stay, "next_p": p of the token after them, "drafter": who guessed, "guesses": [[id, place,
 * sibling, q, p], ...]}; p is -1 where it is not known. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/text/options.h"
#include "proto/generation_wire.h"
#include "rpc/client.h"

enum {
    PROMPT_IDS_MAX = 1024,
    RULE_BYTES = 32, /* of a stop string, too */
    LINE_BYTES = 16384,
    TOKENS_MAX = 4096,
    ARENA_BYTES = 4 << 20,
    REQUESTS_MAX = 32, /* in flight, so that texts are made in company */
    CALL_S = 120,
    BIASES_MAX = 32,
    BANS_MAX = 8,
    BAN_TOKENS_MAX = 8
};

/* One line of the input, parsed. */
struct line {
    struct generate_request request;
    int n_repeat;
    int32_t ids[PROMPT_IDS_MAX];
    char rule[RULE_BYTES], tree_rule[RULE_BYTES], stop[RULE_BYTES];
    const char *stops[1];
    struct token_bias biases[BIASES_MAX];
    struct token_ban bans[BANS_MAX];
    int32_t banned[BANS_MAX][BAN_TOKENS_MAX];
};

/* A request that was sent and whose answer is not complete. */
struct request {
    struct rpc_stream *stream;
    uint64_t seed;
};

/* The answer to one generation; a round is one message of tokens. */
struct answer {
    int n_ids, n_rounds;
    int32_t ids[TOKENS_MAX];
    int committed[TOKENS_MAX], accepted[TOKENS_MAX]; /* of each round */
    struct buffer shown;                             /* rounds, as JSON */
};

struct session {
    const char *address;
    struct rpc_client *client;
    struct arena arena;
    struct buffer buffer;
    struct request requests[REQUESTS_MAX]; /* the oldest first */
    int n_requests, n_most;                /* in flight */
    struct line line;
    struct answer answer;
};

/* ---- lines of the input ---- */

static int parse_flag(bool *flag, const char *key, const char *value, struct error *err)
{
    int number = 0;
    int rc = options_int(&number, key, value, 0, 1, err);
    *flag = number != 0;
    return rc;
}

/* bias_ids=ID,... with one bias=X for all of them, in this order; ban=ID,... once for each
 * sequence. *is_one: the key is one of these. */
static int parse_edit(struct line *line, const char *key, char *value, bool *is_one,
                      struct error *err)
{
    struct generate_request *r = &line->request;
    const struct options_range ids = {0, INT32_MAX};
    int32_t list[BIASES_MAX];
    int n, rc = 0;
    float bias;
    *is_one = true;
    if (strcmp(key, "repetition") == 0) {
        rc = options_float(&r->repetition_penalty, key, value, 0, 100, err);
    } else if (strcmp(key, "presence") == 0) {
        rc = options_float(&r->presence_penalty, key, value, -100, 100, err);
    } else if (strcmp(key, "frequency") == 0) {
        rc = options_float(&r->frequency_penalty, key, value, -100, 100, err);
    } else if (strcmp(key, "bias_ids") == 0) {
        TRY(options_int_list(list, &n, BIASES_MAX, key, value, ids, err));
        r->biases = line->biases;
        r->n_biases = n;
        for (int i = 0; i < n; i++) {
            line->biases[i] = (struct token_bias){list[i], 0};
        }
    } else if (strcmp(key, "bias") == 0) {
        TRY(options_float(&bias, key, value, -100, 100, err));
        for (int i = 0; i < r->n_biases; i++) {
            line->biases[i].bias = bias;
        }
    } else if (strcmp(key, "ban") == 0 && r->n_bans < BANS_MAX) {
        int32_t *ban = line->banned[r->n_bans];
        TRY(options_int_list(ban, &n, BAN_TOKENS_MAX, key, value, ids, err));
        r->bans = line->bans;
        line->bans[r->n_bans++] = (struct token_ban){n, ban};
    } else {
        *is_one = false;
    }
out:
    return rc;
}

static int parse_field(struct line *line, const char *key, char *value, struct error *err)
{
    struct generate_request *r = &line->request;
    bool is_edit;
    int rc = parse_edit(line, key, value, &is_edit, err);
    if (rc || is_edit) return rc;
    if (strcmp(key, "ids") == 0) {
        r->prompt_ids = line->ids;
        return options_int_list(line->ids, &r->n_prompt_ids, PROMPT_IDS_MAX, key, value,
                                (struct options_range){0, INT32_MAX}, err);
    }
    if (strcmp(key, "max_tokens") == 0) {
        return options_int(&r->max_tokens, key, value, 1, TOKENS_MAX, err);
    }
    if (strcmp(key, "top_k") == 0) {
        return options_int(&r->sampling.top_k, key, value, 0, INT32_MAX, err);
    }
    if (strcmp(key, "n_draft") == 0) {
        return options_int(&r->n_draft, key, value, 0, DRAFT_MAX, err);
    }
    if (strcmp(key, "repeat") == 0) {
        return options_int(&line->n_repeat, key, value, 1, INT32_MAX, err);
    }
    if (strcmp(key, "full_rows") == 0) return parse_flag(&r->full_rows, key, value, err);
    if (strcmp(key, "show_drafts") == 0) return parse_flag(&r->show_drafts, key, value, err);
    if (strcmp(key, "ignore_eos") == 0) return parse_flag(&r->ignore_eos, key, value, err);
    if (strcmp(key, "temperature") == 0) {
        return options_float(&r->sampling.temperature, key, value, 0, SAMPLING_TEMPERATURE_MAX,
                             err);
    }
    if (strcmp(key, "top_p") == 0) return options_float(&r->sampling.top_p, key, value, 0, 1, err);
    if (strcmp(key, "seed") == 0) {
        r->has_seed = true;
        return options_u64(&r->seed, key, value, err);
    }
    if (strcmp(key, "strategy") == 0) {
        int word = 0;
        rc = options_word(&word, key, value, strategy_names, N_STRATEGIES, err);
        r->strategy = (enum strategy)word;
        return rc;
    }
    if (strcmp(key, "threshold") == 0) {
        r->has_threshold = true;
        return options_float(&r->threshold, key, value, 0, 1, err);
    }
    if (strcmp(key, "rule") == 0) {
        snprintf(line->rule, sizeof line->rule, "%s", value);
        return 0;
    }
    if (strcmp(key, "stop") == 0) {
        snprintf(line->stop, sizeof line->stop, "%s", value);
        line->stops[0] = line->stop;
        r->stop = line->stops;
        r->n_stop = 1;
        return 0;
    }
    if (strcmp(key, "tree_rule") == 0) {
        snprintf(line->tree_rule, sizeof line->tree_rule, "%s", value);
        return 0;
    }
    return error_set(err, ERR_ARGUMENT, "no such field of a line: %s", key);
}

static int parse_line(struct line *line, char *text, struct error *err)
{
    char *rest = NULL;
    *line = (struct line){.n_repeat = 1};
    generate_request_init(&line->request);
    line->request.rule = line->rule;
    line->request.tree_rule = line->tree_rule;
    for (char *item = strtok_r(text, " \n", &rest); item; item = strtok_r(NULL, " \n", &rest)) {
        char *value = strchr(item, '=');
        if (!value) return error_set(err, ERR_ARGUMENT, "%s: expected KEY=VALUE", item);
        *value++ = 0;
        int rc = parse_field(line, item, value, err);
        if (rc) return rc;
    }
    return 0;
}

/* ---- answers of the coordinator ---- */

static int add_text(struct buffer *buffer, const char *text, struct error *err)
{
    return buffer_append(buffer, text, strlen(text), err);
}

static int add_round(struct answer *answer, const struct generate_round *round, struct error *err)
{
    char text[128];
    int rc = 0;
    snprintf(text, sizeof text, "%s{\"kept\":%d,\"next_p\":%.9g,\"drafter\":\"%s\",\"guesses\":[",
             answer->n_rounds ? "," : "", round->n_kept, (double)round->next_p, round->drafter);
    TRY(add_text(&answer->shown, text, err));
    for (int i = 0; i < round->n_guesses; i++) {
        const struct generate_guess *guess = &round->guesses[i];
        snprintf(text, sizeof text, "%s[%d,%d,%d,%.9g,%.9g]", i ? "," : "", guess->id, guess->place,
                 guess->sibling, (double)guess->q, (double)guess->p);
        TRY(add_text(&answer->shown, text, err));
    }
    TRY(add_text(&answer->shown, "]}", err));
out:
    return rc;
}

static int add_tokens(struct answer *answer, const struct generate_tokens *tokens,
                      struct error *err)
{
    int n_accepted = 0;
    if (answer->n_ids + tokens->n > TOKENS_MAX || answer->n_rounds == TOKENS_MAX) {
        return error_set(err, ERR_FORMAT, "more tokens than were asked for");
    }
    int rc = tokens->round ? add_round(answer, tokens->round, err) : 0;
    if (rc) return rc;
    for (int i = 0; i < tokens->n; i++) {
        answer->ids[answer->n_ids++] = tokens->ids[i];
        n_accepted += tokens->origins[i] == TOKEN_ACCEPTED ? 1 : 0;
    }
    answer->committed[answer->n_rounds] = tokens->n;
    answer->accepted[answer->n_rounds++] = n_accepted;
    return 0;
}

static void print_list(const char *name, const int *values, int n)
{
    printf("\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        printf("%s%d", i ? "," : "", values[i]);
    }
    printf("],");
}

static void print_generation(const struct answer *answer, const struct generate_summary *summary)
{
    const struct generate_counters *c = &summary->counters;
    printf("{\"seed\":%" PRIu64 ",\"rule\":\"%s\",\"finish\":\"%s\",\"speculation_off\":\"%s\",",
           summary->seed, summary->rule, summary->finish_reason, summary->speculation_off);
    print_list("ids", answer->ids, answer->n_ids);
    print_list("committed", answer->committed, answer->n_rounds);
    print_list("accepted_in_round", answer->accepted, answer->n_rounds);
    printf("\"shown\":[%.*s],", (int)answer->shown.len,
           answer->shown.data ? (const char *)answer->shown.data : "");
    printf("\"strategy\":\"%s\",", strategy_names[summary->strategy]);
    printf("\"completion_tokens\":%d,\"rounds\":%" PRIu32 ",\"drafted\":%" PRIu32
           ",\"found\":%" PRIu32 ",\"found_accepted\":%" PRIu32 ",\"accepted\":%" PRIu32
           ",\"rejections\":%" PRIu32 ",\"rows\":%" PRIu64 ",\"more_rows\":%" PRIu64
           ",\"bytes_sent\":%" PRIu64 ",\"bytes_received\":%" PRIu64 ",\"preemptions\":%" PRIu32
           ",\"siblings\":%" PRIu32 ",\"siblings_accepted\":%" PRIu32 ",\"staged\":%" PRIu32
           ",\"appended\":%" PRIu32 ",\"appended_accepted\":%" PRIu32 "}\n",
           summary->completion_tokens, c->rounds, c->drafted, c->found, c->found_accepted,
           c->accepted, c->rejections, c->rows, c->more_rows, c->bytes_sent, c->bytes_received,
           c->preemptions, c->siblings, c->siblings_accepted, c->staged, c->appended,
           c->appended_accepted);
}

static int receive_message(struct session *s, bool *is_last, int64_t deadline_us, struct error *err)
{
    const uint8_t *data;
    size_t len;
    struct generate_reply reply;
    int rc = 0;
    TRY(rpc_stream_receive(s->requests[0].stream, &data, &len, deadline_us, err));
    arena_reset(&s->arena);
    TRY(generate_reply_decode(data, len, &s->arena, &reply, err));
    if (reply.tokens) TRY(add_tokens(&s->answer, reply.tokens, err));
    if (reply.summary) print_generation(&s->answer, reply.summary);
    *is_last = reply.summary != NULL;
out:
    return rc;
}

/* Receives the rest of the oldest request: tokens, the summary, the end of the stream. */
static int receive_oldest(struct session *s, struct error *err)
{
    struct request request = s->requests[0];
    int64_t deadline_us = clock_now_us() + CALL_S * INT64_C(1000000);
    bool is_last = false, is_more = false;
    int rc = 0;
    s->answer.n_ids = s->answer.n_rounds = 0;
    s->answer.shown.len = 0;
    while (!is_last) {
        TRY(receive_message(s, &is_last, deadline_us, err));
    }
    rc = receive_message(s, &is_more, deadline_us, err);
    if (rc == ERR_CLOSED) {
        rc = 0;
    } else if (!rc) {
        rc = error_set(err, ERR_FORMAT, "a message after the summary");
    }
out:
    if (rc) error_wrap(err, "seed %" PRIu64, request.seed);
    rpc_stream_close(request.stream);
    s->n_requests--;
    memmove(s->requests, s->requests + 1, (size_t)s->n_requests * sizeof *s->requests);
    return rc;
}

static int send_request(struct session *s, struct error *err)
{
    struct request *request = &s->requests[s->n_requests];
    int64_t deadline_us = clock_now_us() + CALL_S * INT64_C(1000000);
    int rc = 0;
    TRY(generate_request_encode(&s->buffer, &s->line.request, err));
    TRY(rpc_stream_open(&request->stream, s->client, s->address,
                        "/outrider.generation.v1.Generation/Generate", false, deadline_us, err));
    request->seed = s->line.request.seed;
    s->n_requests++;
    TRY(rpc_stream_send(request->stream, s->buffer.data, s->buffer.len, deadline_us, err));
    TRY(rpc_stream_half_close(request->stream, err));
out:
    return rc;
}

static int send_lines(struct session *s, struct error *err)
{
    static char text[LINE_BYTES];
    int rc = 0;
    while (fgets(text, sizeof text, stdin)) {
        TRY(parse_line(&s->line, text, err));
        for (int i = 0; i < s->line.n_repeat; i++, s->line.request.seed++) {
            if (s->n_requests == s->n_most) TRY(receive_oldest(s, err));
            TRY(send_request(s, err));
        }
    }
    while (s->n_requests > 0) {
        TRY(receive_oldest(s, err));
    }
out:
    return rc;
}

static int describe(struct session *s, struct error *err)
{
    struct service_description desc;
    int rc = 0;
    const struct rpc_request request = {.address = s->address,
                                        .path = "/outrider.generation.v1.Generation/Describe",
                                        .deadline_us = clock_now_us() + 2000000};
    TRY(rpc_client_call(s->client, &request, &s->buffer, err));
    TRY(service_description_decode(s->buffer.data, s->buffer.len, &s->arena, &desc, err));
    printf("%s\n", desc.state);
    if (strcmp(desc.state, "serving") != 0) rc = error_set(err, ERR_UNAVAILABLE, "%s", desc.state);
out:
    return rc;
}

int main(int argc, char **argv)
{
    static struct session session;
    struct error err;
    int rc = 0;
    if (argc < 2) {
        fprintf(stderr, "usage: prog_generate ADDRESS [describe|IN_FLIGHT] <LINES\n");
        return 2;
    }
    session.address = argv[1];
    TRY(arena_open(&session.arena, ARENA_BYTES, &err));
    TRY(rpc_client_open(&session.client, NULL, &err));
    if (argc > 2 && strcmp(argv[2], "describe") == 0) {
        TRY(describe(&session, &err));
    } else {
        session.n_most = REQUESTS_MAX;
        if (argc > 2) {
            TRY(options_int(&session.n_most, "IN_FLIGHT", argv[2], 1, REQUESTS_MAX, &err));
        }
        TRY(send_lines(&session, &err));
    }
out:
    if (rc) fprintf(stderr, "%s\n", err.text);
    for (int i = 0; i < session.n_requests; i++) {
        rpc_stream_close(session.requests[i].stream);
    }
    rpc_client_close(session.client);
    buffer_free(&session.buffer);
    buffer_free(&session.answer.shown);
    arena_close(&session.arena);
    return rc ? 1 : 0;
}
