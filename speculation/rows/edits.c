/* Lists of edits. The changes that follow from committed tokens are kept sorted by id, so a
 * position's list is a copy of them with the few changes that its guesses, its banned sequences and
 * its place in the answer add. */
#include "speculation/rows/edits.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

enum { WORD_BITS = 64 };

struct edits {
    const struct edit_rules *rules;
    int n_vocab;
    bool has_repetition; /* counts tokens of prompt and answer */
    bool has_penalty;    /* counts tokens of the answer */
    int n, capacity;
    struct edit *changes;   /* [n] ids ascend; what committed tokens, biases and bans of one make */
    int *n_answered;        /* [n] how often each is in the answer */
    int n_tokens, n_answer; /* committed: in all, of the answer */
    int32_t tail[EDIT_BAN_TOKENS_MAX]; /* the last tokens: that at position i is [i % MAX] */
};

void edit_rules_init(struct edit_rules *rules)
{
    *rules = (struct edit_rules){.repetition_penalty = 1};
}

static bool has_penalty(const struct edit_rules *rules)
{
    return rules->presence_penalty != 0 || rules->frequency_penalty != 0;
}

bool edit_rules_change(const struct edit_rules *rules)
{
    return rules->repetition_penalty != 1 || has_penalty(rules) || rules->n_biases > 0 ||
           rules->n_bans > 0 || (rules->min_tokens > 0 && rules->n_end_ids > 0);
}

static int check_range(const char *name, float value, float low, float high, struct error *err)
{
    if (value >= low && value <= high) return 0; /* NaN is not */
    return error_set(err, ERR_ARGUMENT, "%s %g is not within %g to %g", name, (double)value,
                     (double)low, (double)high);
}

static int check_id(const char *name, int32_t id, int n_vocab, struct error *err)
{
    if (id >= 0 && id < n_vocab) return 0;
    return error_set(err, ERR_ARGUMENT, "%s id %d is outside of the vocabulary of %d", name,
                     (int)id, n_vocab);
}

static int check_ban(const struct edit_ban *ban, int n_vocab, struct error *err)
{
    int rc = 0;
    if (ban->n < 1 || ban->n > EDIT_BAN_TOKENS_MAX) {
        return error_set(err, ERR_ARGUMENT, "a banned sequence has %d tokens, not 1 to %d", ban->n,
                         EDIT_BAN_TOKENS_MAX);
    }
    for (int i = 0; i < ban->n; i++) {
        TRY(check_id("banned", ban->ids[i], n_vocab, err));
    }
out:
    return rc;
}

int edit_rules_check(const struct edit_rules *rules, int n_vocab, struct error *err)
{
    int rc = 0;
    TRY(check_range("repetition_penalty", rules->repetition_penalty, REPETITION_PENALTY_MIN,
                    REPETITION_PENALTY_MAX, err));
    TRY(check_range("presence_penalty", rules->presence_penalty, -EDIT_PENALTY_MAX,
                    EDIT_PENALTY_MAX, err));
    TRY(check_range("frequency_penalty", rules->frequency_penalty, -EDIT_PENALTY_MAX,
                    EDIT_PENALTY_MAX, err));
    if (rules->min_tokens < 0) {
        return error_set(err, ERR_ARGUMENT, "min_tokens %d is negative", rules->min_tokens);
    }
    for (int i = 0; i < rules->n_biases; i++) {
        const struct edit_bias *bias = &rules->biases[i];
        TRY(check_id("biased", bias->id, n_vocab, err));
        if (bias->bias == -INFINITY) continue;
        TRY(check_range("bias", bias->bias, -EDIT_BIAS_MAX, EDIT_BIAS_MAX, err));
    }
    for (int i = 0; i < rules->n_bans; i++) {
        TRY(check_ban(&rules->bans[i], n_vocab, err));
    }
out:
    return rc;
}

