/* The messages of generation.proto as plain structs, and their codecs. Decoders check that strings
 * are UTF-8 and that numbers are finite and in range. Strings of decoded messages are in the
 * arena. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "base/memory.h"
#include "base/text/buffer.h"
#include "model/logits/feature_wish.h"
#include "model/logits/sampling.h"
#include "proto/job_end.h"
#include "speculation/theory/strategy.h"

enum {
    GENERATE_STOPS_MAX = 16,
    GENERATE_PROMPT_BYTES_MAX = 16 << 20,
    GENERATE_PROMPT_IDS_MAX = 4 << 20,
    GENERATE_SEQUENCES_MAX = 64, /* n */
    GENERATE_PENALTY_MAX = 2,    /* for presence and frequency; the least is -2 */
    GENERATE_BIAS_MAX = 100,     /* the least is -100 */
    GENERATE_BIASES_MAX = 1024,
    GENERATE_BANS_MAX = 256,      /* banned sequences */
    GENERATE_BAN_TOKENS_MAX = 32, /* of one of them */
    GENERATE_STOP_IDS_MAX = 64,
    SCORE_TOP_MAX = 64,
    GENERATE_MESSAGES_MAX = 4096,
    GENERATE_WORD_BYTES_MAX = 128, /* of a request's id and of its client's name */
    GENERATE_OPEN = -1             /* a number of sampling that a request leaves to the model */
};

/* Added to the logit of one token. */
struct token_bias {
    int32_t id;
    float bias;
};

/* A sequence of tokens that must not appear. */
struct token_ban {
    int n;
    const int32_t *ids;
};

/* How soon a request is served when others wait, too; a higher class has a larger share. */
enum job_class { JOB_CLASS_NORMAL, JOB_CLASS_HIGH, JOB_CLASS_LOW, JOB_CLASSES };

/* Part of a conversation. */
struct chat_message {
    const char *role, *content;
    size_t content_len;
};

/* Text; or messages, which are written as the chat template says; or ids when there are neither. */
struct generate_request {
    const char *prompt;
    size_t prompt_len;
    const int32_t *prompt_ids;
    int n_prompt_ids;
    const struct chat_message *messages;
    int n_messages;
    int max_tokens;                  /* 0 = default */
    struct sampling_params sampling; /* GENERATE_OPEN where it says nothing */
    bool has_seed;
    uint64_t seed;
    int n_draft; /* K of STRATEGY_FIXED, the maximum of others; -1 = default */
    enum strategy strategy;
    bool has_threshold;
    float threshold;       /* of STRATEGY_THRESHOLD, 0..1 */
    const char *rule;      /* "" = chosen by temperature and seed */
    const char *tree_rule; /* what judges independent chains; "" = default */
    bool full_rows, show_drafts, ignore_eos;
    int n_stop;
    const char *const *stop;
    const char *request_id;

    int n;          /* sequences, each with a text of its own; 1 = default */
    int logprobs;   /* alternatives per token, 0..SCORE_TOP_MAX; -1 = no logprobs at all */
    bool echo;      /* the prompt's tokens come first, with their logprobs if wanted */
    int min_tokens; /* no end of sequence and no stop token before so many */
    /* 1 = off; the divisor of positive logits, Keskar et al. 2019. GENERATE_OPEN, too. */
    float repetition_penalty;
    float presence_penalty, frequency_penalty; /* 0 = off; OpenAI's, over the answer's tokens */
    int n_biases;
    const struct token_bias *biases;
    int n_bans;
    const struct token_ban *bans;
    int n_stop_ids; /* tokens that end the text as an end of sequence does */
    const int32_t *stop_ids;
    enum job_class job_class;
    const char *client;  /* whose share it takes; "" = everybody who gives no name */
    uint32_t timeout_ms; /* after its arrival; 0 = none */
    /* BOS and the like are not added to a prompt that is a text; texts of special tokens in it are
     * plain text. The answer's text has special tokens. */
    bool adds_no_special, parses_no_special, shows_special;
    /* A text that the answer is expected to be like; NULL or no bytes: there is none. */
    const char *prediction;
    size_t prediction_len;
};

/* How a model is sampled where a request does not say; GENERATE_OPEN, as in requests. */
struct sampling_defaults {
    struct sampling_params sampling;
    float repetition_penalty;
};

enum token_origin { TOKEN_PLAIN, TOKEN_ACCEPTED, TOKEN_REPLACEMENT, TOKEN_BONUS };

/* A token that the target could have chosen, and its log-probability: of the target as it is, at
 * temperature 1 and before any penalty, bias or ban. */
struct token_alternative {
    int32_t id;
    const char *text; /* U+FFFD in place of bytes that are not UTF-8 */
    float logprob;
};

