/* Each function copies the parts of one struct, which its caller has copied by value. */
#include "coordinator/job/answer_message.h"

#include <stdlib.h>

#include "base/packer.h"
#include "base/text/utf8.h"

static const struct token_alternative *pack_top(struct packer *p,
                                                const struct token_alternative *top, int n)
{
    struct token_alternative *copies = packer_array(p, top, (size_t)n, sizeof *copies);
    for (int i = 0; i < n; i++) {
        const char *text = packer_string(p, top[i].text);
        if (copies) copies[i].text = text;
    }
    return copies;
}

static const struct token_logprob *pack_logprobs(struct packer *p,
                                                 const struct generate_tokens *tokens)
{
    const struct token_logprob *list = tokens->logprobs;
    if (!list) return NULL;
    struct token_logprob *copies = packer_array(p, list, (size_t)tokens->n, sizeof *copies);
    for (int i = 0; i < tokens->n; i++) {
        const struct token_alternative *top = pack_top(p, list[i].top, list[i].n_top);
        if (copies) copies[i].top = top;
    }
    return copies;
}

static const struct generate_round *pack_round(struct packer *p, const struct generate_round *round)
{
    if (!round) return NULL;
    struct generate_round *copy = packer_array(p, round, 1, sizeof *copy), parts = *round;
    struct generate_guess *guesses =
        packer_array(p, round->guesses, (size_t)round->n_guesses, sizeof *guesses);
    for (int i = 0; i < round->n_guesses; i++) {
        const char *text = packer_string(p, round->guesses[i].text);
        if (guesses) guesses[i].text = text;
    }
    parts.guesses = guesses;
    parts.drafter = packer_string(p, round->drafter);
    if (copy) *copy = parts;
    return copy;
}

static const struct generate_tokens *pack_tokens(struct packer *p,
                                                 const struct generate_tokens *tokens)
{
    if (!tokens) return NULL;
    size_t n = (size_t)tokens->n;
    struct generate_tokens *copy = packer_array(p, tokens, 1, sizeof *copy), parts = *tokens;
    parts.ids = packer_array(p, tokens->ids, n, sizeof *tokens->ids);
    parts.origins = packer_array(p, tokens->origins, n, sizeof *tokens->origins);
    parts.text_ends = packer_array(p, tokens->text_ends, n, sizeof *tokens->text_ends);
    parts.logprobs = pack_logprobs(p, tokens);
    parts.round = pack_round(p, tokens->round);
    parts.rejected_text = packer_string(p, tokens->rejected_text);
    char *text = packer_text(p, tokens->text, tokens->text_len);
    parts.text = text;
    if (!copy) return NULL;
    utf8_clean(text, tokens->text_len);
    *copy = parts;
    return copy;
}

static const struct generate_summary *pack_summary(struct packer *p,
                                                   const struct generate_summary *summary)
{
    if (!summary) return NULL;
    struct generate_summary *copy = packer_array(p, summary, 1, sizeof *copy), parts = *summary;
    size_t n_ids = summary->prompt_ids ? (size_t)summary->prompt_tokens : 0;
    parts.prompt_ids = packer_array(p, summary->prompt_ids, n_ids, sizeof *summary->prompt_ids);
    parts.finish_reason = packer_string(p, summary->finish_reason);
    parts.stop_match = packer_string(p, summary->stop_match);
    parts.rule = packer_string(p, summary->rule);
    parts.speculation_off = packer_string(p, summary->speculation_off);
    parts.request_id = packer_string(p, summary->request_id);
    parts.arithmetic = packer_string(p, summary->arithmetic);
    if (copy) *copy = parts;
    return copy;
}

static const struct score_reply *pack_scores(struct packer *p, const struct score_reply *scores)
{
    if (!scores) return NULL;
    struct score_reply *copy = packer_array(p, scores, 1, sizeof *copy);
    struct score_token *tokens = packer_array(p, scores->tokens, (size_t)scores->n, sizeof *tokens);
    for (int i = 0; i < scores->n; i++) {
        const struct score_token *from = &scores->tokens[i];
        const char *text = packer_string(p, from->text);
        const struct token_alternative *top = pack_top(p, from->top, from->n_top);
        if (!tokens) continue;
        tokens[i].text = text;
        tokens[i].top = top;
    }
    const struct score_features *features = &scores->features;
    size_t n = (size_t)features->n * (size_t)features->n_columns * (size_t)features->dim;
    const uint16_t *rows = packer_array(p, features->rows, n, sizeof *rows);
    if (!copy) return NULL;
    copy->tokens = tokens;
    copy->features.rows = rows;
    return copy;
}

static const struct generate_reply *pack_reply(struct packer *p, const struct generate_reply *reply)
{
    if (!reply) return NULL;
    struct generate_reply *copy = packer_array(p, reply, 1, sizeof *copy), parts = *reply;
    parts.tokens = pack_tokens(p, reply->tokens);
    parts.summary = pack_summary(p, reply->summary);
    parts.echo = pack_scores(p, reply->echo);
    if (copy) *copy = parts;
    return copy;
}

static const struct service_group *pack_groups(struct packer *p,
                                               const struct service_description *description)
{
    const struct service_group *from = description->groups;
    size_t n = (size_t)description->n_groups;
    struct service_group *groups = packer_array(p, from, n, sizeof *groups);
    for (size_t i = 0; i < n; i++) {
        struct service_group parts = from[i];
        parts.state = packer_string(p, from[i].state);
        parts.kernels = packer_string(p, from[i].kernels);
        parts.addresses = packer_strings(p, from[i].addresses, from[i].n_addresses);
        if (groups) groups[i] = parts;
    }
    return groups;
}

static const struct service_description *
pack_description(struct packer *p, const struct service_description *description)
{
    if (!description) return NULL;
    struct service_description *copy = packer_array(p, description, 1, sizeof *copy);
    struct service_description parts = *description;
    parts.version = packer_string(p, description->version);
    parts.target_model = packer_string(p, description->target_model);
    parts.target_architecture = packer_string(p, description->target_architecture);
    parts.arithmetic = packer_string(p, description->arithmetic);
    parts.draft_model = packer_string(p, description->draft_model);
    parts.draft_kind = packer_string(p, description->draft_kind);
    parts.state = packer_string(p, description->state);
    parts.draft_kernels = packer_string(p, description->draft_kernels);
    parts.addresses = packer_strings(p, description->addresses, description->n_addresses);
    parts.kernels = packer_strings(p, description->kernels, description->n_kernels);
    parts.groups = pack_groups(p, description);
    if (copy) *copy = parts;
    return copy;
}

static struct answer_message *pack(struct packer *p, const struct answer_message *message)
{
    struct answer_message *copy = packer_array(p, message, 1, sizeof *copy), parts = *message;
    parts.reply = pack_reply(p, message->reply);
    parts.scores = pack_scores(p, message->scores);
    parts.description = pack_description(p, message->description);
    if (copy) *copy = parts;
    return copy;
}

int answer_message_copy(struct answer_message **copy, size_t *n_bytes,
                        const struct answer_message *message, struct error *err)
{
    struct packer packer = {0};
    pack(&packer, message);
    *copy = NULL;
    *n_bytes = packer.n_bytes;
    packer = (struct packer){.block = malloc(packer.n_bytes)};
    if (!packer.block) {
        return error_set(err, ERR_NO_MEMORY, "no memory for a message of %zu bytes", *n_bytes);
    }
    *copy = pack(&packer, message);
    return 0;
}
