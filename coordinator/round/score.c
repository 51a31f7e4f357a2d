/* Each scored position's row is asked for what a log-probability needs: the next token's logit,
 * the normaliser at temperature 1, and the best n. */
#include "coordinator/round/score.h"

#include <math.h>

#include "coordinator/sequence/sequence.h"
#include "speculation/rows/check.h"
#include "speculation/rows/logprobs.h"

enum { TEXT_BYTES = 64 }; /* of a token; a longer one is shown empty */

static const struct score_features no_features;

const char *score_token_text(const struct tokenizer *tok, int32_t id, struct arena *arena)
{
    struct error ignored;
    char *text = arena_take(arena, TEXT_BYTES, 1);
    if (!text) return "";
    tokenizer_token_text(tok, id, text, TEXT_BYTES, &ignored);
    return text;
}

/* The best n of the slices' lists, best first; *made is how many there are. */
static int list_best(const struct slice_row *slices, int n_slices, int n, double log_z,
                     const struct tokenizer *tok, struct arena *arena,
                     struct token_alternative *out, int *made, struct error *err)
{
    int32_t *ids = arena_take(arena, (size_t)n, sizeof *ids);
    float *logprobs = arena_take(arena, (size_t)n, sizeof *logprobs);
    if (!ids || !logprobs) return error_set(err, ERR_NO_MEMORY, "no room for the alternatives");
    *made = logprobs_best(slices, n_slices, n, log_z, ids, logprobs);
    for (int i = 0; i < *made; i++) {
        out[i] = (struct token_alternative){
            .id = ids[i], .text = score_token_text(tok, ids[i], arena), .logprob = logprobs[i]};
    }
    return 0;
}

/* The logit of the one id that was asked for, from the slice that has it. */
static float wished_logit(const struct slice_row *slices, int n_slices)
{
    for (int s = 0; s < n_slices; s++) {
        if (slices[s].n_ids) return slices[s].id_logits[0];
    }
    return -INFINITY;
}

static int n_alternatives(const struct sequence *seq)
{
    return seq->is_score ? seq->job->score.top_n : seq->job->generate.logprobs;
}

int score_list_wants(const struct lane_plan *plan, int lane, struct lane_want *wants,
                     struct arena *arena, struct error *err)
{
    const struct sequence *seq = plan->seq;
    struct row_wish *wishes = arena_take(arena, (size_t)plan->n_scored, sizeof *wishes);
    if (!wishes) return error_set(err, ERR_NO_MEMORY, "no room for %d rows", plan->n_scored);
    for (int i = 0; i < plan->n_scored; i++) {
        int index = plan->first_scored + i;
        wishes[i] = (struct row_wish){.n_best = n_alternatives(seq),
                                      .n_ids = 1,
                                      .ids = seq->tokens + seq->n_target_kv + index + 1,
                                      .n_temperatures = 1,
                                      .temperatures = {1.0f}};
        wants[i] = (struct lane_want){.lane = lane, .index = index, .wish = &wishes[i]};
    }
    return 0;
}

/* Numbers of the workers are checked before a client sees what is computed from them. */
static int check_row(const struct target_description *target, const struct slice_row *slices,
                     const struct row_wish *wish, struct error *err)
{
    int rc = target_row_check_shape(slices, target->n_slices, target->vocab_size, err);
    if (!rc) rc = target_row_check_slices(slices, target->n_slices, wish, err);
    return rc ? target_answer_error(err) : 0;
}

const struct token_logprob *score_list_logprobs(const struct target_row *rows, const int32_t *ids,
                                                int n, const struct tokenizer *tok,
                                                struct arena *arena)
{
    struct token_logprob *list = arena_take(arena, (size_t)n, sizeof *list);
    for (int i = 0; list && i < n; i++) {
        const struct target_row *row = &rows[i];
        struct token_alternative *top = arena_take(arena, (size_t)row->n_top, sizeof *top);
        if (!top) return NULL;
        for (int t = 0; t < row->n_top; t++) {
            top[t] =
                (struct token_alternative){.id = row->top_ids[t],
                                           .text = score_token_text(tok, row->top_ids[t], arena),
                                           .logprob = row->top_logprobs[t]};
        }
        list[i] = (struct token_logprob){target_row_logprob(row, ids[i]), row->n_top, top};
    }
    return list;
}

static int send(struct sequence *seq, const struct score_token *tokens, int n,
                const struct score_features *features, struct error *err)
{
    const struct score_reply scores = {.n = n, .tokens = tokens, .features = *features};
    struct reply *reply = seq->job->reply;
    seq->n_scored += n;
    return seq->is_score ? reply->ops->scores(reply, &scores, err)
                         : reply->ops->echo(reply, &scores, err);
}

int score_send_plain(struct sequence *seq, int begin, int end, const struct tokenizer *tok,
                     struct arena *arena, struct error *err)
{
    size_t n = (size_t)(end - begin);
    struct score_token *tokens = arena_take(arena, n, sizeof *tokens);
    if (!tokens) return error_set(err, ERR_NO_MEMORY, "no room for %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        int32_t id = seq->job->prompt.data[(size_t)begin + i];
        tokens[i] = (struct score_token){.id = id, .text = score_token_text(tok, id, arena)};
    }
    return send(seq, tokens, (int)n, &no_features, err);
}

int score_finish(struct sequence *seq, const struct tokenizer *tok, struct error *err)
{
    char text[TEXT_BYTES] = "";
    struct error ignored;
    const struct score_token token = {.id = seq->job->prompt.data[0], .text = text};
    if (seq->n_scored > 0) return 0;
    tokenizer_token_text(tok, token.id, text, sizeof text, &ignored);
    return send(seq, &token, 1, &no_features, err);
}

/* The token that one row scores. */
static int score_row(struct score_token *token, int32_t id, const struct slice_row *slices,
                     int n_slices, int n_top, const struct tokenizer *tok, struct arena *arena,
                     struct error *err)
{
    double log_z = logprobs_normaliser(slices, n_slices, 0);
    struct token_alternative *top = arena_take(arena, (size_t)n_top, sizeof *top);
    if (!top) return error_set(err, ERR_NO_MEMORY, "no room for the alternatives");
    int n_made = 0;
    int rc = list_best(slices, n_slices, n_top, log_z, tok, arena, top, &n_made, err);
    if (rc) return rc;
    *token = (struct score_token){
        .id = id,
        .text = score_token_text(tok, id, arena),
        .has_logprob = true,
        .logprob = (float)((double)wished_logit(slices, n_slices) - log_z),
        .n_top = n_made,
        .top = top,
    };
    return 0;
}

int score_send(const struct lane_plan *plan, const struct lane_want *wants,
               const struct slice_row *const *slices, const struct target_description *target,
               const struct score_features *features, const struct tokenizer *tok,
               struct arena *arena, struct error *err)
{
    struct sequence *seq = plan->seq;
    int rc = 0, n = plan->n_scored;
    struct score_token *tokens = arena_take(arena, (size_t)n, sizeof *tokens);
    if (!tokens) return error_set(err, ERR_NO_MEMORY, "no room for %d scores", n);
    if (seq->n_scored == 0) TRY(score_send_plain(seq, 0, 1, tok, arena, err));
    for (int i = 0; i < n; i++) {
        TRY(check_row(target, slices[i], wants[i].wish, err));
        TRY(score_row(&tokens[i], wants[i].wish->ids[0], slices[i], target->n_slices,
                      n_alternatives(seq), tok, arena, err));
    }
    rc = send(seq, tokens, n, features, err);
out:
    return rc;
}
