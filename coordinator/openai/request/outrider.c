/* The field "outrider": how a text is guessed at, and what its answer tells. */
#include <stddef.h>

#include "coordinator/openai/request/fields.h"
#include "speculation/accept/rules.h"

enum { TIMEOUT_MS_MAX = 86400000 };

static int read_rule(struct reading *r, const json_t *v)
{
    const struct rule *rule;
    struct error why;
    int rc = openai_read_string(r->r, v, &r->out->generate.rule);
    if (rc || !*r->out->generate.rule) return rc;
    rc = rule_parse(r->out->generate.rule, &rule, &why);
    return rc ? openai_refuse(r->r, "is wrong: %s", why.text) : 0;
}

static int read_tree_rule(struct reading *r, const json_t *v)
{
    const struct tree_rule *rule;
    struct error why;
    int rc = openai_read_string(r->r, v, &r->out->generate.tree_rule);
    if (rc || !*r->out->generate.tree_rule) return rc;
    rc = tree_rule_parse(r->out->generate.tree_rule, &rule, &why);
    return rc ? openai_refuse(r->r, "is wrong: %s", why.text) : 0;
}

static int read_strategy(struct reading *r, const json_t *v)
{
    int word = 0, rc = openai_field_word(r, v, strategy_names, N_STRATEGIES, &word);
    if (!rc) r->out->generate.strategy = (enum strategy)word;
    return rc;
}

static int read_priority(struct reading *r, const json_t *v)
{
    static const char *const words[JOB_CLASSES] = {"normal", "high", "low"};
    int word = 0, rc = openai_field_word(r, v, words, JOB_CLASSES, &word);
    if (!rc) r->out->generate.job_class = (enum job_class)word;
    return rc;
}

static int read_threshold(struct reading *r, const json_t *v)
{
    r->out->generate.has_threshold = true;
    return openai_read_float(r->r, v, 0, 1, &r->out->generate.threshold);
}

static int read_timeout(struct reading *r, const json_t *v)
{
    int ms = 0, rc = openai_read_int(r->r, v, 0, TIMEOUT_MS_MAX, &ms);
    if (!rc) r->out->generate.timeout_ms = (uint32_t)ms;
    return rc;
}

#define OWN(member) offsetof(struct openai_request, generate.member)

static const struct field own_fields[] = {
    {"full_rows", BOTH, openai_field_bool, OWN(full_rows), 0, 0},
    {"n_draft", BOTH, openai_field_int, OWN(n_draft), 0, DRAFT_MAX},
    {"priority", BOTH, read_priority, 0, 0, 0},
    {"rule", BOTH, read_rule, 0, 0, 0},
    {"show_drafts", BOTH, openai_field_bool, OWN(show_drafts), 0, 0},
    {"strategy", BOTH, read_strategy, 0, 0, 0},
    {"threshold", BOTH, read_threshold, 0, 0, 0},
    {"timeout_ms", BOTH, read_timeout, 0, 0, 0},
    {"tree_rule", BOTH, read_tree_rule, 0, 0, 0},
};
enum { N_OWN_FIELDS = sizeof own_fields / sizeof *own_fields };

bool openai_field_is_outrider(const char *name, enum openai_kind kind)
{
    return openai_field_find(own_fields, N_OWN_FIELDS, name, kind) != NULL;
}

int openai_field_outrider(struct reading *r, const json_t *v)
{
    if (!json_is_object(v)) {
        return openai_refuse(r->r, "is %s, must be an object", openai_type_of(v));
    }
    r->out->tells_outrider = true;
    return openai_read_fields(r, v, own_fields, N_OWN_FIELDS, "outrider.");
}
