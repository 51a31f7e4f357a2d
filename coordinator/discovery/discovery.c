/* Addresses, what they said last, and the groups that follow from it. */
#include "coordinator/discovery/discovery.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "coordinator/discovery/resolver.h"
#include "rpc/client.h"

enum {
    ASK_US = 1000000,  /* that an answer may take */
    PAUSE_US = 200000, /* from an answer to the next question, ... */
    HASTE_US = 5000,   /* ... and at first, of one who was waited for HASTE_SHARE times as long */
    HASTE_SHARE = 8,
    CALM_US = 2000000,    /* the same for another address of a rank that is in use */
    FRESH_US = 1000000,   /* an older answer may not be true any more */
    MISSED_US = 60000000, /* for which a lost group is looked for often */
    HURRY_US = 250000,    /* between two look-ups of a name while a group is wanted, ... */
    LEISURE_US = 2000000  /* ... and while all that there were are in use */
};

/* An address, and who is there. */
struct place {
    char address[TARGET_ADDRESS_BYTES];
    bool is_found;           /* by a name; false: --target has the address itself */
    bool is_listed, is_used; /* --target leads there; its group is taken */
    struct rpc_stream *question;
    int64_t deadline_us, next_us; /* of the question; when to ask again */
    int64_t answered_us;          /* 0 = never */
    int64_t since_us;             /* it is waited for; 0 = it has never been asked */
    struct target_description answer;
    struct error err; /* of the last question; code 0: `answer` is its answer, if there is one */
};

struct discovery {
    struct rpc_client *client;
    const char *server_name;
    struct resolver *resolver; /* NULL: there are no names */
    struct target_list list;
    struct resolved *resolved; /* [list.n_names] */
    struct place **places;
    size_t n_places, capacity;
    int64_t calm_us; /* names are looked up at leisure from then on */
};

static int add_place(struct discovery *d, const char *address, bool is_found, struct error *err)
{
    struct place *place = NULL;
    int rc = mem_grow(&d->places, &d->capacity, d->n_places + 1, err);
    if (!rc) rc = mem_array(&place, 1, sizeof *place, err);
    if (rc) return rc;
    strcpy(place->address, address);
    place->is_found = is_found;
    place->is_listed = true;
    d->places[d->n_places++] = place;
    return 0;
}

/* A rank that was found by a name shows a certificate for that name, not for its address. */
static const char *server_name(const struct discovery_options *options, const struct discovery *d)
{
    if (options->server_name) return options->server_name;
    return d->list.n_names && !d->list.n_addresses ? d->list.names[0].name : NULL;
}

const char *discovery_server_name(const struct discovery *d)
{
    return d->server_name;
}

int discovery_open(struct discovery **discovery, const struct discovery_options *options,
                   struct error *err)
{
    struct discovery *d = NULL;
    int rc = 0;
    *discovery = NULL;
    TRY(mem_array(&d, 1, sizeof *d, err));
    d->list = *options->list;
    TRY(mem_array(&d->resolved, (size_t)d->list.n_names, sizeof *d->resolved, err));
    for (int i = 0; i < d->list.n_addresses; i++) {
        TRY(add_place(d, d->list.addresses[i], false, err));
    }
    d->server_name = server_name(options, d);
    const struct rpc_client_options client = {.certificates = options->certificates,
                                              .server_name = d->server_name,
                                              .api_key = options->group_key};
    TRY(rpc_client_open(&d->client, &client, err));
    if (d->list.n_names) {
        TRY(resolver_open(&d->resolver, d->list.names, d->list.n_names, err));
    }
    *discovery = d;
    d = NULL;
out:
    discovery_close(d);
    return rc;
}

void discovery_close(struct discovery *d)
{
    if (!d) return;
    for (size_t i = 0; i < d->n_places; i++) {
        rpc_stream_close(d->places[i]->question);
        free(d->places[i]);
    }
    free(d->places);
    rpc_client_close(d->client);
    resolver_close(d->resolver);
    free(d->resolved);
    free(d);
}

