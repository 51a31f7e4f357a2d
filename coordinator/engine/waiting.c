/* Deficit round robin in two rings: the classes, and inside each class its clients that have jobs
 * (coordinator/engine/round_robin.h). */
#include "coordinator/engine/waiting.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "coordinator/engine/round_robin.h"

/* Jobs are known by their place in entries[], from 1; 0 is none. */
struct entry {
    struct waiting_job job;
    int64_t cost;
    struct client *client; /* NULL: it came back */
    bool is_aside;         /* then it is in the list of those */
    int next, previous;    /* in its client's list, or that of jobs that came back */
    int next_all, previous_all;
    int next_same; /* hash */
};

struct list {
    int first, last;
};

/* A client's jobs of one class. Its name is that of its first job. */
struct client {
    struct share share; /* first: a ring of clients is cast back to them */
    struct list jobs;
    struct client *next_same; /* hash; also of free ones */
    uint64_t hash;
    enum job_class job_class;
};

struct class_queue {
    struct share share; /* first, as above */
    struct round_robin clients;
    int n;
};

struct own_weight {
    char *client;
    int weight;
};

struct waiting {
    int capacity, n_returned_max, n_buckets;
    int n_pushed, n_returned, n_aside; /* n_aside: of n_returned */
    struct entry *entries;             /* [1 + capacity + n_returned_max] */
    int free_entry;
    struct list all, returned, aside;
    int *item_buckets; /* [n_buckets] */
    struct client *clients;
    struct client *free_client;
    struct client **client_buckets; /* [n_buckets] */
    struct class_queue classes[JOB_CLASSES];
    struct round_robin ring; /* of classes */
    struct own_weight weights[WAITING_WEIGHTS_MAX];
    int n_weights;
};

static const int default_weights[JOB_CLASSES] = {
    [JOB_CLASS_HIGH] = 4, [JOB_CLASS_NORMAL] = 2, [JOB_CLASS_LOW] = 1};

/* Lists of entries */

static void list_insert(struct waiting *w, struct list *list, int at, int before)
{
    struct entry *entries = w->entries;
    int previous = before ? entries[before].previous : list->last;
    entries[at].next = before;
    entries[at].previous = previous;
    *(previous ? &entries[previous].next : &list->first) = at;
    *(before ? &entries[before].previous : &list->last) = at;
}

static void list_remove(struct waiting *w, struct list *list, int at)
{
    struct entry *entries = w->entries;
    int next = entries[at].next, previous = entries[at].previous;
    *(previous ? &entries[previous].next : &list->first) = next;
    *(next ? &entries[next].previous : &list->last) = previous;
}

static void all_add(struct waiting *w, int at)
{
    w->entries[at].next_all = 0;
    w->entries[at].previous_all = w->all.last;
    *(w->all.last ? &w->entries[w->all.last].next_all : &w->all.first) = at;
    w->all.last = at;
}

static void all_remove(struct waiting *w, int at)
{
    int next = w->entries[at].next_all, previous = w->entries[at].previous_all;
    *(previous ? &w->entries[previous].next_all : &w->all.first) = next;
    *(next ? &w->entries[next].previous_all : &w->all.last) = previous;
}

/* Hashes */

static int *bucket_of_item(const struct waiting *w, const void *item)
{
    uint64_t hash = (uint64_t)(uintptr_t)item * 0x9E3779B97F4A7C15u;
    return &w->item_buckets[(hash >> 32) % (uint64_t)w->n_buckets];
}

/* Where the number of the item's entry is; it is 0 when there is none. */
static int *find_item(const struct waiting *w, const void *item)
{
    int *at = bucket_of_item(w, item);
    while (*at && w->entries[*at].job.item != item) {
        at = &w->entries[*at].next_same;
    }
    return at;
}

/* FNV-1a. A client that finds names of equal hash makes lists as long as the queue, no longer. */
static uint64_t hash_client(const char *name, enum job_class job_class)
{
    uint64_t hash = 0xcbf29ce484222325u + (uint64_t)job_class;
    for (; *name; name++) {
        hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    }
    return hash;
}

