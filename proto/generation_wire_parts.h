/* Parts of the messages of generation.proto that several messages have. For files of proto/ only.
 * The make functions return NULL when scratch is full; the others return 0, ERR_FORMAT with the
 * field's name and value, or ERR_NO_MEMORY. */
#pragma once

#include "proto/generation.pb-c.h"
#include "proto/generation_wire.h"

Outrider__Generation__V1__TokenIds *token_ids_make(struct arena *scratch, const int32_t *ids,
                                                   int n);
/* At least one id and at most GENERATE_PROMPT_IDS_MAX. */
int token_ids_decode(const Outrider__Generation__V1__TokenIds *msg, const int32_t **ids, int *n,
                     const char *field, struct error *err);

/* A request within another message. request_check is the encoder's: ERR_ARGUMENT text that is not
 * UTF-8. */
int request_check(const struct generate_request *req, struct error *err);
Outrider__Generation__V1__GenerateRequest *request_make(struct arena *scratch,
                                                        const struct generate_request *req);
int request_read(const Outrider__Generation__V1__GenerateRequest *msg, struct arena *arena,
                 struct generate_request *req, struct error *err);

/* The fields of a request that say which tokens may come: penalties, biases, bans, the earliest
 * end. */
bool edits_make(Outrider__Generation__V1__GenerateRequest *out, struct arena *scratch,
                const struct generate_request *req);
int edits_decode(const Outrider__Generation__V1__GenerateRequest *msg, struct arena *arena,
                 struct generate_request *req, struct error *err);

/* The messages of a request, of which there is at least one. */
Outrider__Generation__V1__Conversation *conversation_make(struct arena *scratch,
                                                          const struct generate_request *req);
int conversation_decode(const Outrider__Generation__V1__Conversation *msg, struct arena *arena,
                        struct generate_request *req, struct error *err);

/* Checks that min <= value <= max, and that it is not NaN. */
int range_check(float value, float min, float max, bool is_min_open, const char *field,
                struct error *err);

/* The encoders' check. Errors: ERR_ARGUMENT text that is not UTF-8. */
int text_check(const char *text, size_t len, const char *field, struct error *err);

/* Printable ASCII of at most max bytes, because it appears in logs. */
int word_check(const char *word, size_t max, const char *field, struct error *err);
int word_decode(const char **out, const char *text, size_t max, const char *field,
                struct error *err);

Outrider__Generation__V1__Alternative **
alternatives_make(struct arena *scratch, const struct token_alternative *top, int n);
int alternatives_decode(Outrider__Generation__V1__Alternative *const *msg, size_t n_msg,
                        struct arena *arena, const struct token_alternative **top, int *n,
                        struct error *err);
/* Checks a token's log-probability, which is a number or -inf, for a token that cannot occur. */
int logprob_check(float logprob, struct error *err);

Outrider__Generation__V1__ScoreReply *scores_make(struct arena *scratch,
                                                  const struct score_reply *reply);
int scores_decode(const Outrider__Generation__V1__ScoreReply *msg, struct arena *arena,
                  struct score_reply *reply, struct error *err);

Outrider__Generation__V1__Summary *summary_make(struct arena *scratch,
                                                const struct generate_summary *summary);
int summary_decode(const Outrider__Generation__V1__Summary *msg, struct generate_summary *summary,
                   struct error *err);

Outrider__Generation__V1__Round *round_make(struct arena *scratch,
                                            const struct generate_round *round);
int round_decode(const Outrider__Generation__V1__Round *msg, struct arena *arena,
                 const struct generate_round **round, struct error *err);

Outrider__Generation__V1__Load *load_make(struct arena *scratch, const struct service_load *load);
/* msg may be NULL: an older coordinator does not say. */
int load_decode(const Outrider__Generation__V1__Load *msg, struct service_load *load,
                struct error *err);

/* An end that a message names; END_NONE is refused. */
int job_end_decode(enum job_end *end, int value, struct error *err);
int job_state_decode(enum job_state *state, int value, struct error *err);