/* ---- names ---- */

static struct place *find(const struct discovery *d, const char *address)
{
    for (size_t i = 0; i < d->n_places; i++) {
        if (strcmp(d->places[i]->address, address) == 0) return d->places[i];
    }
    return NULL;
}

/* Forgets the places that --target does not lead to any more, and whose group is not in use. */
static void drop_places(struct discovery *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n_places; i++) {
        struct place *place = d->places[i];
        if (place->is_listed || place->is_used) {
            d->places[n++] = place;
            continue;
        }
        rpc_stream_close(place->question);
        free(place);
    }
    d->n_places = n;
}

static bool is_named(const struct discovery *d, const char *address)
{
    for (int i = 0; i < d->list.n_names; i++) {
        for (int k = 0; k < d->resolved[i].n; k++) {
            if (strcmp(d->resolved[i].addresses[k], address) == 0) return true;
        }
    }
    return false;
}

static void take_names(struct discovery *d)
{
    struct error err; /* without memory: with the next change */
    bool has_news = false;
    for (int i = 0; i < d->list.n_names; i++) {
        if (!resolver_get(d->resolver, i, &d->resolved[i])) continue;
        has_news = true;
        log_line(LOG_LEVEL_DEBUG, "name_changed", "name=%s addresses=%d text=\"%s\"",
                 d->list.names[i].name, d->resolved[i].n, d->resolved[i].why);
    }
    if (!has_news) return;
    for (size_t i = 0; i < d->n_places; i++) {
        struct place *place = d->places[i];
        place->is_listed = !place->is_found || is_named(d, place->address);
    }
    for (int i = 0; i < d->list.n_names; i++) {
        for (int k = 0; k < d->resolved[i].n; k++) {
            const char *address = d->resolved[i].addresses[k];
            if (!find(d, address)) add_place(d, address, true, &err);
        }
    }
    drop_places(d);
}

/* ---- questions ---- */

static int begin_question(struct discovery *d, struct place *place, struct error *err)
{
    int rc = 0;
    TRY(rpc_stream_open(&place->question, d->client, place->address,
                        "/outrider.target.v1.Target/Describe", false, place->deadline_us, err));
    TRY(rpc_stream_send(place->question, NULL, 0, place->deadline_us, err));
    TRY(rpc_stream_half_close(place->question, err));
out:
    return rc;
}

static void end_question(struct place *place, int64_t pause_us)
{
    rpc_stream_close(place->question);
    place->question = NULL;
    place->next_us = clock_now_us() + pause_us;
}

/* Finds a rank that starts at the same time as we do, or that comes back at once, within an eighth
 * of the time that it takes. */
static int64_t next_pause_us(const struct place *place, int64_t now_us)
{
    int64_t haste_us = (now_us - place->since_us) / HASTE_SHARE;
    if (haste_us < HASTE_US) return HASTE_US;
    return haste_us < PAUSE_US ? haste_us : PAUSE_US;
}

static void ask(struct discovery *d, struct place *place, int64_t now_us)
{
    if (!place->since_us) place->since_us = now_us;
    place->deadline_us = now_us + ASK_US;
    rpc_client_hasten(d->client, place->address);
    if (begin_question(d, place, &place->err)) end_question(place, next_pause_us(place, now_us));
}

/* True if the place leads to a rank of a group that is in use. */
static bool is_second_way(const struct discovery *d, const struct place *place)
{
    for (size_t i = 0; i < d->n_places; i++) {
        const struct place *other = d->places[i];
        if (other->is_used && strcmp(other->answer.group, place->answer.group) == 0) return true;
    }
    return false;
}

