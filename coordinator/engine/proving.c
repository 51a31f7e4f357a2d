/* Writing texts for a head's proof, and the proof. */
#include "coordinator/engine/proving.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/least.h"
#include "model/tokenizer/ids.h"
#include "model/tokenizer/sample_prompts.h"

enum { PIECE_US = 50000, ARENA_BYTES = 64 << 20, PARTS_MAX = SAMPLE_PROMPTS * PROVING_PARTS };

/* A text that the group writes. Arrays have PROVING_TEXT_TOKENS elements; features have come of all
 * tokens but the last. NULL: it has not begun. */
struct written {
    int32_t *ids, *best;
    uint16_t *features; /* [columns][dim] of each token */
    int n, n_begin;     /* n_begin: where its last part begins */
};

struct proving {
    struct proving_options options;
    struct arena arena;
    struct block_table table; /* of the text that is written */
    int n_kv;                 /* of its tokens that the group has read, in these blocks */
    struct written texts[SAMPLE_PROMPTS];
    /* Parts that are complete: a part of each text, then the next one of each. A part is a text of
     * its own to the head, which begins with the parts before it. */
    struct head_proof_text parts[PARTS_MAX];
    int n_parts, n_made, n_wanted; /* n_made: tokens of these parts */
    bool is_trying;                /* the texts are there, and the head guesses */
};

int proving_open(struct proving **proving, const struct proving_options *options, struct error *err)
{
    struct proving *p = NULL;
    int rc = 0;
    *proving = NULL;
    TRY(mem_array(&p, 1, sizeof *p, err));
    p->options = *options;
    if (options->chat) p->options.chat = chat_template_ref(options->chat);
    p->n_wanted = PROVING_TOKENS;
    TRY(arena_open(&p->arena, ARENA_BYTES, err));
    TRY(block_table_open(&p->table, PROVING_TEXT_TOKENS / options->pool->block_tokens + 1, err));
    *proving = p;
    p = NULL;
out:
    proving_close(p);
    return rc;
}

void proving_close(struct proving *p)
{
    if (!p) return;
    proving_rest(p);
    block_table_close(&p->table);
    chat_template_close(p->options.chat);
    for (int i = 0; i < SAMPLE_PROMPTS; i++) {
        free(p->texts[i].ids);
        free(p->texts[i].best);
        free(p->texts[i].features);
    }
    arena_close(&p->arena);
    free(p);
}

void proving_rest(struct proving *p)
{
    if (!p) return;
    block_table_release(&p->table, p->options.pool);
    p->n_kv = 0;
}

/* ---- writing ---- */

static size_t row_elements(const struct proving *p)
{
    const struct target_description *d = target_description(p->options.target);
    return (size_t)feature_wish_columns(head_proof_wish(p->options.proof)) * (size_t)d->dim;
}

/* Tokens of a text, fewer where the group sees less. */
static int tokens_most(const struct proving *p)
{
    return least(PROVING_TEXT_TOKENS, target_description(p->options.target)->context_limit);
}

static int begin_text(struct proving *p, struct written *text, struct error *err)
{
    struct token_ids prompt = {0};
    int rc = 0, most = least(PROVING_PROMPT_TOKENS, tokens_most(p) - PROVING_PART_TOKENS);
    TRY(sample_prompt(&prompt, p->n_parts, p->options.tok, p->options.chat, (int64_t)time(NULL),
                      most > 0 ? (size_t)most : 0, err));
    TRY(mem_array(&text->best, PROVING_TEXT_TOKENS, sizeof *text->best, err));
    TRY(mem_array(&text->features, PROVING_TEXT_TOKENS * row_elements(p), sizeof *text->features,
                  err));
    TRY(mem_array(&text->ids, PROVING_TEXT_TOKENS, sizeof *text->ids, err));
    memcpy(text->ids, prompt.data, prompt.n * sizeof *text->ids);
    text->n = text->n_begin = (int)prompt.n;
out:
    token_ids_free(&prompt);
    return rc;
}

/* The best token of the row, by logit and then the lowest id. */
static int take_best(const struct target_answer *answer, int32_t *id, struct error *err)
{
    float logit = 0;
    *id = -1;
    if (answer->n_refused || answer->failures[0]) {
        return error_set(err, ERR_INTERNAL, "the group does not write a text for the head: %.300s",
                         answer->n_refused ? answer->refused[0].text : answer->failures[0]->text);
    }
    for (int s = 0; s < answer->n_slices; s++) {
        const struct slice_row *slice = &answer->slices[s];
        if (slice->code || slice->n_best == 0) continue;
        if (*id >= 0 && !(slice->best_logits[0] > logit)) continue;
        *id = slice->best_ids[0];
        logit = slice->best_logits[0];
    }
    if (*id >= 0) return 0;
    return error_set(err, ERR_INTERNAL, "the group has no best token after a text for the head");
}

