/* The table of all that guesses tokens, a row each. The parser and help of --lookup, the values of
 * --draft, the names in answers and the labels of metrics come from these rows. To add a drafter,
 * write its file, in this folder or for a finder in coordinator/draft/finders/, and its row here.
 *
 *   MODEL_ROW(ID, name, ops, prefix, properties)
 *       computes its guesses with a model: struct model_draft_ops (coordinator/draft/drafter.h).
 *       --draft means it by what begins with the prefix. Of several the longest one counts; so that
 *       no folder is taken for another drafter, it ends in a colon, as "synthetic:" does.
 *   LOOKUP_ROW(ID, name, ops, argument, help, properties)
 *       looks guesses up: struct lookup_ops (coordinator/draft/lookup.h), and has this name in
 *       --lookup. argument: "=FILE" if a file follows the name there, otherwise "".
 *   DEFAULT_ROW
 *       the same, once: what is looked in if --lookup is not given.
 *   UNNAMED_ROW(ID, name, ops, properties)
 *       the same, but --lookup does not name it: it looks in what a request brings itself, or
 *       guesses by a folder that --head names.
 *
 * The ops are defined in the drafter's file. The properties are those of struct drafter_row. The
 * name is also the label in metrics, which has the order of the rows; struct planner_offer's
 * `finder` has that of --lookup. This file includes nothing, because coordinator/signals reads it,
 * too. */
#pragma once

#define DRAFTERS(MODEL_ROW, DEFAULT_ROW, LOOKUP_ROW, UNNAMED_ROW)                           \
    MODEL_ROW(MODEL, "model", model_draft_ops, "", .has_tokenizer = true)                   \
    MODEL_ROW(HEAD, "head", head_draft_ops, "head:", .has_tokenizer = false)                \
    DEFAULT_ROW(SESSION, "session", session_lookup_ops, "",                                 \
                "what the text and its prompt have said before", .source = LOOKUP_OWN_TEXT) \
    LOOKUP_ROW(STORE, "store", store_lookup_ops, "", "texts that were finished",            \
               .source = LOOKUP_MADE_TEXTS)                                                 \
    LOOKUP_ROW(DATASTORE, "datastore", datastore_lookup_ops, "=FILE",                       \
               "texts of outrider datastore build", .source = LOOKUP_ELSEWHERE)             \
    LOOKUP_ROW(RECYCLED, "recycled", recycled_lookup_ops, "",                               \
               "the target's best tokens after the last occurrence of the same token",      \
               .source = LOOKUP_MADE_TEXTS)                                                 \
    LOOKUP_ROW(LOOKAHEAD, "lookahead", lookahead_lookup_ops, "",                            \
               "n-grams from further rows of a step, where these cost next to nothing",     \
               .source = LOOKUP_ELSEWHERE)                                                  \
    UNNAMED_ROW(PREDICTION, "prediction", prediction_lookup_ops, .is_of_request = true,     \
                .source = LOOKUP_MADE_TEXTS)                                                \
    UNNAMED_ROW(PASS, "pass", pass_lookup_ops, .is_of_head = true, .source = LOOKUP_ELSEWHERE)

struct model_draft_ops;
struct lookup_ops;
#define DRAFTERS_MODEL_OPS(id, name, ops, ...)  extern const struct model_draft_ops ops;
#define DRAFTERS_LOOKUP_OPS(id, name, ops, ...) extern const struct lookup_ops ops;
DRAFTERS(DRAFTERS_MODEL_OPS, DRAFTERS_LOOKUP_OPS, DRAFTERS_LOOKUP_OPS, DRAFTERS_LOOKUP_OPS)

#define DRAFTERS_COUNT(...) +1
enum { N_DRAFTERS = DRAFTERS(DRAFTERS_COUNT, DRAFTERS_COUNT, DRAFTERS_COUNT, DRAFTERS_COUNT) };

/* For kinds of rows that an expansion leaves out. */
#define DRAFTERS_NO_ROW(...)

/* The name of the default row. */
#define DRAFTERS_ROW_NAME(id, name, ...) name
#define LOOKUP_DEFAULT \
    DRAFTERS(DRAFTERS_NO_ROW, DRAFTERS_ROW_NAME, DRAFTERS_NO_ROW, DRAFTERS_NO_ROW)

/* Names that --lookup may have, for its help: ": session (what ...), store (texts ...), ...". */
#define DRAFTERS_FIRST_HELP(id, name, ops, argument, help, ...) ": " name argument " (" help ")"
#define DRAFTERS_NEXT_HELP(id, name, ops, argument, help, ...)  ", " name argument " (" help ")"
#define LOOKUP_HELP \
    DRAFTERS(DRAFTERS_NO_ROW, DRAFTERS_FIRST_HELP, DRAFTERS_NEXT_HELP, DRAFTERS_NO_ROW)
