/* Names of models in the cache of huggingface_hub. */
#include "base/system/hub_cache.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char prefix[] = "models--", snapshots[] = "/snapshots/";
enum { PREFIX_LEN = sizeof prefix - 1, HASH_BYTES = 65 };

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Writes folder/a/b into path; b may be NULL. */
static int join(char path[HUB_PATH_BYTES], const char *folder, const char *a, const char *b,
                struct error *err)
{
    int len = snprintf(path, HUB_PATH_BYTES, "%s/%s%s%s", folder, a, b ? "/" : "", b ? b : "");
    if (len < HUB_PATH_BYTES) return 0;
    return error_set(err, ERR_ARGUMENT, "the path of %.100s in %.100s... is too long", a, folder);
}

/* ---- names ---- */

/* ORG/NAME@REVISION, taken apart. */
struct hub_name {
    int model_len;        /* of ORG/NAME */
    const char *revision; /* NULL: none is named */
};

static bool is_name_part(const char *text, size_t len)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return len > 0 && len < HUB_NAME_BYTES / 2 && *text != '.' && *text != '-' &&
           strspn(text, letters) >= len;
}

/* A revision becomes a part of a path: nothing in it may lead out of the model's folder. */
static bool is_revision(const char *text)
{
    return *text && *text != '/' && !strstr(text, "..");
}

/* False: the name is no ORG/NAME, so it can only be a path. */
static bool read_name(const char *name, struct hub_name *hub)
{
    const char *at = strchr(name, '@'), *slash = strchr(name, '/');
    size_t len = at ? (size_t)(at - name) : strlen(name);
    *hub = (struct hub_name){.model_len = (int)len, .revision = at ? at + 1 : NULL};
    if (!slash || (at && at < slash)) return false;
    size_t org_len = (size_t)(slash - name);
    return is_name_part(name, org_len) && len > org_len + 1 &&
           is_name_part(slash + 1, len - org_len - 1) && (!at || is_revision(at + 1));
}

/* ORG/NAME of "models--ORG--NAME"; false: the text is no such name. */
static bool read_folder_name(const char *text, size_t len, char *name, size_t size)
{
    char own[HUB_NAME_BYTES];
    if (size) *name = '\0';
    if (len <= PREFIX_LEN || len >= sizeof own || memcmp(text, prefix, PREFIX_LEN) != 0) {
        return false;
    }
    snprintf(own, sizeof own, "%.*s", (int)len - PREFIX_LEN, text + PREFIX_LEN);
    char *dashes = strstr(own, "--");
    if (!dashes) return false;
    *dashes = '\0';
    snprintf(name, size, "%s/%s", own, dashes + 2);
    return true;
}

/* ---- the cache ---- */

/* Where the cache is, whether it is there or not; false: the environment does not say. */
static bool find_cache(char path[HUB_PATH_BYTES])
{
    static const struct {
        const char *variable, *rest;
    } places[] = {
        {"HF_HUB_CACHE", ""},
        {"HUGGINGFACE_HUB_CACHE", ""}, /* the same, of older releases */
        {"HF_HOME", "/hub"},
        {"XDG_CACHE_HOME", "/huggingface/hub"},
        {"HOME", "/.cache/huggingface/hub"},
    };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (!value || !*value) continue;
        const char *home = strncmp(value, "~/", 2) == 0 ? getenv("HOME") : NULL;
        int len = snprintf(path, HUB_PATH_BYTES, "%s%s%s", home ? home : "",
                           home ? value + 1 : value, places[i].rest);
        return len < HUB_PATH_BYTES;
    }
    return false;
}

/* The hash in a file of refs/; "": there is no such file. */
static int read_ref(const char *folder, const char *revision, char hash[HASH_BYTES],
                    struct error *err)
{
    char path[HUB_PATH_BYTES];
    hash[0] = '\0';
    int rc = join(path, folder, "refs", revision, err);
    FILE *file = rc ? NULL : fopen(path, "rb");
    if (!file) return rc;
    size_t n = fread(hash, 1, HASH_BYTES - 1, file);
    fclose(file);
    hash[n] = '\0';
    hash[strcspn(hash, "\r\n")] = '\0';
    if (strchr(hash, '/') || hash[0] == '.') hash[0] = '\0';
    return 0;
}

/* Returns the number of snapshots, the name of one of them in hash. */
static int count_snapshots(const char *folder, char hash[HASH_BYTES])
{
    char path[HUB_PATH_BYTES];
    struct error ignored;
    struct dirent *entry;
    int n = 0;
    hash[0] = '\0';
    if (join(path, folder, "snapshots", NULL, &ignored)) return 0;
    DIR *open = opendir(path);
    while (open && (entry = readdir(open))) {
        if (entry->d_name[0] == '.' || strlen(entry->d_name) >= HASH_BYTES) continue;
        snprintf(hash, HASH_BYTES, "%.64s", entry->d_name);
        n++;
    }
    if (open) closedir(open);
    return n;
}

/* Sets path to a snapshot of the model whose top folder is given, and leaves it "" if there is none
 * of this revision. */
static int find_snapshot(char path[HUB_PATH_BYTES], const char *folder, const char *revision,
                         struct error *err)
{
    char hash[HASH_BYTES];
    int rc = 0;
    path[0] = '\0';
    TRY(read_ref(folder, revision ? revision : "main", hash, err));
    if (!hash[0] && revision) snprintf(hash, sizeof hash, "%.64s", revision);
    if (!hash[0] && count_snapshots(folder, hash) != 1) goto out;
    TRY(join(path, folder, "snapshots", hash, err));
    if (!is_folder(path)) path[0] = '\0';
out:
    return rc;
}

