/* A head becomes a draft model, the last one, when it has proven itself with the group's model:
 * which features it means is found out, and one that guesses badly does not guess at all. Texts are
 * served without it until then. One that need not be checked guesses at once, as its file says or
 * as an earlier start has found. */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "coordinator/engine/internal.h"

/* Makes the head a draft model, or none any more. No text has a place. */
static void use_head(struct engine *e, bool is_used)
{
    struct drafters *drafters = e->options.drafters;
    int n = drafters->n_models;
    if (n > 0 && drafters->models[n - 1] == e->head) drafters_remove_model(drafters);
    if (is_used) drafters_add_model(drafters, e->head);
    staged_begin(&e->staged, e->options.draft_staged, e->options.drafters, &e->planner);
    appended_begin(&e->appended, e->options.lookup_append, e->options.drafters, &e->planner);
    e->scheduler.append_max = e->appended.finder ? PLANNER_APPEND_MAX : 0;
    memset(e->watches, 0, sizeof e->watches);
    if (!is_used) return;
    drafter_set_vocabulary(e->head, engine_group(e)->vocab_size);
    drafters_set_projection(e->options.drafters, &engine_group(e)->projection);
}

static void log_table(const struct engine *e, const struct head_table *table)
{
    char text[HEAD_TRIAL_BYTES];
    for (int i = 0; i < table->n_trials; i++) {
        const struct head_trial *t = &table->trials[i];
        log_line(LOG_LEVEL_INFO, "head_trial",
                 "head=%s taken=%s better=%d worse=%d chance=%.2g text=\"%s\"",
                 e->head->head_folder, i == table->chosen ? "yes" : "no", t->n_better, t->n_worse,
                 t->chance, head_trial_show(table, i, text));
    }
}

/* Logs what the table says of the head. */
static void log_verdict(const struct engine *e, const struct head_table *table, bool is_taken)
{
    static const char *const names[] = {"head_proven", "head_weak", "head_wrong"};
    enum head_verdict verdict = head_table_verdict(table);
    double percent = 100 * head_trial_agreement(table, table->chosen, 0);
    const char *advice =
        verdict == HEAD_PROVEN ? ""
        : verdict == HEAD_WEAK ? " A head of this target has 30 % or more; it may be of another "
                                 "one, or for other texts."
        : is_taken             ? " It guesses all the same, because of --head-unchecked."
                               : " It is not used, because a head of this target has 30 % or more; "
                                 "--head-unchecked uses it.";
    log_line(verdict == HEAD_PROVEN ? LOG_LEVEL_INFO : LOG_LEVEL_WARN, names[verdict],
             "head=%s text=\"%.1f %% of %d first guesses are what the target says; features: "
             "%s.%s\"",
             e->head->head_folder, percent, table->n_starts,
             table->trials[table->chosen].reading.name, advice);
}

/* Makes the head a draft model, if it may be. True: it is. */
static bool take_head(struct engine *e, const struct head_table *table)
{
    struct error err;
    bool is_good = head_table_verdict(table) != HEAD_WRONG || e->options.head_unchecked;
    if (is_good && drafter_take_reading(e->head, &table->trials[table->chosen], &err)) {
        log_line(LOG_LEVEL_WARN, "head_lost", "head=%s text=\"%s\"", e->head->head_folder,
                 err.text);
        is_good = false;
    }
    log_table(e, table);
    log_verdict(e, table, is_good);
    use_head(e, is_good);
    return is_good;
}

/* The proof has failed. */
static void fail(const struct engine *e, const struct error *why)
{
    log_line(LOG_LEVEL_WARN, "head_not_proven", "head=%s text=\"%s%s\"", e->head->head_folder,
             why->text,
             e->options.head_unchecked ? ": it guesses as its file says" : ": it does not guess");
}

void engine_end_proof(struct engine *e)
{
    proving_close(e->proving);
    head_proof_close(e->proof);
    e->proving = NULL;
    e->proof = NULL;
}

/* True if what is found is kept for the next start. */
static bool keeps_proofs(const struct engine *e)
{
    return e->options.pack_cache && strcmp(e->options.pack_cache, "off") != 0;
}

/* Uses what an earlier start has kept; false: there is nothing. */
static bool take_kept(struct engine *e)
{
    struct head_table table = *head_proof_table(e->proof);
    struct error err;
    e->proof_file.path[0] = '\0';
    if (!keeps_proofs(e)) return false;
    int rc = proof_file_find(&e->proof_file, e->options.pack_cache, e->head->head_folder,
                             head_proof_digest(e->proof), engine_group(e), &err);
    if (!rc) rc = proof_file_read(&e->proof_file, &table, &err);
    if (!rc) e->proven = table;
    if (rc && rc != ERR_NOT_FOUND) {
        log_line(LOG_LEVEL_WARN, "proof_not_read", "text=\"%s\"", err.text);
    }
    return rc == 0;
}

static int open_proving(struct engine *e, struct error *err)
{
    struct proving_options options = {.target = e->options.target,
                                      .pool = &e->target_pool,
                                      .proof = e->proof,
                                      .tok = e->options.tok};
    struct error no_template;
    if (e->options.chat) served_chat_get(e->options.chat, &options.chat, &no_template);
    int rc = proving_open(&e->proving, &options, err);
    chat_template_close(options.chat);
    return rc;
}

int engine_begin_proof(struct engine *e, struct error *err)
{
    struct error why;
    const struct target_description *d = engine_group(e);
    if (!e->head) return 0;
    engine_end_proof(e);
    if (e->proven.n_trials > 0 && e->proven_by == d->model_fingerprint) return 0;
    e->proven.n_trials = 0;
    use_head(e, e->options.head_unchecked);
    if (e->options.head_unchecked && !keeps_proofs(e)) return 0;
    if (drafter_open_proof(e->head, d->n_layers, PROVING_TEXT_TOKENS, &e->proof, &why)) {
        fail(e, &why);
        return 0;
    }
    e->proven_by = d->model_fingerprint;
    bool is_kept = take_kept(e);
    if (!is_kept && !e->options.head_unchecked) return open_proving(e, err);
    if (is_kept) take_head(e, &e->proven);
    engine_end_proof(e);
    return 0;
}

/* The proof is over. True: the head is a draft model now. */
static bool conclude(struct engine *e)
{
    struct error err;
    e->proven = *head_proof_table(e->proof);
    engine_end_proof(e);
    if (e->proof_file.path[0] && proof_file_write(&e->proof_file, &e->proven, &err)) {
        log_line(LOG_LEVEL_WARN, "proof_not_kept", "text=\"%s\"", err.text);
    }
    return take_head(e, &e->proven);
}

int engine_prove(struct engine *e, bool *is_new, struct error *err)
{
    bool is_done = false;
    *is_new = false;
    if (!groups_enter_calibration(e->options.groups)) return 0;
    int rc = proving_next(e->proving, &is_done, err);
    groups_leave_calibration(e->options.groups);
    if (!rc && is_done) *is_new = conclude(e);
    if (!rc || !target_is_connected(e->options.target)) return rc;
    engine_end_proof(e);
    fail(e, err);
    return 0;
}
