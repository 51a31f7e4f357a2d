/* Words of --target. */
#include "coordinator/discovery/target_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text/options.h"

int target_list_add_address(struct target_list *list, const char *address, struct error *err)
{
    if (list->n_addresses == TARGET_WORDS_MAX) {
        return error_set(err, ERR_ARGUMENT, "--target has more than %d addresses",
                         TARGET_WORDS_MAX);
    }
    if (strlen(address) >= TARGET_ADDRESS_BYTES) {
        return error_set(err, ERR_ARGUMENT, "--target: the address %.60s... has more than %d bytes",
                         address, TARGET_ADDRESS_BYTES - 1);
    }
    for (int i = 0; i < list->n_addresses; i++) {
        if (strcmp(list->addresses[i], address) == 0) {
            return error_set(err, ERR_ARGUMENT,
                             "--target names %s twice: give every rank of every group once",
                             address);
        }
    }
    strcpy(list->addresses[list->n_addresses++], address);
    return 0;
}

/* "NAME:PORT" */
static int add_name(struct target_list *list, const char *word, const char *rest, struct error *err)
{
    const char *colon = strrchr(rest, ':');
    int port = 0;
    size_t len = colon ? (size_t)(colon - rest) : 0;
    if (len == 0 || len >= TARGET_ADDRESS_BYTES ||
        options_int(&port, "--target", colon + 1, 1, PORT_MAX, err)) {
        return error_set(err, ERR_ARGUMENT,
                         "--target %.120s: expected dns:NAME:PORT with a port from 1 to %d", word,
                         PORT_MAX);
    }
    if (list->n_names == TARGET_NAMES_MAX) {
        return error_set(err, ERR_ARGUMENT, "--target has more than %d names", TARGET_NAMES_MAX);
    }
    struct target_name *name = &list->names[list->n_names++];
    snprintf(name->name, sizeof name->name, "%.*s", (int)len, rest);
    name->port = port;
    return 0;
}

/* The pods of the group whose leader's pod this process runs in. */
static int add_pods(struct target_list *list, const char *word, const char *rest, struct error *err)
{
    const char *leader = getenv("LWS_LEADER_ADDRESS"), *size = getenv("LWS_GROUP_SIZE");
    char address[TARGET_ADDRESS_BYTES];
    int n_pods = 0, port = 0, rc = 0;
    if (options_int(&port, "--target", rest, 1, PORT_MAX, err)) {
        return error_set(err, ERR_ARGUMENT, "--target %.60s: expected lws:PORT", word);
    }
    if (!leader || !leader[0] || !size) {
        return error_set(err, ERR_ARGUMENT,
                         "--target %.60s: LWS_LEADER_ADDRESS and LWS_GROUP_SIZE are not in the "
                         "environment, so this is no pod of a LeaderWorkerSet",
                         word);
    }
    TRY(options_int(&n_pods, "LWS_GROUP_SIZE", size, 1, RANKS_MAX, err));
    size_t first = strcspn(leader, ".");
    for (int i = 0; i < n_pods; i++) {
        int n = i == 0 ? snprintf(address, sizeof address, "%s:%d", leader, port)
                       : snprintf(address, sizeof address, "%.*s-%d%s:%d", (int)first, leader, i,
                                  leader + first, port);
        if (n >= (int)sizeof address) {
            return error_set(err, ERR_ARGUMENT, "LWS_LEADER_ADDRESS is too long: %.60s...", leader);
        }
        TRY(target_list_add_address(list, address, err));
    }
out:
    return rc;
}

static int add_word(struct target_list *list, const char *word, struct error *err)
{
    if (strncmp(word, "dns:", 4) == 0) return add_name(list, word, word + 4, err);
    if (strncmp(word, "lws:", 4) == 0) return add_pods(list, word, word + 4, err);
    return target_list_add_address(list, word, err);
}

int target_list_add(struct target_list *list, const char *words, struct error *err)
{
    char word[2 * TARGET_ADDRESS_BYTES];
    bool is_empty = true;
    int rc = 0;
    for (const char *at = words; *at && !rc;) {
        size_t len = strcspn(at, ",");
        if (len >= sizeof word) {
            return error_set(err, ERR_ARGUMENT, "--target: %.60s... is too long", at);
        }
        memcpy(word, at, len);
        word[len] = '\0';
        if (len > 0) rc = add_word(list, word, err);
        is_empty = is_empty && len == 0;
        at += len + (at[len] == ',');
    }
    if (rc || !is_empty) return rc;
    return error_set(err, ERR_ARGUMENT, "--target names no address");
}
