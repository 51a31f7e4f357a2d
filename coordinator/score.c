/* Scoring. Each position's row is asked for what a log-probability needs: the next token's logit,
 * the normaliser at temperature 1, and the best n. */
#include "coordinator/score.h"

#include <math.h>

#include "base/limits.h"
#include "base/log.h"
#include "coordinator/sequence.h"
#include "model/numerics/numerics.h"
#include "speculation/target_row_check.h"

enum { TEXT_BYTES = 64 }; /* of a token; a longer one is shown empty */

/* Log of the sum of exp over all slices, relative to logit 0. */
static double log_normaliser(const struct slice_row *slices, int n)
{
    float max = -INFINITY;
    double sum = 0;
    for (int s = 0; s < n; s++) {
        if (slices[s].max > max) max = slices[s].max;
    }
    for (int s = 0; s < n; s++) {
        if (slices[s].n_cols > 0) {
            sum += slices[s].sum_exp[0] * num_exp_double((double)slices[s].max - (double)max);
        }
    }
    return (double)max + num_log(sum);
}

/* The text of one token, in arena. */
static const char *token_text(const struct tokenizer *tok, int32_t id, struct arena *arena)
{
    struct error ignored;
    char *text = arena_take(arena, TEXT_BYTES, 1);
    if (!text) return "";
    tokenizer_token_text(tok, id, text, TEXT_BYTES, &ignored);
    return text;
}

/* The best n of the slices' lists, best first. */
static int merge_best(const struct slice_row *slices, int n_slices, int n, double log_z,
                      const struct tokenizer *tok, struct arena *arena,
                      struct token_alternative *out)
{
    int at[SLICES_MAX] = {0}, made = 0;
    for (; made < n; made++) {
        int best = -1;
        for (int s = 0; s < n_slices; s++) {
            if (at[s] >= slices[s].n_best) continue;
            if (best < 0 || slices[s].best_logits[at[s]] > slices[best].best_logits[at[best]]) {
                best = s; /* equal logits: the lower slice holds the lower ids */
            }
        }
        if (best < 0) break;
        int32_t id = slices[best].best_ids[at[best]];
        out[made] = (struct token_alternative){
            .id = id,
            .text = token_text(tok, id, arena),
            .logprob = (float)((double)slices[best].best_logits[at[best]] - log_z),
        };
        at[best]++;
    }
    return made;
}

/* The logit of the one id that was asked for, from the slice that has it. */
static float wished_logit(const struct slice_row *slices, int n_slices)
{
    for (int s = 0; s < n_slices; s++) {
        if (slices[s].n_ids) return slices[s].id_logits[0];
    }
    return -INFINITY;
}

/* One chunk of the text: the tokens begin .. end are fed and score those behind them. */
struct chunk {
    const struct token_ids *ids;
    int begin, end, top_n;
    struct step_row *rows; /* [end - begin] */
};

static int list_rows(struct chunk *chunk, struct arena *arena, struct error *err)
{
    int n_rows = chunk->end - chunk->begin;
    chunk->rows = arena_take(arena, (size_t)n_rows, sizeof *chunk->rows);
    if (!chunk->rows) return error_set(err, ERR_NO_MEMORY, "no room for %d rows", n_rows);
    for (int i = 0; i < n_rows; i++) {
        chunk->rows[i] = (struct step_row){
            .index = i,
            .wish = {.n_best = chunk->top_n,
                     .n_ids = 1,
                     .ids = chunk->ids->data + chunk->begin + i + 1,
                     .n_temperatures = 1,
                     .temperatures = {1.0f}},
        };
    }
    return 0;
}

/* Numbers of the workers are checked before a client sees what is computed from them. */
static int check_row(const struct round_tools *tools, const struct chunk *chunk, int row,
                     const struct slice_row *slices, int n_slices, struct error *err)
{
    int n_vocab = target_description(tools->target)->vocab_size;
    int rc = target_row_check_shape(slices, n_slices, n_vocab, err);
    if (!rc) rc = target_row_check_slices(slices, n_slices, &chunk->rows[row].wish, err);
    return rc ? target_answer_error(err) : 0;
}

