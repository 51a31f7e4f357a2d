/* Drafters over recorded texts, with the evidence that they give the planner for each offer. */
#include "client/replay/drafters.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text/name_list.h"

const char *const replay_names[N_REPLAY_FINDERS] = {"session", "ngram", "store", "datastore",
                                                    "recycled"};
_Static_assert((int)N_REPLAY_FINDERS <= (int)PLANNER_FINDERS, "the planner tells them apart");

/* ---- opening ---- */

static int open_datastore(struct replay_drafter *d, const struct name_list_item *item,
                          struct error *err)
{
    char *path = strndup(item->file, item->file_len);
    if (!path) return error_set(err, ERR_NO_MEMORY, "no memory for the name of a datastore");
    int rc = datastore_open(&d->datastore, path, err);
    free(path);
    return rc;
}

static int open_one(struct replay_drafter *d, const struct name_list_item *item, struct error *err)
{
    *d = (struct replay_drafter){.finder = (enum replay_finder)item->index};
    if (d->finder == REPLAY_DATASTORE) return open_datastore(d, item, err);
    if (d->finder == REPLAY_RECYCLED) return recycled_open(&d->recycled, REPLAY_LISTS, err);
    return d->finder == REPLAY_STORE ? store_open(&d->store, REPLAY_STORE_TOKENS, err) : 0;
}

/* A finder that the coordinator has and that cannot be replayed. */
static int refuse_lookahead(const char *names, struct error *err)
{
    static const char lookahead[] = "lookahead";
    for (const char *word = names;; word++) {
        size_t len = strcspn(word, ",");
        if (len == sizeof lookahead - 1 && memcmp(word, lookahead, len) == 0) {
            return error_set(err, ERR_ARGUMENT,
                             "--drafter: lookahead cannot be replayed, because it learns from what "
                             "the target says after guesses, and a recorded text does not tell "
                             "that");
        }
        word += len;
        if (!*word) return 0;
    }
}

static int read_list(const char *names, struct name_list_item *items, int *n, struct error *err)
{
    struct name_list_name known[N_REPLAY_FINDERS];
    for (int i = 0; i < N_REPLAY_FINDERS; i++) {
        known[i] = (struct name_list_name){replay_names[i], i == REPLAY_DATASTORE};
    }
    const struct name_list list = {"--drafter", known, N_REPLAY_FINDERS, false};
    return name_list_read(&list, names, items, n, err);
}

int replay_drafters_open(struct replay_drafter *drafters, int *n, const char *names,
                         struct error *err)
{
    struct name_list_item items[NAME_LIST_NAMES_MAX];
    int rc = 0, n_items;
    *n = 0;
    TRY(refuse_lookahead(names, err));
    TRY(read_list(names, items, &n_items, err));
    for (int i = 0; i < n_items; i++) {
        TRY(open_one(&drafters[(*n)++], &items[i], err));
    }
out:
    return rc;
}

void replay_drafter_close(struct replay_drafter *d)
{
    suffix_close(d->suffix);
    first_places_close(d->places);
    store_close(d->store);
    datastore_close(d->datastore);
    recycled_close(d->recycled);
    d->recycled = NULL;
    d->datastore = NULL;
    d->places = NULL;
    d->suffix = NULL;
    d->store = NULL;
}

/* ---- a text ---- */

/* Takes over tokens of an answer, each of which was the target's best after the one before. */
static void recycle(struct replay_drafter *d, const int32_t *tokens, int n)
{
    for (int i = 0; d->recycled && i < n; i++) {
        recycled_add(d->recycled, 0, d->last, tokens[i], &tokens[i], 1);
        d->last = tokens[i];
    }
}

static int add(struct replay_drafter *d, const int32_t *tokens, size_t n, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; d->suffix && i < n; i++) {
        TRY(suffix_add(d->suffix, tokens[i], err));
    }
    for (size_t i = 0; d->places && i < n; i++) {
        TRY(first_places_add(d->places, tokens[i], err));
    }
out:
    return rc;
}

int replay_drafter_begin(struct replay_drafter *d, const struct token_ids *prompt,
                         struct error *err)
{
    int rc = 0;
    int64_t start = clock_now_ns();
    if (d->finder == REPLAY_SESSION) TRY(suffix_open(&d->suffix, err));
    if (d->finder == REPLAY_NGRAM) TRY(first_places_open(&d->places, err));
    TRY(add(d, prompt->data, prompt->n, err));
    d->last = prompt->n ? prompt->data[prompt->n - 1] : -1;
out:
    d->read_ns += clock_now_ns() - start;
    return rc;
}