static const char *client_name(const struct waiting *w, const struct client *client)
{
    return w->entries[client->jobs.first].job.client;
}

/* Where the pointer to the client is; it is NULL when the client has no job here. */
static struct client **find_client(const struct waiting *w, const char *name,
                                   enum job_class job_class)
{
    uint64_t hash = hash_client(name, job_class);
    struct client **at = &w->client_buckets[hash % (uint64_t)w->n_buckets];
    for (; *at; at = &(*at)->next_same) {
        bool is_same = (*at)->hash == hash && (*at)->job_class == job_class;
        if (is_same && strcmp(client_name(w, *at), name) == 0) break;
    }
    return at;
}

/* The place of the client's own weight; n_weights when it has none. */
static int find_weight(const struct waiting *w, const char *client)
{
    int i = 0;
    while (i < w->n_weights && strcmp(w->weights[i].client, client) != 0) {
        i++;
    }
    return i;
}

static int weight_of(const struct waiting *w, const char *client)
{
    int i = find_weight(w, client);
    return i < w->n_weights ? w->weights[i].weight : 1;
}

static int64_t quantum_of(int weight)
{
    return (int64_t)WAITING_QUANTUM_TOKENS * weight;
}

/* Clients */

static struct client *client_add(struct waiting *w, const struct waiting_job *job)
{
    struct class_queue *queue = &w->classes[job->job_class];
    struct client **at = find_client(w, job->client, job->job_class);
    int weight = job->weight || *at ? job->weight : weight_of(w, job->client);
    if (*at) {
        if (weight) (*at)->share.quantum = quantum_of(weight);
        return *at;
    }
    struct client *client = w->free_client; /* there are as many as jobs */
    w->free_client = client->next_same;
    *client = (struct client){.hash = hash_client(job->client, job->job_class),
                              .job_class = job->job_class,
                              .share.quantum = quantum_of(weight)};
    *at = client;
    if (queue->clients.n == 0) round_robin_add(&w->ring, &queue->share);
    round_robin_add(&queue->clients, &client->share);
    return client;
}

/* A client without jobs is forgotten, with what is left of its turn. name: as its jobs had it. */
static void client_remove(struct waiting *w, struct client *client)
{
    struct class_queue *queue = &w->classes[client->job_class];
    struct client **at = &w->client_buckets[client->hash % (uint64_t)w->n_buckets];
    while (*at != client) {
        at = &(*at)->next_same;
    }
    *at = client->next_same;
    round_robin_remove(&queue->clients, &client->share);
    if (queue->clients.n == 0) round_robin_remove(&w->ring, &queue->share);
    client->next_same = w->free_client;
    w->free_client = client;
}

/* Open and close */

static void link_free(struct waiting *w)
{
    for (int i = w->capacity + w->n_returned_max; i >= 1; i--) {
        w->entries[i].next = w->free_entry;
        w->free_entry = i;
    }
    for (int i = w->capacity - 1; i >= 0; i--) {
        w->clients[i].next_same = w->free_client;
        w->free_client = &w->clients[i];
    }
}

int waiting_open(struct waiting **waiting, const struct waiting_options *options, struct error *err)
{
    int rc = 0;
    struct waiting *w = NULL;
    size_t n_entries = (size_t)options->capacity + (size_t)options->n_returned + 1;
    TRY(mem_array(&w, 1, sizeof *w, err));
    w->capacity = options->capacity;
    w->n_returned_max = options->n_returned;
    w->n_buckets = (int)n_entries;
    TRY(mem_array(&w->entries, n_entries, sizeof *w->entries, err));
    TRY(mem_array(&w->item_buckets, n_entries, sizeof *w->item_buckets, err));
    TRY(mem_array(&w->clients, (size_t)w->capacity, sizeof *w->clients, err));
    TRY(mem_array(&w->client_buckets, n_entries, sizeof *w->client_buckets, err));
    for (int i = 0; i < JOB_CLASSES; i++) {
        int weight = options->class_weights[i];
        w->classes[i].share.quantum = quantum_of(weight > 0 ? weight : default_weights[i]);
    }
    link_free(w);
out:
    if (rc) waiting_close(w);
    *waiting = rc ? NULL : w;
    return rc;
}