/* Takes the answer, if it is here; false: it is still to come. */
static bool take_answer(const struct discovery *d, struct place *place)
{
    const uint8_t *data;
    size_t len;
    bool is_here;
    struct error err = {0};
    int rc = rpc_stream_try_receive(place->question, &data, &len, &is_here, &err);
    if (!rc && !is_here) return false;
    if (rc == ERR_CLOSED) {
        error_set(&err, ERR_UNAVAILABLE, "%s gives no description", place->address);
    } else if (!rc && !target_description_decode(data, len, &place->answer, &err)) {
        place->answered_us = clock_now_us();
        log_line(LOG_LEVEL_DEBUG, "description", "address=%s rank=%d group=%s busy=%d",
                 place->address, place->answer.rank, place->answer.group, place->answer.is_busy);
        place->err = (struct error){0};
        end_question(place,
                     is_second_way(d, place) ? CALM_US : next_pause_us(place, place->answered_us));
        return true;
    }
    if (strcmp(place->err.text, err.text) != 0) {
        log_line(LOG_LEVEL_DEBUG, "no_description", "address=%s text=\"%s\"", place->address,
                 err.text);
    }
    place->err = err;
    end_question(place, next_pause_us(place, clock_now_us()));
    return true;
}

/* True: a place has answered, or has failed to. */
static bool go_round(struct discovery *d, int64_t *wake_us)
{
    bool has_news = false;
    int64_t now_us = clock_now_us();
    for (size_t i = 0; i < d->n_places; i++) {
        struct place *place = d->places[i];
        if (place->is_used) continue;
        if (place->question) {
            has_news = take_answer(d, place) || has_news;
        } else if (now_us >= place->next_us) {
            ask(d, place, now_us);
        }
        if (!place->question && place->next_us < *wake_us) *wake_us = place->next_us;
    }
    return has_news;
}

void discovery_run(struct discovery *d, int64_t deadline_us)
{
    if (d->resolver) {
        bool is_calm = clock_now_us() >= d->calm_us;
        resolver_set_pause(d->resolver, is_calm ? LEISURE_US : HURRY_US);
        take_names(d);
    }
    for (;;) {
        int64_t wake_us = deadline_us;
        if (go_round(d, &wake_us) || clock_now_us() >= deadline_us) return;
        rpc_client_wait(d->client, wake_us);
    }
}

/* ---- groups ---- */

static bool is_usable(const struct place *place, int64_t now_us)
{
    return !place->is_used && place->is_listed && !place->err.code && !place->answer.is_busy &&
           place->answered_us && now_us - place->answered_us < FRESH_US;
}

/* The place of each rank of a lead's group; false: one is missing. A rank that can be called at two
 * addresses is called at the first one. */
static bool gather(const struct discovery *d, size_t lead_at, struct place *ranks[RANKS_MAX],
                   int64_t now_us)
{
    const struct place *lead = d->places[lead_at];
    int n = lead->answer.n_ranks, n_found = 0;
    if (n < 1 || n > RANKS_MAX) return false;
    memset(ranks, 0, RANKS_MAX * sizeof *ranks);
    ranks[0] = d->places[lead_at];
    n_found = 1;
    for (size_t i = 0; i < d->n_places; i++) {
        struct place *place = d->places[i];
        const struct target_description *a = &place->answer;
        bool is_member = is_usable(place, now_us) && strcmp(a->group, lead->answer.group) == 0 &&
                         a->n_ranks == n && a->rank >= 0 && a->rank < n && !ranks[a->rank];
        if (!is_member) continue;
        ranks[a->rank] = place;
        n_found++;
    }
    return n_found == n;
}

bool discovery_take(struct discovery *d, struct found_group *group)
{
    struct place *ranks[RANKS_MAX];
    int64_t now_us = clock_now_us();
    for (size_t i = 0; i < d->n_places; i++) {
        const struct place *lead = d->places[i];
        if (!is_usable(lead, now_us) || lead->answer.rank != 0) continue;
        if (!gather(d, i, ranks, now_us)) continue;
        group->n_ranks = lead->answer.n_ranks;
        group->description = lead->answer;
        for (int r = 0; r < group->n_ranks; r++) {
            strcpy(group->addresses[r], ranks[r]->address);
            ranks[r]->is_used = true;
            rpc_stream_close(ranks[r]->question);
            ranks[r]->question = NULL;
        }
        return true;
    }
    return false;
}