struct token_logprob {
    float logprob; /* of the token itself */
    int n_top;
    const struct token_alternative *top; /* best first */
};

/* The `sibling` of a guess of a round's second chain, of the first guess after a sibling, and the
 * largest one. */
enum {
    GENERATE_BRANCH = SIBLINGS_MAX + 1,
    GENERATE_GROWN,
    GENERATE_SIBLING_MOST = GENERATE_GROWN + SIBLINGS_MAX
};

/* A guess and what is known of it. */
struct generate_guess {
    int32_t id;
    const char *text; /* U+FFFD in place of bytes that are not UTF-8 */
    float q, p;  /* of the draft and the target, as they were compared; p -1 = not known, as after
                   the first guess that did not stay */
    int place;   /* 0 .. DRAFT_MAX - 1: of the round's ids the one that it is a guess for */
    int sibling; /* 0 = the guess that the chain goes on from; 1 .. SIBLINGS_MAX = its siblings, in
                    the order in which they are tried; GENERATE_BRANCH = of a second chain;
                    from GENERATE_GROWN on: after a sibling, and the siblings of such a guess */
    bool is_untried; /* a guess before it did not stay */
};

/* The guesses of a round for a sequence, and how long its parts took. */
struct generate_round {
    int n_guesses;                        /* 0 .. TREE_NODES_MAX */
    const struct generate_guess *guesses; /* those that stayed first, in order; then by place
                                             and sibling */
    const char *drafter;                  /* who made them; "" = there are none */
    int n_kept;                           /* so many of the round's ids are guesses that stayed */
    float next_p;                         /* p of the id after them; -1 = not known */
    uint32_t draft_us, verify_us, collective_us, wire_us;
    uint32_t total_us;   /* from the round's beginning to the message */
    int n_lanes, n_rows; /* of the step: sequences that shared it, tokens of all of them */
};

struct generate_tokens {
    int index; /* 0 .. n - 1 of the request's sequences */
    int n;
    const int32_t *ids;
    const enum token_origin *origins;
    const uint32_t *text_ends; /* [n] bytes of text that are complete after each id */
    const char *text;
    size_t text_len;
    int32_t rejected_id; /* -1 = none */
    const char *rejected_text;
    const struct token_logprob *logprobs; /* [n]; NULL = not asked for */
    const struct generate_round *round;   /* NULL = not asked for */
};

struct generate_counters {
    uint32_t rounds, drafted, accepted, rejections, first_round_tokens;
    uint32_t found, found_accepted;       /* of drafted and accepted: looked up, not computed */
    uint32_t siblings, siblings_accepted; /* guesses for a place besides the first; in none else */
    uint32_t staged;                      /* of drafted: took no pass of the draft of their own */
    uint32_t appended, appended_accepted; /* of found: after guesses of a model */
    uint32_t predicted, predicted_accepted; /* from the request's prediction, of chain or branch */
    uint32_t overhead_p50_us, overhead_p99_us;
    uint32_t drafted_at[DRAFT_MAX], tested_at[DRAFT_MAX], accepted_at[DRAFT_MAX];
    uint64_t prompt_us, total_us, queue_us, rounds_us;
    uint64_t draft_us, verify_us, collective_us, wire_us, accept_us;
    uint64_t bytes_sent, bytes_received, rows, more_rows;
    uint32_t target_reused, draft_reused; /* prompt tokens whose KV was there already */
    uint32_t preemptions;                 /* times that it lost its KV to others and was replayed */
    uint64_t lanes, step_tokens;          /* of the steps that it had a share of, all sequences' */
    uint64_t expected_us, planned_us;     /* rounds that were planned: as predicted, as they were */
};

struct generate_summary {
    int index;
    const char *finish_reason, *stop_match, *rule, *speculation_off, *request_id, *arithmetic;
    enum strategy strategy;     /* that was used; STRATEGY_DEFAULT: unknown */
    float threshold;            /* of STRATEGY_THRESHOLD */
    struct estimates estimates; /* alpha of this request, times of all requests */
    int prompt_tokens, completion_tokens, n_draft;
    uint64_t seed;
    const int32_t *prompt_ids; /* [prompt_tokens] */
    struct generate_counters counters;
};

/* Exactly one of the three is set. */
struct generate_reply {
    const struct generate_tokens *tokens;
    const struct generate_summary *summary;
    const struct score_reply *echo; /* tokens of the prompt, in order */
};

struct score_request {
    const char *text; /* or ids when NULL */
    size_t text_len;
    const int32_t *ids;
    int n_ids;
    int top_n;
    bool adds_no_special, parses_no_special; /* as of struct generate_request */
    struct feature_wish features;            /* of at most FEATURE_WISH_MAX boundaries */
};

