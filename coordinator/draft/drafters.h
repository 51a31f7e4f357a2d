/* All drafters of an engine: its draft models, and what finds guesses in texts. For each sequence
 * and round the planner says which of them guesses; for sequences with a K of their own it is the
 * last model, in every round, whatever company they have. Owned by the engine thread. */
#pragma once

#include "coordinator/draft/lookup.h"

struct drafters {
    /* Lent, by their `model`. One of them may read features of the target. */
    int n_models;
    struct drafter *models[PLANNER_MODELS]; /* [n_models] */
    int n_finders;
    struct drafter *finders[PLANNER_FINDERS]; /* [n_finders] by struct planner_offer's `finder` */
};

enum { STORE_TOKENS_DEFAULT = 1 << 20 };

/* Checks what --lookup says: "none", or names with commas between them. Errors: ERR_ARGUMENT there
 * is no such name; the text lists them. */
int drafters_check(const char *lookup, struct error *err);

struct lookup_options {
    const char *lookup;     /* a list that drafters_check has passed */
    int n_sequences;        /* slots */
    int store_tokens;       /* room of "store" */
    bool reads_predictions; /* there is a finder for them, too */
    const char *look_ahead; /* folder of look-ahead embeddings to guess by; NULL = none */
    bool is_shared;         /* what texts of one API key have taught may be used for all */
    const struct tokenizer *tok;
};

/* Opens finders. model: the first one, lent; NULL = none. Errors: ERR_NO_MEMORY; of a datastore
 * those of datastore_open, and ERR_ARGUMENT it is for another tokenizer; of look-ahead embeddings
 * those of look_ahead_open. */
int drafters_open(struct drafters *drafters, struct drafter *model,
                  const struct lookup_options *options, struct error *err);
/* Closes the finders. */
void drafters_close(struct drafters *drafters);

/* One more model, which is lent and comes after the others; and the last one goes again. No
 * sequence has a place. */
void drafters_add_model(struct drafters *drafters, struct drafter *model);
void drafters_remove_model(struct drafters *drafters);

/* True if the model may guess for the sequence: any model for planned ones, and for others the last
 * one. */
bool drafters_may_guess(const struct drafters *drafters, const struct sequence *seq, int model);
/* The model guesses no more for the sequence. Where no other one may, `why` is what is said of
 * it. */
void drafters_lose(const struct drafters *drafters, struct sequence *seq, int model,
                   const char *why);

/* The model that reads features of the target; NULL: there is none. */
struct drafter *drafters_reader(const struct drafters *drafters);
/* The target's features that it wants of a sequence's tokens; NULL: none. */
const struct feature_wish *drafters_features(const struct drafters *drafters,
                                             const struct sequence *seq);

/* Errors: ERR_UNSUPPORTED a draft model reads features that a target of so many layers and this
 * width does not have. */
int drafters_check_target(const struct drafters *drafters, int n_layers, int dim,
                          struct error *err);

/* True if anything can guess for a request that predicts nothing, and if anything is looked up for
 * it. */
bool drafters_any(const struct drafters *drafters);
bool drafters_look_up(const struct drafters *drafters);

/* Why a sequence whose K is its own has no guesses if there is no such drafter. */
#define DRAFTERS_OWN_K_NEEDS "a K of its own needs a draft model or --lookup " LOOKUP_DEFAULT

/* The drafter of sequences whose K is their own: the last model, otherwise a finder that depends on
 * nothing but their text, or on the look-ahead tokens that every round has for them; NULL: none. */
struct drafter *drafters_first(const struct drafters *drafters);

/* True if the sequence's request brings something that a finder looks in, and that may be looked in
 * for it. */
bool drafters_is_brought(const struct drafters *drafters, const struct sequence *seq);

/* The finder that guesses from what the sequence's request brings, where it has guesses, and *offer
 * is what it offers; NULL: there are none, and *offer may be anything. */
struct drafter *drafters_brought(const struct drafters *drafters, const struct sequence *seq,
                                 struct planner_offer *offer);

/* True if the text that the finder looks in may be used for the sequence. */
bool drafters_may_look(const struct drafter *finder, const struct sequence *seq);

void drafters_set_vocabulary(struct drafters *drafters, int n_vocab);
/* As set_projection of struct model_draft_extra_ops, where there is such a draft model. */
void drafters_set_projection(struct drafters *drafters, const struct projection_key *held);

/* The round is over, as in struct model_draft_ops. */
void drafters_commit(struct drafters *drafters, struct sequence *seq);

/* The sequence's text is complete: finders that learn from texts do. */
void drafters_observe_text(struct drafters *drafters, const struct sequence *seq);

/* True if a finder learns from rows; then the rows of a round, as in struct lookup_ops. */
bool drafters_observes(const struct drafters *drafters);
void drafters_observe_rows(struct drafters *drafters, const struct sequence *seq,
                           const struct draft_rows *rows);

/* Errors: ERR_UNSUPPORTED a finder guesses by other look-ahead embeddings than the target's
 * workers hold. */
int drafters_check_look_ahead(const struct drafters *drafters, const struct look_ahead_key *held,
                              struct error *err);

/* The finder that guesses by look-ahead tokens; NULL: there is none. */
const struct drafter *drafters_look_ahead(const struct drafters *drafters);
/* The round is over: what the look-ahead tokens of its step have said, as in struct lookup_ops. */
void drafters_observe_look_ahead(struct drafters *drafters, const struct sequence *seq,
                                 const struct look_ahead_said *said);

/* The first finder that has extra rows, and the first one that can continue from guesses; NULL:
 * there is none. */
const struct drafter *drafters_extra_rows(const struct drafters *drafters);
const struct drafter *drafters_continuation(const struct drafters *drafters);

/* The sequence in this slot is over, or gives up its place. */
void drafters_forget(struct drafters *drafters, int slot);