static int take_features(struct proving *p, struct written *text, int n,
                         const struct target_answer *answer, struct error *err)
{
    size_t elements = row_elements(p);
    const struct lane_features *came = &answer->features[0];
    if (answer->feature_error || came->n != (int)((size_t)n * elements)) {
        return error_set(err, ERR_INTERNAL, "the group has no features for the head: %.300s",
                         answer->feature_error ? answer->feature_error : "nothing came");
    }
    memcpy(text->features + (size_t)p->n_kv * elements, came->data,
           (size_t)n * elements * sizeof *came->data);
    return 0;
}

/* Feeds the text's next tokens, as many as a step takes; the token after the last one is made. */
static int feed(struct proving *p, struct written *text, struct error *err)
{
    const struct target_description *d = target_description(p->options.target);
    const struct feature_wish *wish = head_proof_wish(p->options.proof);
    int n = least(text->n - p->n_kv, d->max_step_tokens), rc = 0;
    n = least(n, features_rows_max(wish, d->dim));
    struct target_cost cost = {0};
    struct target_answer answer;
    int32_t id;
    TRY(block_table_reach(&p->table, p->options.pool, p->n_kv + n, err));
    const struct step_row row = {.index = n - 1, .wish = {.n_best = 1}};
    const struct step_lane lane = {.slot = 0,
                                   .position = p->n_kv,
                                   .n_tokens = n,
                                   .tokens = text->ids + p->n_kv,
                                   .n_blocks = p->table.n,
                                   .blocks = p->table.blocks,
                                   .n_rows = 1,
                                   .rows = &row,
                                   .n_features = n};
    struct step step = {.n_lanes = 1, .lanes = &lane, .features = *wish};
    arena_reset(&p->arena);
    TRY(target_step(p->options.target, &step, &p->arena, &answer, &cost, err));
    TRY(take_best(&answer, &id, err));
    TRY(take_features(p, text, n, &answer, err));
    p->n_kv += n;
    if (p->n_kv < text->n) return 0;
    text->best[text->n - 1] = id;
    text->ids[text->n++] = id;
out:
    return rc;
}

/* True if the text's part is long enough, or has ended; where a further part begins after an end,
 * ends mean nothing any more. */
static bool is_written(const struct proving *p, const struct written *text)
{
    int n_made = text->n - text->n_begin;
    bool has_ended =
        n_made > 0 && p->n_parts < SAMPLE_PROMPTS &&
        end_ids_have(&target_description(p->options.target)->ends, text->ids[text->n - 1]);
    return n_made >= PROVING_PART_TOKENS || has_ended || text->n >= tokens_most(p);
}

/* One step of a text. */
static int write_on(struct proving *p, struct error *err)
{
    struct written *text = &p->texts[p->n_parts % SAMPLE_PROMPTS];
    int rc = 0;
    if (!text->ids) TRY(begin_text(p, text, err));
    if (text->n < tokens_most(p)) TRY(feed(p, text, err));
    if (!is_written(p, text)) return 0;
    p->n_made += text->n - text->n_begin;
    p->parts[p->n_parts++] =
        (struct head_proof_text){text->n - 1, text->n_begin, text->ids, text->best, text->features};
    text->n_begin = text->n;
    proving_rest(p);
out:
    return rc;
}

/* ---- the proof ---- */

static bool has_texts(const struct proving *p)
{
    return p->n_made >= p->n_wanted || p->n_parts == PARTS_MAX;
}

/* One step of a text, or one piece of the proof. */
static int go_on(struct proving *p, bool *is_done, struct error *err)
{
    int rc = 0;
    if (!has_texts(p)) return write_on(p, err);
    if (!p->is_trying) TRY(head_proof_begin(p->options.proof, p->parts, p->n_parts, err));
    p->is_trying = true;
    TRY(head_proof_next(p->options.proof, is_done, err));
    if (!*is_done || !head_proof_table(p->options.proof)->is_undecided) return 0;
    p->n_wanted = least(2 * p->n_wanted, PROVING_TOKENS_MAX);
    *is_done = has_texts(p);
    p->is_trying = *is_done;
out:
    return rc;
}

int proving_next(struct proving *p, bool *is_done, struct error *err)
{
    int64_t end_us = clock_now_us() + PIECE_US;
    int rc = 0;
    *is_done = false;
    do {
        TRY(go_on(p, is_done, err));
    } while (!*is_done && clock_now_us() < end_us);
out:
    return rc;
}