void discovery_give_back(struct discovery *d, const struct found_group *group, int64_t pause_us,
                         bool is_lost)
{
    for (int r = 0; r < group->n_ranks; r++) {
        struct place *place = find(d, group->addresses[r]);
        if (!place) continue;
        place->is_used = false;
        place->answered_us = 0;
        place->next_us = place->since_us = clock_now_us() + pause_us;
        place->err = (struct error){0};
    }
    if (is_lost) d->calm_us = clock_now_us() + MISSED_US;
    drop_places(d);
}

/* ---- why there is none ---- */

/* All have answered, and yet there is no whole group: says so of the first place. */
static int explain_ranks(const struct discovery *d, struct error *err)
{
    const struct place *lead = NULL;
    int n = 0, n_found = 0;
    bool are_alike = d->list.n_names == 0;
    for (size_t i = 0; i < d->n_places; i++) {
        const struct place *place = d->places[i];
        if (place->is_used || is_second_way(d, place)) continue;
        if (!lead) lead = place;
        are_alike = are_alike && place->answer.n_ranks == lead->answer.n_ranks;
        n_found += strcmp(place->answer.group, lead->answer.group) == 0 ? 1 : 0;
        n++;
    }
    if (!lead) return 0;
    int n_ranks = lead->answer.n_ranks;
    if (are_alike && n_ranks > 0 && n % n_ranks != 0) {
        return error_set(err, ERR_ARGUMENT,
                         "%s is a rank of a group of %d, but --target has %d address%s; give those "
                         "of all its ranks, with commas between them",
                         lead->address, n_ranks, n, n == 1 ? "" : "es");
    }
    return error_set(err, ERR_UNAVAILABLE,
                     "%s says it is rank %d of %d of group %s, and %d of them can be called now: "
                     "give every rank of one group once",
                     lead->address, lead->answer.rank, n_ranks, lead->answer.group, n_found);
}

/* True if a place that is not in use has not answered yet. */
static bool is_asking(const struct discovery *d)
{
    for (size_t i = 0; i < d->n_places; i++) {
        const struct place *place = d->places[i];
        if (!place->is_used && !place->err.code && !place->answered_us) return true;
    }
    return false;
}

int discovery_tell_busy(const char *address, bool is_known, struct error *err)
{
    bool is_open = !is_known && strncmp(address, "unix:", 5) != 0;
    return error_set(err, ERR_UNAVAILABLE,
                     "the group at %s is still starting, or another coordinator is using it or "
                     "left a step unfinished; one at a time%s",
                     address,
                     is_open
                         ? ", and anyone who can call its ranks may be that one: --group-key, of "
                           "ranks and coordinators, keeps strangers out"
                         : "");
}

int discovery_why(const struct discovery *d, struct error *err)
{
    *err = (struct error){0};
    if (is_asking(d)) return 0;
    for (size_t i = 0; i < d->n_places; i++) {
        const struct place *place = d->places[i];
        if (place->is_used || is_second_way(d, place)) continue;
        if (place->err.code) {
            *err = place->err;
            return err->code;
        }
        if (!place->answer.is_busy) continue;
        return discovery_tell_busy(place->address, rpc_client_is_known(d->client), err);
    }
    for (int i = 0; i < d->list.n_names; i++) {
        if (d->resolved[i].n > 0) continue;
        return error_set(err, ERR_UNAVAILABLE, "%s",
                         d->resolved[i].why[0] ? d->resolved[i].why
                                               : "the names of --target are being looked up");
    }
    return explain_ranks(d, err);
}