struct score_token {
    int32_t id;
    const char *text; /* U+FFFD in place of bytes that are not UTF-8 */
    bool has_logprob;
    float logprob;
    int n_top;
    const struct token_alternative *top;
};

/* The features of tokens first .. + n of the text: [n][n_columns][dim] bf16. */
struct score_features {
    int first, n, n_columns, dim;
    const uint16_t *rows;
};

struct score_reply {
    int n;
    const struct score_token *tokens;
    struct score_features features; /* n = 0: none */
};

struct kv_blocks {
    int in_use, free, cached; /* cached ones are free to be taken, and keep a prefix until then */
};

/* How busy the service is, and what it has done since it started. */
struct service_load {
    int sequences_max, running, waiting; /* sequences; waiting: without a place */
    struct kv_blocks target_kv, draft_kv;
    uint64_t prompt_tokens_reused, prompt_tokens_computed; /* by the target */
    uint64_t preemptions, uptime_us;
    uint64_t draft_prompt_tokens_reused; /* by the draft */
    uint64_t steps;                      /* of the target */
    uint64_t ends[JOB_ENDS];
};

/* A target group of a coordinator. */
struct service_group {
    const char *state, *kernels;
    int n_addresses; /* one for each rank; 0 = it is lost */
    const char *const *addresses;
    int running, waiting, places; /* sequences */
    bool is_measured;             /* no calibration is left to do */
};

struct service_description {
    const char *version, *target_model, *target_architecture, *arithmetic, *draft_model, *state;
    const char *draft_kind; /* of a head, such as "EAGLE-3"; "" or NULL = the draft is none */
    int n_ranks, n_slices, vocab_size, context_limit, default_n_draft, draft_support;
    int n_kv_blocks, queue_capacity;
    enum strategy default_strategy;
    struct estimates estimates;
    uint64_t model_fingerprint, tokenizer_fingerprint;
    int n_addresses;
    const char *const *addresses;
    int n_kernels; /* of ranks 0, 1, ... */
    const char *const *kernels;
    const char *draft_kernels;
    struct service_load load;
    int n_groups;
    const struct service_group *groups;
    struct time_tables times;
    bool has_chat; /* there is a chat template */
};

/* Encoders replace buf's content. A request whose text is not UTF-8 is refused; replies are sent
 * with '?' in place of bytes that are not UTF-8.
 * Errors: ERR_NO_MEMORY, ERR_ARGUMENT. Decoders take nothing over. Fields that a request leaves out
 * are as generate_request_init has them.
 * Errors: ERR_FORMAT with the field's name and value, ERR_NO_MEMORY the arena is full. */
/* A request that says nothing: sampling is open, no seed, n_draft -1, no rule. */
void generate_request_init(struct generate_request *req);
/* Fills in what is open: from the defaults, and where these are open or NULL with temperature 1,
 * top_p 1 and nothing else. */
void generate_request_settle(struct generate_request *req,
                             const struct sampling_defaults *defaults);
/* Copies what a request points to, but for its prompt and its prediction, into an arena that this
 * opens at the size that it needs: the copy has neither, and the request may be forgotten.
 * Errors: ERR_NO_MEMORY. */
int generate_request_keep(struct generate_request *kept, struct arena *arena,
                          const struct generate_request *req, struct error *err);
/* In the order of ids, because that of a map's entries says nothing: equal requests are equal
 * then. */
void token_biases_sort(struct token_bias *biases, int n);
/* Checks everything but the range of each number: lengths of texts, words that a log can show,
 * min_tokens within max_tokens, no bias twice (they are sorted). Decoding checks it, too; the
 * prompt and the prediction are not looked at.
 * Errors: ERR_FORMAT with the field's name and value. */
int generate_request_check(const struct generate_request *req, struct error *err);
int generate_request_encode(struct buffer *buf, const struct generate_request *req,
                            struct error *err);
int generate_request_decode(const uint8_t *data, size_t len, struct arena *arena,
                            struct generate_request *req, struct error *err);
int generate_reply_encode(struct buffer *buf, const struct generate_reply *reply,
                          struct error *err);
int generate_reply_decode(const uint8_t *data, size_t len, struct arena *arena,
                          struct generate_reply *reply, struct error *err);
int score_request_encode(struct buffer *buf, const struct score_request *req, struct error *err);
int score_request_decode(const uint8_t *data, size_t len, struct arena *arena,
                         struct score_request *req, struct error *err);
int score_reply_encode(struct buffer *buf, const struct score_reply *reply, struct error *err);
int score_reply_decode(const uint8_t *data, size_t len, struct arena *arena,
                       struct score_reply *reply, struct error *err);
int service_description_encode(struct buffer *buf, const struct service_description *desc,
                               struct error *err);
int service_description_decode(const uint8_t *data, size_t len, struct arena *arena,
                               struct service_description *desc, struct error *err);