/* Row i of the chunk scores the token after position begin + i. */
static int send_scores(const struct round_tools *tools, struct job *job, const struct chunk *chunk,
                       const struct target_answer *answer, struct error *err)
{
    int rc = 0, n = answer->n_rows, first = chunk->begin == 0 ? 1 : 0;
    struct score_token *tokens = arena_take(tools->arena, (size_t)(n + first), sizeof *tokens);
    if (!tokens) return error_set(err, ERR_NO_MEMORY, "no room for %d scores", n);
    if (first) {
        int32_t id = chunk->ids->data[0];
        tokens[0] =
            (struct score_token){.id = id, .text = token_text(tools->tok, id, tools->arena)};
    }
    for (int i = 0; i < n; i++) {
        const struct slice_row *slices = &answer->slices[(size_t)i * (size_t)answer->n_slices];
        if (answer->failures[i]) {
            *err = *answer->failures[i];
            return err->code;
        }
        TRY(check_row(tools, chunk, i, slices, answer->n_slices, err));
        int32_t id = chunk->ids->data[chunk->begin + i + 1];
        double log_z = log_normaliser(slices, answer->n_slices);
        struct token_alternative *top = arena_take(tools->arena, (size_t)chunk->top_n, sizeof *top);
        if (!top) return error_set(err, ERR_NO_MEMORY, "no room for the alternatives");
        tokens[first + i] = (struct score_token){
            .id = id,
            .text = token_text(tools->tok, id, tools->arena),
            .has_logprob = true,
            .logprob = (float)((double)wished_logit(slices, answer->n_slices) - log_z),
            .n_top = merge_best(slices, answer->n_slices, chunk->top_n, log_z, tools->tok,
                                tools->arena, top),
            .top = top,
        };
    }
    const struct score_reply scores = {.n = n + first, .tokens = tokens};
    rc = job->reply->ops->scores(job->reply, &scores, err);
out:
    return rc;
}

/* Feeds the chunk to the free sequence's slot. */
static int feed_chunk(const struct round_tools *tools, struct sequence *seq,
                      const struct chunk *chunk, struct target_answer *answer, struct error *err)
{
    int rc = 0, n_sent = seq->target_blocks.n;
    struct target_cost cost = {0};
    TRY(block_table_reach(&seq->target_blocks, tools->target_pool, chunk->end, err));
    const struct step_lane lane = {
        .slot = seq->slot,
        .position = chunk->begin,
        .n_tokens = chunk->end - chunk->begin,
        .tokens = chunk->ids->data + chunk->begin,
        .first_block = n_sent,
        .n_blocks = seq->target_blocks.n - n_sent,
        .blocks = seq->target_blocks.blocks + n_sent,
        .n_rows = chunk->end - chunk->begin,
        .rows = chunk->rows,
    };
    struct step step = {.n_lanes = 1, .lanes = &lane};
    TRY(target_step(tools->target, &step, NULL, tools->arena, answer, &cost, err));
out:
    return rc;
}

static int score_chunk(const struct round_tools *tools, struct job *job, struct sequence *seq,
                       struct chunk *chunk, struct error *err)
{
    int rc = 0;
    struct target_answer answer = {0};
    arena_reset(tools->arena);
    TRY(list_rows(chunk, tools->arena, err));
    if (chunk->end > chunk->begin) TRY(feed_chunk(tools, seq, chunk, &answer, err));
    TRY(send_scores(tools, job, chunk, &answer, err));
out:
    return rc;
}

int score_run(const struct round_tools *tools, struct job *job, struct sequence *seq,
              struct error *err)
{
    const struct target_description *target = target_description(tools->target);
    struct chunk chunk = {.ids = &job->prompt, .top_n = job->score.top_n};
    int n = (int)job->prompt.n, rc = 0;
    int most = target->max_step_rows < target->max_step_tokens ? target->max_step_rows
                                                               : target->max_step_tokens;
    if (n < 1 || n > target->context_limit) {
        rc = error_set(err, ERR_ARGUMENT, "the text has %d tokens; scoring takes 1 to %d", n,
                       target->context_limit);
    }
    /* The last token is not fed, because nothing follows it. A text of one token still has one
     * chunk, which feeds nothing. */
    for (int begin = 0; !rc && (begin == 0 || begin < n - 1); begin += most) {
        chunk.begin = begin;
        chunk.end = begin + most < n - 1 ? begin + most : n - 1;
        rc = score_chunk(tools, job, seq, &chunk, err);
    }
    block_table_release(&seq->target_blocks, tools->target_pool);
    if (rc) log_line(LOG_LEVEL_WARN, "score_failed", "tokens=%d text=\"%s\"", n, err->text);
    job_end(job, rc, err);
    return rc && !target_is_connected(tools->target) ? rc : 0;
}