void waiting_close(struct waiting *waiting)
{
    if (!waiting) return;
    for (int i = 0; i < waiting->n_weights; i++) {
        free(waiting->weights[i].client);
    }
    free(waiting->entries);
    free(waiting->item_buckets);
    free(waiting->clients);
    free(waiting->client_buckets);
    free(waiting);
}

/* A new place for the weight of a client. */
static int add_weight(struct waiting *w, const char *client, struct error *err)
{
    struct own_weight *own = &w->weights[w->n_weights];
    if (w->n_weights == WAITING_WEIGHTS_MAX) {
        return error_set(err, ERR_EXHAUSTED,
                         "%d clients have a weight already; client '%s' gets none",
                         WAITING_WEIGHTS_MAX, client);
    }
    int rc = mem_array(&own->client, strlen(client) + 1, 1, err);
    if (rc) return rc;
    memcpy(own->client, client, strlen(client));
    w->n_weights++;
    return 0;
}

int waiting_set_weight(struct waiting *waiting, const char *client, int weight, struct error *err)
{
    int rc = 0, at = find_weight(waiting, client);
    if (weight < 1 || weight > WAITING_WEIGHT_MAX) {
        return error_set(err, ERR_ARGUMENT, "weight %d of client '%s' is not within 1 to %d",
                         weight, client, WAITING_WEIGHT_MAX);
    }
    if (at == waiting->n_weights) TRY(add_weight(waiting, client, err));
    waiting->weights[at].weight = weight;
    for (int i = 0; i < JOB_CLASSES; i++) {
        struct client *known = *find_client(waiting, client, (enum job_class)i);
        if (known) known->share.quantum = quantum_of(weight);
    }
out:
    return rc;
}

/* Jobs */

static int entry_add(struct waiting *w, const struct waiting_job *job)
{
    int *same = find_item(w, job->item), at = w->free_entry;
    assert(*same == 0); /* it is here once */
    struct entry *entry = &w->entries[at];
    w->free_entry = entry->next;
    int64_t cost = job->n_tokens < WAITING_COST_MAX ? job->n_tokens : WAITING_COST_MAX;
    *entry = (struct entry){.job = *job, .cost = cost > 1 ? cost : 1};
    *same = at;
    all_add(w, at);
    w->classes[job->job_class].n++;
    return at;
}

static struct list *list_of(struct waiting *w, const struct entry *entry)
{
    if (entry->client) return &entry->client->jobs;
    return entry->is_aside ? &w->aside : &w->returned;
}

static void entry_remove(struct waiting *w, int at)
{
    struct entry *entry = &w->entries[at];
    struct client *client = entry->client;
    list_remove(w, list_of(w, entry), at);
    *(client ? &w->n_pushed : &w->n_returned) -= 1;
    w->n_aside -= entry->is_aside ? 1 : 0;
    if (client && client->jobs.first) client->share.cost = w->entries[client->jobs.first].cost;
    if (client && !client->jobs.first) client_remove(w, client);
    *find_item(w, entry->job.item) = entry->next_same;
    all_remove(w, at);
    w->classes[entry->job.job_class].n--;
    entry->next = w->free_entry;
    w->free_entry = at;
}

int waiting_push(struct waiting *waiting, const struct waiting_job *job, struct error *err)
{
    if (waiting->n_pushed == waiting->capacity) {
        return error_set(err, ERR_EXHAUSTED, "%d requests are waiting already; try again later",
                         waiting->capacity);
    }
    int at = entry_add(waiting, job);
    struct client *client = client_add(waiting, job);
    waiting->entries[at].client = client;
    list_insert(waiting, &client->jobs, at, 0);
    client->share.cost = waiting->entries[client->jobs.first].cost;
    waiting->n_pushed++;
    return 0;
}