/* ---- resolving ---- */

/* The top folder of a model, which is no model folder itself. */
static bool is_top_folder(const char *folder)
{
    char path[HUB_PATH_BYTES];
    struct error ignored;
    struct stat st;
    if (join(path, folder, "config.json", NULL, &ignored) || !stat(path, &st)) return false;
    return !join(path, folder, "snapshots", NULL, &ignored) && is_folder(path);
}

static int resolve_top_folder(char path[HUB_PATH_BYTES], const char *name, struct error *err)
{
    char folder[HUB_PATH_BYTES], hash[HASH_BYTES];
    int len = (int)strlen(name);
    while (len > 1 && name[len - 1] == '/')
        len--;
    snprintf(folder, sizeof folder, "%.*s", len, name);
    int rc = find_snapshot(path, folder, NULL, err);
    if (rc || path[0]) return rc;
    return error_set(err, ERR_NOT_FOUND,
                     "%.200s is a folder of the Hugging Face cache, of which refs/main names no "
                     "snapshot; name one of the %d folders in its snapshots/",
                     folder, count_snapshots(folder, hash));
}

static int resolve_cached(char path[HUB_PATH_BYTES], const char *name, const struct hub_name *hub,
                          struct error *err)
{
    char cache[HUB_PATH_BYTES], folder[HUB_PATH_BYTES], top[HUB_NAME_BYTES + PREFIX_LEN + 1];
    int org_len = (int)strcspn(name, "/"), len = hub->model_len, rc = 0;
    const char *option = hub->revision ? " --revision " : "";
    const char *revision = hub->revision ? hub->revision : "";
    path[0] = '\0';
    bool has_cache = find_cache(cache);
    snprintf(top, sizeof top, "%s%.*s--%.*s", prefix, org_len, name, len - org_len - 1,
             name + org_len + 1);
    if (!has_cache) {
        return error_set(err, ERR_NOT_FOUND,
                         "there is no folder %.120s, and no HF_HOME or HOME says where the Hugging "
                         "Face cache is",
                         name);
    }
    TRY(join(folder, cache, top, NULL, err));
    if (!is_folder(folder)) {
        rc = error_set(err, ERR_NOT_FOUND,
                       "there is no folder %.100s, and the Hugging Face cache %.120s has no model "
                       "of this name; nothing is downloaded here, so get it first: hf download "
                       "%.*s%s%.60s",
                       name, cache, len, name, option, revision);
        goto out;
    }
    TRY(find_snapshot(path, folder, hub->revision, err));
    if (path[0]) goto out;
    rc = error_set(err, ERR_NOT_FOUND,
                   "the Hugging Face cache %.120s has %.*s, but %s%.60s of it; nothing is "
                   "downloaded here, so get it first: hf download %.*s%s%.60s",
                   cache, len, name, hub->revision ? "no revision " : "no snapshot that refs/main ",
                   hub->revision ? revision : "names", len, name, option, revision);
out:
    return rc;
}

int hub_cache_resolve(char path[HUB_PATH_BYTES], const char *name, struct error *err)
{
    struct hub_name hub;
    struct stat st;
    if (strlen(name) >= HUB_PATH_BYTES) {
        return error_set(err, ERR_ARGUMENT, "the path %.100s... of a model is too long", name);
    }
    bool is_there = !stat(name, &st);
    if (is_there && is_top_folder(name)) return resolve_top_folder(path, name, err);
    if (!is_there && read_name(name, &hub)) return resolve_cached(path, name, &hub, err);
    strcpy(path, name);
    return 0;
}

bool hub_cache_model(const char *model, char *name, size_t size)
{
    char path[HUB_PATH_BYTES];
    struct error ignored;
    if (size) *name = '\0';
    if (hub_cache_resolve(path, model, &ignored)) return false;
    const char *at = path;
    for (const char *next; (next = strstr(at + 1, snapshots));) {
        at = next;
    }
    if (at == path) return false;
    size_t len = (size_t)(at - path), first = len;
    while (first > 0 && path[first - 1] != '/') {
        first--;
    }
    const char *hash = at + sizeof snapshots - 1;
    hash += strcspn(hash, "/");
    if (hash[strspn(hash, "/")] != '\0') return false; /* a folder inside the snapshot */
    return read_folder_name(path + first, len - first, name, size);
}

void hub_cache_advice(const char *folder, char *text, size_t size)
{
    char name[HUB_NAME_BYTES];
    *text = '\0';
    if (!hub_cache_model(folder, name, sizeof name)) return;
    snprintf(text, size, "; `hf download %s` fetches what is missing", name);
}

bool hub_cache_is_root(const char *folder, char *name, size_t size)
{
    struct dirent *entry;
    bool found = false;
    DIR *open = opendir(folder);
    while (open && !found && (entry = readdir(open))) {
        found = read_folder_name(entry->d_name, strlen(entry->d_name), name, size);
    }
    if (open) closedir(open);
    return found;
}

void hub_cache_list(char path[HUB_PATH_BYTES], void (*take)(void *arg, const char *name), void *arg)
{
    char name[HUB_NAME_BYTES + 1];
    struct dirent *entry;
    path[0] = '\0';
    if (!find_cache(path)) return;
    DIR *open = opendir(path);
    while (open && (entry = readdir(open))) {
        if (read_folder_name(entry->d_name, strlen(entry->d_name), name, sizeof name)) {
            take(arg, name);
        }
    }
    if (open) closedir(open);
}