float edit_apply(const struct edit *edit, float logit)
{
    float x = logit > 0 ? logit / edit->divisor : logit * edit->divisor;
    x = x <= FLT_MAX ? x : FLT_MAX; /* a divisor below 1 may overflow, and +inf - inf is NaN */
    x = x - edit->minus;
    x = x + edit->bias;
    return x <= FLT_MAX ? x : FLT_MAX;
}

bool edit_can_raise(const struct edit *edit)
{
    return edit->divisor < 1 || edit->minus < 0 || edit->bias > 0;
}

/* Where id is or would be. */
static int place_of(const struct edit *edits, int n, int32_t id)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (edits[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

const struct edit *edit_find(const struct edit_list *list, int32_t id)
{
    if (!list) return NULL;
    int at = place_of(list->edits, list->n, id);
    return at < list->n && list->edits[at].id == id ? &list->edits[at] : NULL;
}

int edits_apply_items(const struct edit_list *list, struct select_item *items, int n)
{
    bool is_changed = false;
    struct select_heap heap = {.items = items, .capacity = n};
    for (int i = 0; list && list->n > 0 && i < n && !is_changed; i++) {
        is_changed = edit_find(list, items[i].id) != NULL;
    }
    if (!is_changed) return n;
    for (int i = 0; i < n; i++) { /* the heap grows over what was read */
        const struct edit *edit = edit_find(list, items[i].id);
        double score = edit ? (double)edit_apply(edit, (float)items[i].score) : items[i].score;
        if (score > -HUGE_VAL) select_offer(&heap, score, items[i].id);
    }
    select_sort_best(&heap);
    return heap.n;
}

static void mark(uint64_t *bits, int32_t id)
{
    bits[id / WORD_BITS] |= (uint64_t)1 << (id % WORD_BITS);
}

/* Marks the ids that the rules change whatever the tokens are. */
static void mark_static(const struct edit_rules *rules, uint64_t *bits)
{
    for (int i = 0; i < rules->n_biases; i++) {
        mark(bits, rules->biases[i].id);
    }
    for (int i = 0; i < rules->n_bans; i++) {
        if (rules->bans[i].n == 1) mark(bits, rules->bans[i].ids[0]);
    }
}

static void apply_static(struct edits *e)
{
    const struct edit_rules *rules = e->rules;
    for (int i = 0; i < rules->n_biases; i++) {
        const struct edit_bias *bias = &rules->biases[i];
        e->changes[place_of(e->changes, e->n, bias->id)].bias += bias->bias;
    }
    for (int i = 0; i < rules->n_bans; i++) {
        if (rules->bans[i].n > 1) continue;
        e->changes[place_of(e->changes, e->n, rules->bans[i].ids[0])].bias = -INFINITY;
    }
}

/* The marked ids as changes, ascending. prompt: those with the repetition penalty. */
static void list_marked(struct edits *e, const uint64_t *fixed, const uint64_t *prompt, int n_words)
{
    for (int w = 0; w < n_words; w++) {
        for (uint64_t bits = fixed[w] | prompt[w]; bits; bits &= bits - 1) {
            int bit = __builtin_ctzll(bits);
            bool is_seen = prompt[w] >> bit & 1;
            e->changes[e->n++] = (struct edit){
                .id = w * WORD_BITS + bit,
                .divisor = is_seen ? e->rules->repetition_penalty : 1,
            };
        }
    }
}

static size_t count_marked(const uint64_t *fixed, const uint64_t *prompt, int n_words)
{
    size_t n = 0;
    for (int w = 0; w < n_words; w++) {
        n += (size_t)__builtin_popcountll(fixed[w] | prompt[w]);
    }
    return n;
}

/* Takes the memory for n_answer tokens on top of what is known now, and lists that. */
static int list_known(struct edits *e, const int32_t *prompt, int n_prompt, int n_answer,
                      struct error *err)
{
    int rc = 0, n_words = (e->n_vocab + WORD_BITS - 1) / WORD_BITS;
    uint64_t *bits = NULL;
    TRY(mem_array(&bits, 2 * (size_t)n_words, sizeof *bits, err));
    uint64_t *fixed = bits, *seen = bits + n_words;
    mark_static(e->rules, fixed);
    for (int i = 0; e->has_repetition && i < n_prompt; i++) {
        assert(prompt[i] >= 0 && prompt[i] < e->n_vocab);
        mark(seen, prompt[i]);
    }
    size_t n = count_marked(fixed, seen, n_words);
    if (e->has_repetition || e->has_penalty) n += (size_t)n_answer;
    e->capacity = n < (size_t)e->n_vocab ? (int)n : e->n_vocab;
    TRY(mem_array(&e->changes, (size_t)e->capacity, sizeof *e->changes, err));
    TRY(mem_array(&e->n_answered, (size_t)e->capacity, sizeof *e->n_answered, err));
    list_marked(e, fixed, seen, n_words);
    apply_static(e);
out:
    free(bits);
    return rc;
}

static void remember(struct edits *e, const int32_t *tokens, int n)
{
    for (int i = 0; i < n; i++) {
        e->tail[e->n_tokens++ % EDIT_BAN_TOKENS_MAX] = tokens[i];
    }
}

int edits_open(struct edits **edits, const struct edit_rules *rules, int n_vocab,
               const int32_t *prompt, int n_prompt, int n_answer, struct error *err)
{
    int rc = 0;
    struct edits *e = NULL;
    TRY(mem_array(&e, 1, sizeof *e, err));
    e->rules = rules;
    e->n_vocab = n_vocab;
    e->has_repetition = rules->repetition_penalty != 1;
    e->has_penalty = has_penalty(rules);
    TRY(list_known(e, prompt, n_prompt, n_answer, err));
    remember(e, prompt, n_prompt);
out:
    if (rc) edits_close(e);
    *edits = rc ? NULL : e;
    return rc;
}

void edits_close(struct edits *edits)
{
    if (!edits) return;
    free(edits->changes);
    free(edits->n_answered);
    free(edits);
}

/* Sets what a token that is n times in the answer gets. */
static void set_counts(const struct edits *e, struct edit *edit, int n)
{
    const struct edit_rules *rules = e->rules;
    edit->divisor = rules->repetition_penalty;
    edit->minus = rules->frequency_penalty * (float)n + rules->presence_penalty;
}

/* The change of id in edits[*n], which becomes one that changes nothing when there is none yet. */
static int find_or_insert(struct edit *edits, int *n, int32_t id, bool *is_new)
{
    int at = place_of(edits, *n, id);
    *is_new = at == *n || edits[at].id != id;
    if (!*is_new) return at;
    memmove(&edits[at + 1], &edits[at], (size_t)(*n - at) * sizeof *edits);
    edits[at] = (struct edit){.id = id, .divisor = 1};
    ++*n;
    return at;
}

void edits_commit(struct edits *edits, const int32_t *tokens, int n)
{
    remember(edits, tokens, n);
    edits->n_answer += n;
    if (!edits->has_repetition && !edits->has_penalty) return;
    for (int i = 0; i < n; i++) {
        bool is_new;
        int *counts = edits->n_answered;
        assert(tokens[i] >= 0 && tokens[i] < edits->n_vocab);
        int n_before = edits->n;
        int at = find_or_insert(edits->changes, &edits->n, tokens[i], &is_new);
        assert(edits->n <= edits->capacity);
        if (is_new) {
            memmove(&counts[at + 1], &counts[at], (size_t)(n_before - at) * sizeof *counts);
            counts[at] = 0;
        }
        set_counts(edits, &edits->changes[at], ++counts[at]);
    }
}

/* A position after committed tokens and guesses. */
struct place {
    const struct edits *edits;
    const int32_t *guesses;
    int n_guesses;
};

/* The token `back` before the position; back = 1 is the one right before it. */
static int32_t token_before(const struct place *place, int back)
{
    if (back <= place->n_guesses) return place->guesses[place->n_guesses - back];
    int position = place->edits->n_tokens - (back - place->n_guesses);
    return place->edits->tail[position % EDIT_BAN_TOKENS_MAX];
}

/* True if the tokens before the position end in all but the last token of a banned sequence, prompt
 * included, as transformers' bad_words_ids has it. Sequences of one token are banned everywhere
 * already. */
static bool ban_is_due(const struct place *place, const struct edit_ban *ban)
{
    int n = ban->n - 1;
    if (n == 0 || n > place->edits->n_tokens + place->n_guesses) return false;
    for (int back = 1; back <= n; back++) {
        if (ban->ids[n - back] != token_before(place, back)) return false;
    }
    return true;
}

static bool ends_are_banned(const struct place *place)
{
    return place->edits->n_answer + place->n_guesses < place->edits->rules->min_tokens;
}

static void ban(struct edit *edits, int *n, int32_t id)
{
    bool is_new;
    edits[find_or_insert(edits, n, id, &is_new)].bias = -INFINITY;
}

static int count_answered(const struct place *place, int32_t id)
{
    const struct edits *e = place->edits;
    int at = place_of(e->changes, e->n, id);
    int count = at < e->n && e->changes[at].id == id ? e->n_answered[at] : 0;
    for (int i = 0; i < place->n_guesses; i++) {
        count += place->guesses[i] == id;
    }
    return count;
}

/* Adds what belongs to this position alone. */
static void add_changes(const struct place *place, struct edit *edits, int *n)
{
    const struct edits *e = place->edits;
    const struct edit_rules *rules = e->rules;
    for (int i = 0; i < place->n_guesses && (e->has_repetition || e->has_penalty); i++) {
        bool is_new;
        int32_t id = place->guesses[i];
        if (id >= e->n_vocab) continue; /* the draft's table is longer: it will be rejected */
        int at = find_or_insert(edits, n, id, &is_new);
        set_counts(e, &edits[at], count_answered(place, id));
    }
    for (int i = 0; i < rules->n_bans; i++) {
        const struct edit_ban *sequence = &rules->bans[i];
        if (ban_is_due(place, sequence)) ban(edits, n, sequence->ids[sequence->n - 1]);
    }
    for (int i = 0; i < rules->n_end_ids && ends_are_banned(place); i++) {
        int32_t id = rules->end_ids[i];
        if (id >= 0 && id < e->n_vocab) ban(edits, n, id);
    }
}

/* At most so many ids come on top of those of committed tokens. */
static int count_more(const struct place *place)
{
    const struct edit_rules *rules = place->edits->rules;
    int n = place->edits->has_repetition || place->edits->has_penalty ? place->n_guesses : 0;
    for (int i = 0; i < rules->n_bans; i++) {
        n += ban_is_due(place, &rules->bans[i]);
    }
    return n + (ends_are_banned(place) ? rules->n_end_ids : 0);
}

int edits_at(const struct edits *edits, const int32_t *guesses, int n_guesses, struct arena *arena,
             const struct edit_list **list, struct error *err)
{
    const struct place place = {edits, guesses, n_guesses};
    size_t n_most = (size_t)edits->n + (size_t)count_more(&place);
    struct edit_list *made = arena_take(arena, 1, sizeof *made);
    struct edit *changes = made ? arena_take(arena, n_most, sizeof *changes) : NULL;
    if (!changes) {
        return error_set(err, ERR_NO_MEMORY, "the arena has no room for the changes of %zu tokens",
                         n_most);
    }
    made->n = edits->n;
    memcpy(changes, edits->changes, (size_t)edits->n * sizeof *changes);
    add_changes(&place, changes, &made->n);
    made->edits = changes;
    *list = made;
    return 0;
}