/* Into the list of those that came back, by arrival. */
static void insert_returned(struct waiting *w, int at)
{
    int before = 0;
    for (int i = w->returned.last; i; i = w->entries[i].previous) {
        if (w->entries[i].job.arrival <= w->entries[at].job.arrival) break;
        before = i;
    }
    list_insert(w, &w->returned, at, before);
}

int waiting_push_front(struct waiting *waiting, const struct waiting_job *job, struct error *err)
{
    if (waiting->n_returned == waiting->n_returned_max) {
        return error_set(err, ERR_EXHAUSTED,
                         "%d requests that lost their place are waiting already",
                         waiting->n_returned_max);
    }
    insert_returned(waiting, entry_add(waiting, job));
    waiting->n_returned++;
    return 0;
}

void waiting_set_aside(struct waiting *waiting, const void *item, bool is_aside)
{
    int at = *find_item(waiting, item);
    struct entry *entry = &waiting->entries[at];
    if (!at || entry->client || entry->is_aside == is_aside) return;
    list_remove(waiting, list_of(waiting, entry), at);
    entry->is_aside = is_aside;
    waiting->n_aside += is_aside ? 1 : -1;
    if (is_aside) {
        list_insert(waiting, &waiting->aside, at, 0);
    } else {
        insert_returned(waiting, at);
    }
}

/* The entry that is served next; 0: none. */
static int find_next(struct waiting *w)
{
    if (w->returned.first) return w->returned.first;
    if (w->ring.n == 0) return 0;
    struct share *share = w->ring.now;
    for (int i = 0; i < w->ring.n; i++, share = share->next) {
        share->cost = round_robin_next(&((struct class_queue *)share)->clients)->cost;
    }
    struct class_queue *queue = (struct class_queue *)round_robin_next(&w->ring);
    return ((struct client *)round_robin_next(&queue->clients))->jobs.first;
}

void *waiting_peek(struct waiting *waiting)
{
    int at = find_next(waiting);
    return at ? waiting->entries[at].job.item : NULL;
}

void *waiting_pop(struct waiting *waiting)
{
    int at = find_next(waiting);
    if (!at) return NULL;
    struct entry *entry = &waiting->entries[at];
    void *item = entry->job.item;
    if (entry->client) {
        entry->client->share.deficit -= entry->cost;
        waiting->classes[entry->job.job_class].share.deficit -= entry->cost;
    }
    entry_remove(waiting, at);
    return item;
}

/* Trims deficits that were saved for a job that is gone: spent on others at once they would be a
 * way to the front. */
static void trim_deficits(struct client *client, struct class_queue *queue)
{
    if (client->jobs.first) round_robin_trim_deficit(&client->share);
    if (queue->clients.n == 0) return;
    queue->share.cost = round_robin_next(&queue->clients)->cost;
    round_robin_trim_deficit(&queue->share);
}

bool waiting_remove(struct waiting *waiting, const void *item)
{
    int at = *find_item(waiting, item);
    if (!at) return false;
    struct client *client = waiting->entries[at].client;
    struct class_queue *queue = &waiting->classes[waiting->entries[at].job.job_class];
    entry_remove(waiting, at);
    if (client) trim_deficits(client, queue);
    return true;
}

int waiting_count(const struct waiting *waiting)
{
    return waiting->n_pushed + waiting->n_returned;
}

int waiting_count_returned(const struct waiting *waiting)
{
    return waiting->n_returned;
}

int waiting_count_aside(const struct waiting *waiting)
{
    return waiting->n_aside;
}

int waiting_class_count(const struct waiting *waiting, enum job_class job_class)
{
    return waiting->classes[job_class].n;
}

void *waiting_next(const struct waiting *waiting, int *at)
{
    int entry = *at ? *at : waiting->all.first;
    if (entry <= 0) return NULL;
    int next = waiting->entries[entry].next_all;
    *at = next ? next : -1;
    return waiting->entries[entry].job.item;
}