int replay_drafter_add(struct replay_drafter *d, const int32_t *tokens, int n, struct error *err)
{
    int64_t start = clock_now_ns();
    int rc = add(d, tokens, (size_t)n, err);
    recycle(d, tokens, n);
    d->busy_ns += clock_now_ns() - start;
    return rc;
}

static void note_bytes(struct replay_drafter *d, size_t bytes, size_t n_tokens)
{
    if (n_tokens < d->n_tokens) return;
    d->bytes = bytes;
    d->n_tokens = n_tokens;
}

void replay_drafter_end(struct replay_drafter *d, const struct token_ids *text)
{
    int64_t start = clock_now_ns();
    if (d->suffix) note_bytes(d, suffix_bytes(d->suffix), (size_t)suffix_length(d->suffix));
    if (d->places) note_bytes(d, first_places_bytes(d->places), first_places_length(d->places));
    suffix_close(d->suffix);
    first_places_close(d->places);
    d->suffix = NULL;
    d->places = NULL;
    if (d->store) {
        store_add(d->store, 0, text->data, (int)text->n);
        d->busy_ns += clock_now_ns() - start;
        note_bytes(d, store_bytes(d->store), REPLAY_STORE_TOKENS);
    }
    if (d->recycled) note_bytes(d, recycled_bytes(d->recycled), REPLAY_LISTS);
    if (d->datastore)
        note_bytes(d, 8 * datastore_length(d->datastore), datastore_length(d->datastore));
}

/* ---- finding ---- */

static void find_session(const struct replay_drafter *d, struct replay_found *found)
{
    struct suffix_place place = suffix_end(d->suffix);
    found->offer.k_max = suffix_copy(d->suffix, &place, found->tokens, DRAFT_MAX);
    found->offer.evidence = planner_evidence_of_match(place.length);
}

/* Finds the first place of the last tokens, as many of them as possible, and copies what follows
 * it. */
static void find_ngram(const struct replay_drafter *d, const struct token_ids *text,
                       struct replay_found *found)
{
    int32_t at = -1;
    int n = FIRST_PLACES_MOST;
    for (; n >= FIRST_PLACES_LEAST; n--) {
        if ((at = first_places_find(d->places, n)) >= 0) break;
    }
    if (at < 0) return;
    size_t from = (size_t)at + (size_t)n, left = text->n - from;
    found->offer.k_max = left < DRAFT_MAX ? (int)left : DRAFT_MAX;
    found->offer.evidence = n;
    memcpy(found->tokens, text->data + from, (size_t)found->offer.k_max * sizeof *found->tokens);
}

static void find_counted(const struct replay_drafter *d, const struct token_ids *text,
                         struct replay_found *found)
{
    struct store_guesses guesses;
    const int32_t *end = text->data + text->n;
    int n = text->n < STORE_MATCH_MAX ? (int)text->n : STORE_MATCH_MAX;
    if (d->store) {
        store_find(d->store, 0, end - n, n, 1, DRAFT_MAX, &guesses);
    } else {
        datastore_find(d->datastore, end - n, n, 1, DRAFT_MAX, &guesses);
    }
    if (guesses.n == 0) return;
    found->offer.evidence = planner_evidence_of_counts(guesses.match, guesses.guesses[0].count,
                                                       guesses.guesses[0].total);
    found->offer.k_max = guesses.n;
    for (int i = 0; i < guesses.n; i++) {
        found->tokens[i] = guesses.guesses[i].token;
    }
}

static void find_recycled(const struct replay_drafter *d, struct replay_found *found)
{
    const struct recycled_list *lists[DRAFT_MAX];
    int n = recycled_chain(d->recycled, 0, d->last, INT32_MAX, lists, DRAFT_MAX);
    found->offer.k_max = n;
    for (int i = 0; i < n; i++) {
        found->tokens[i] = lists[i]->successors[0];
    }
    if (n == 0) return;
    found->offer.evidence =
        planner_evidence_of_share(recycled_count_right(lists[0]), lists[0]->n_tested);
}

void replay_drafter_find(struct replay_drafter *d, const struct token_ids *text, int index,
                         struct replay_found *found)
{
    int64_t start = clock_now_ns();
    found->offer = (struct planner_offer){.finder = index};
    if (d->finder == REPLAY_SESSION) find_session(d, found);
    if (d->finder == REPLAY_NGRAM) find_ngram(d, text, found);
    if (d->store || d->datastore) find_counted(d, text, found);
    if (d->recycled) find_recycled(d, found);
    d->busy_ns += clock_now_ns() - start;
}
