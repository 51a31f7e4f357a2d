/* The drafters of `outrider replay`, which find their guesses in texts. */
#pragma once

#include <stdint.h>

#include "base/limits.h"
#include "client/replay/first_places.h"
#include "lookup/datastore.h"
#include "lookup/recycled.h"
#include "lookup/store.h"
#include "lookup/suffix.h"
#include "model/tokenizer/ids.h"
#include "speculation/planner/offer.h"

enum replay_finder {
    REPLAY_SESSION,   /* a suffix automaton of prompt and answer (lookup/suffix.h) */
    REPLAY_NGRAM,     /* prompt lookup: the first place of the last few tokens */
    REPLAY_STORE,     /* the texts replayed before (lookup/store.h) */
    REPLAY_DATASTORE, /* a file of texts (lookup/datastore.h) */
    /* Tokens that came after the same token in the answers (lookup/recycled.h). A server also knows
     * the rows after guesses that were rejected, and the second best tokens of rows: there it finds
     * more. */
    REPLAY_RECYCLED,
    N_REPLAY_FINDERS
};
extern const char *const replay_names[N_REPLAY_FINDERS];

enum {
    REPLAY_STORE_TOKENS = 1 << 21,
    REPLAY_LISTS = 1 << 17 /* of recycled tokens, as the coordinator has them */
};

/* The guesses that a drafter offers for the end of a text. offer.k_max 0: none. */
struct replay_found {
    struct planner_offer offer;
    int32_t tokens[DRAFT_MAX];
};

/* One drafter. Zero it, then set finder. */
struct replay_drafter {
    enum replay_finder finder;
    struct suffix *suffix;
    struct first_places *places;
    struct store *store;
    struct datastore *datastore;
    struct recycled *recycled;
    int32_t last;           /* token of the text, which recycled follows; -1 = none */
    int64_t busy_ns;        /* adding the answer and finding; without the prompt */
    int64_t read_ns;        /* adding the prompts */
    size_t bytes, n_tokens; /* of the largest index, and the tokens in it */
};

/* names: separated by commas; the datastore's is datastore=FILE. Fills
 * drafters[N_REPLAY_FINDERS]. Close each, also after an error.
 * Errors: ERR_ARGUMENT, ERR_NO_MEMORY, those of datastore_open. */
int replay_drafters_open(struct replay_drafter *drafters, int *n, const char *names,
                         struct error *err);
void replay_drafter_close(struct replay_drafter *drafter);

/* A text begins with its prompt; goes on; is finished. Errors: ERR_NO_MEMORY, ERR_EXHAUSTED. */
int replay_drafter_begin(struct replay_drafter *drafter, const struct token_ids *prompt,
                         struct error *err);
int replay_drafter_add(struct replay_drafter *drafter, const int32_t *tokens, int n,
                       struct error *err);
void replay_drafter_end(struct replay_drafter *drafter, const struct token_ids *text);

/* text is what was begun and added. index: the drafter's number in the offer. */
void replay_drafter_find(struct replay_drafter *drafter, const struct token_ids *text, int index,
                         struct replay_found *found);
