/* All drafters of an engine: the draft model, if there is one, and what finds guesses in texts. For
 * each sequence and round the planner says which of them guesses. Owned by the engine thread. */
#pragma once

#include "coordinator/draft/drafter.h"

struct drafters {
    struct drafter *model; /* lent; NULL = none */
    int n_finders;
    struct drafter *finders[PLANNER_FINDERS]; /* [n_finders] by struct planner_offer's `finder` */
    /* The last of the finders, which guesses for requests that predict their answers; NULL: there
     * is none. */
    struct drafter *predicted;
};

enum { STORE_TOKENS_DEFAULT = 1 << 20 };

/* Where guesses are looked up if nobody says. */
#define LOOKUP_DEFAULT "session"

/* Checks what --lookup says: "none", or names with commas between them. Errors: ERR_ARGUMENT there
 * is no such name; the text lists them. */
int drafters_check(const char *lookup, struct error *err);

struct lookup_options {
    const char *lookup;     /* a list that drafters_check has passed */
    int n_sequences;        /* slots */
    int store_tokens;       /* room of "store" */
    bool reads_predictions; /* there is a finder for them, too */
    bool is_shared;         /* what texts of one API key have taught may be used for all */
    const struct tokenizer *tok;
};

/* Opens finders. model: lent, NULL = none. Errors: ERR_NO_MEMORY; of a datastore those of
 * datastore_open, and ERR_ARGUMENT it is for another tokenizer. */
int drafters_open(struct drafters *drafters, struct drafter *model,
                  const struct lookup_options *options, struct error *err);
/* Closes the finders. */
void drafters_close(struct drafters *drafters);

/* Whether anything can guess for a request that predicts nothing, and whether anything is looked up
 * for it. */
bool drafters_any(const struct drafters *drafters);
bool drafters_look_up(const struct drafters *drafters);

/* Who guesses for sequences whose K is their own: the model, otherwise a finder that depends on
 * nothing but their text; NULL. */
struct drafter *drafters_first(const struct drafters *drafters);

/* The finder of predictions, where it knows how the text goes on, and *offer is what it offers;
 * NULL: it does not, or there is none. */
struct drafter *drafters_predicted(const struct drafters *drafters, const struct sequence *seq,
                                   struct planner_offer *offer);

void drafters_set_vocabulary(struct drafters *drafters, int n_vocab);

/* The round is over, as in struct drafter_ops. */
void drafters_commit(struct drafters *drafters, struct sequence *seq);

/* The sequence's text is complete. */
void drafters_finished(struct drafters *drafters, const struct sequence *seq);

/* Whether a finder learns from rows, and the rows of a round, as in struct drafter_ops. */
bool drafters_observes(const struct drafters *drafters);
void drafters_observe(struct drafters *drafters, const struct sequence *seq,
                      const struct draft_rows *rows);

/* The first finder that has a window; NULL: none has. */
const struct drafter *drafters_window(const struct drafters *drafters);

/* The sequence in this slot is over, or gives up its place. */
void drafters_forget(struct drafters *drafters, int slot);
