/* Drafting on while the target verifies. */
#include "coordinator/ahead.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    ARENA_BYTES = 16 << 20,
    TRIALS = 8,        /* rounds of either kind before they are compared */
    PROBE_ROUNDS = 64, /* one round of so many is of the kind that seems longer */
    OUTLIER = 4        /* a time that is so much longer than the mean was somebody else's */
};

/* A running mean; the first few count in full, later ones with a weight of 1 / TRIALS. */
struct mean {
    double value;
    int n;
};

static void mean_add(struct mean *mean, double value)
{
    if (mean->n >= TRIALS && value > OUTLIER * mean->value) value = OUTLIER * mean->value;
    if (mean->n < TRIALS) mean->n++;
    mean->value += (value - mean->value) / mean->n;
}

/* Who has guessed ahead: a sequence at a length. */
struct assumption {
    const struct sequence *seq;
    int64_t admitted_us; /* tells a sequence from its successor in the same place */
    int32_t next;        /* the token behind the guesses */
};

struct ahead {
    enum ahead_mode mode;
    struct drafter *drafter;
    struct arena arenas[2]; /* q's of what is being made, and of what is being verified */
    int arena;

    struct assumption assumed;
    struct draft draft; /* of the next round */
    bool is_predicted;  /* assumed.next is there */
    int n_draft_kv;     /* when the work was stopped */

    /* While the target verifies. */
    struct sequence *seq;
    int n_verified, k;
    const int32_t *eos_ids;
    int n_eos;
    bool is_working;
    int64_t start_us;

    struct mean round_us[GENERATE_DRAFT_MAX + 1]
                        [2]; /* [K][ahead]: visible drafting and verifying */
    struct mean verify_us, token_us;
    uint32_t n_rounds;
};

int ahead_parse_mode(const char *text, enum ahead_mode *mode, struct error *err)
{
    static const char *const words[] = {
        [AHEAD_AUTO] = "auto", [AHEAD_ON] = "on", [AHEAD_OFF] = "off"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *mode = (enum ahead_mode)i;
        return 0;
    }
    return error_set(err, ERR_ARGUMENT, "--draft-ahead %s: expected auto, on or off", text);
}

int ahead_open(struct ahead **ahead, enum ahead_mode mode, struct drafter *drafter,
               struct error *err)
{
    int rc = 0;
    struct ahead *a = NULL;
    *ahead = NULL;
    TRY(mem_array(&a, 1, sizeof *a, err));
    a->mode = mode;
    a->drafter = drafter;
    TRY(arena_open(&a->arenas[0], ARENA_BYTES, err));
    TRY(arena_open(&a->arenas[1], ARENA_BYTES, err));
    *ahead = a;
    a = NULL;
out:
    ahead_close(a);
    return rc;
}

void ahead_close(struct ahead *a)
{
    if (!a) return;
    arena_close(&a->arenas[0]);
    arena_close(&a->arenas[1]);
    free(a);
}

/* base is reached only when all guesses were accepted; they and the token behind them are then in the
 * text. */
static bool came_true(const struct ahead *a, const struct sequence *seq)
{
    return a->is_predicted && a->assumed.seq == seq && a->assumed.admitted_us == seq->admitted_us &&
           seq->n_tokens == a->draft.base && seq->tokens[seq->n_tokens - 1] == a->assumed.next;
}

void ahead_take(struct ahead *a, struct sequence *seq, int k, struct draft *draft)
{
    if (came_true(a, seq) && a->draft.n > 0 && k > 0) {
        *draft = a->draft;
        seq->n_draft_kv = a->n_draft_kv;
        if (draft->n > k) {
            draft->n = k;
            draft->is_over = false;
        }
    }
    a->is_predicted = false;
}

/* Of the two ways the one with the shorter rounds, and now and then the other. */
static bool is_worth_it(const struct ahead *a, int k)
{
    const struct mean *off = &a->round_us[k][0], *on = &a->round_us[k][1];
    if (a->mode != AHEAD_AUTO) return a->mode == AHEAD_ON;
    if (off->n < TRIALS || on->n < TRIALS) return on->n <= off->n;
    bool is_shorter = on->value < off->value;
    return a->n_rounds % PROBE_ROUNDS == 0 ? !is_shorter : is_shorter;
}

void ahead_begin(struct ahead *a, struct sequence *seq, const struct draft *draft, int k,
                 const int32_t *eos_ids, int n_eos)
{
    a->n_rounds++;
    a->n_verified = draft->n;
    a->is_predicted = false;
    a->is_working = draft->n > 0 && !draft->is_over && k > 0 && is_worth_it(a, draft->n);
    a->start_us = clock_now_us();
    if (!a->is_working) return;
    a->seq = seq;
    a->assumed = (struct assumption){seq, seq->admitted_us, 0};
    a->draft = (struct draft){.base = seq->n_tokens + draft->n + 1};
    a->k = k;
    a->eos_ids = eos_ids;
    a->n_eos = n_eos;
    a->arena = !a->arena;
    arena_reset(&a->arenas[a->arena]);
}

/* The answer would have to wait for the token. */
static bool is_too_late(const struct ahead *a, int64_t now_us)
{
    if (a->mode == AHEAD_ON || a->verify_us.n < TRIALS || a->token_us.n < TRIALS) return false;
    return (double)(now_us - a->start_us) + a->token_us.value > a->verify_us.value;
}

/* The prediction first: the guesses follow it. Behind an end of sequence there is nothing. */
static int work_once(struct ahead *a, struct error *err)
{
    struct arena *arena = &a->arenas[a->arena];
    if (a->is_predicted) {
        return drafter_propose(a->drafter, a->seq, a->draft.n + 1, a->eos_ids, a->n_eos, arena,
                               &a->draft, err);
    }
    int position = a->draft.base - 1;
    int rc = drafter_predict(a->drafter, a->seq, position, arena, &a->assumed.next, err);
    a->seq->tokens[position] = a->assumed.next;
    a->is_predicted = rc == 0;
    return rc;
}

static bool is_one_of(const int32_t *ids, int n, int32_t id)
{
    for (int i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

bool ahead_work(void *ahead)
{
    struct ahead *a = ahead;
    struct error err;
    int64_t now_us = clock_now_us();
    if (!a->is_working || a->draft.n == a->k || a->draft.is_over || is_too_late(a, now_us)) {
        return false;
    }
    if (a->is_predicted && is_one_of(a->eos_ids, a->n_eos, a->assumed.next)) return false;
    if (work_once(a, &err)) {
        a->is_working = a->is_predicted = false;
        return false;
    }
    mean_add(&a->token_us, (double)(clock_now_us() - now_us));
    return true;
}

void ahead_end(struct ahead *a, struct sequence *seq, int64_t verify_us, int64_t draft_us)
{
    if (a->is_predicted) a->n_draft_kv = seq->n_draft_kv;
    mean_add(&a->verify_us, (double)verify_us);
    if (a->n_verified > 0) {
        mean_add(&a->round_us[a->n_verified][a->is_working], (double)(verify_us + draft_us));
    }
    a->is_working = false;
}
