/* Why a name is no model folder. */
#include "base/text/model_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096, HASH_BYTES = 65, SHOWN_MAX = 150 };

static const char what_is_read[] =
    "Outrider reads GGUF files, and Hugging Face folders: config.json, tokenizer.json and "
    "safetensors";

static bool ends_with(const char *name, const char *tail)
{
    size_t len = strlen(name), tail_len = strlen(tail);
    return len > tail_len && strcmp(name + len - tail_len, tail) == 0;
}

/* The first file of the folder that is called .gguf; false: there is none. */
static bool find_gguf(const char *folder, char *found, size_t size)
{
    struct dirent *entry;
    DIR *open = opendir(folder);
    *found = '\0';
    while (open && (entry = readdir(open))) {
        if (!ends_with(entry->d_name, ".gguf")) continue;
        if (!*found || strcmp(entry->d_name, found) < 0) snprintf(found, size, "%s", entry->d_name);
    }
    if (open) closedir(open);
    return *found != '\0';
}

/* org/name, as on a hub: two parts that are no path. */
static bool is_hub_name(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash && slash != name && slash[1] && !strchr(slash + 1, '/') && *name != '.' &&
           *name != '~';
}

static int explain_missing(const char *name, struct error *err)
{
    if (ends_with(name, ".gguf")) {
        return error_set(err, ERR_NOT_FOUND, "there is no file %.120s", name);
    }
    if (is_hub_name(name)) {
        return error_set(err, ERR_NOT_FOUND,
                         "there is no folder %.120s; nothing is downloaded, so if this is the name "
                         "of a model on a hub, get it first (hf download %.120s --local-dir "
                         "FOLDER) and name that folder",
                         name, name);
    }
    return error_set(err, ERR_NOT_FOUND, "there is no folder %.120s", name);
}

/* The hash in refs/main of a cache's folder; "": there is none that a snapshot has. */
static void read_main(const char *folder, char hash[HASH_BYTES])
{
    char path[PATH_BYTES];
    struct stat st;
    int len = snprintf(path, sizeof path, "%s/refs/main", folder);
    FILE *file = len > 0 && len < PATH_BYTES ? fopen(path, "rb") : NULL;
    hash[0] = '\0';
    if (!file) return;
    size_t n = fread(hash, 1, HASH_BYTES - 1, file);
    fclose(file);
    hash[n] = '\0';
    hash[strcspn(hash, "\r\n")] = '\0';
    len = snprintf(path, sizeof path, "%s/snapshots/%s", folder, hash);
    if (strchr(hash, '/') || len >= PATH_BYTES || stat(path, &st)) hash[0] = '\0';
}

/* The folder of a model in the cache of huggingface_hub: models--ORG--NAME, whose snapshots have
 * the files. */
static bool is_cached(const char *folder)
{
    char path[PATH_BYTES];
    struct stat st;
    int len = snprintf(path, sizeof path, "%s/snapshots", folder);
    return len > 0 && len < PATH_BYTES && !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int explain_cached(const char *folder, const char *wanted, struct error *err)
{
    char hash[HASH_BYTES];
    int len = (int)strlen(folder);
    while (len > 1 && folder[len - 1] == '/')
        len--;
    read_main(folder, hash);
    if (hash[0]) {
        return error_set(err, ERR_NOT_FOUND,
                         "%.*s is a folder of the Hugging Face cache and has no %s itself; name "
                         "its snapshot: %.*s/snapshots/%s",
                         len < SHOWN_MAX ? len : SHOWN_MAX, folder, wanted,
                         len < SHOWN_MAX ? len : SHOWN_MAX, folder, hash);
    }
    return error_set(err, ERR_NOT_FOUND,
                     "%.*s is a folder of the Hugging Face cache and has no %s itself; name one of "
                     "the folders in its snapshots/",
                     len < SHOWN_MAX ? len : SHOWN_MAX, folder, wanted);
}

int model_folder_explain(const char *name, const char *wanted, int rc, struct error *err)
{
    struct stat st;
    char file[256];
    if (stat(name, &st)) {
        return errno == ENOENT && *name ? explain_missing(name, err) : rc;
    }
    if (S_ISREG(st.st_mode)) {
        return error_set(err, ERR_FORMAT,
                         "%.120s is a file, but no GGUF file; name such a file or the folder of a "
                         "model",
                         name);
    }
    if (rc != ERR_NOT_FOUND || !S_ISDIR(st.st_mode)) return rc;
    if (find_gguf(name, file, sizeof file)) {
        return error_set(err, ERR_NOT_FOUND,
                         "%.120s has no %s, but a GGUF file; name that file: %.120s/%.200s", name,
                         wanted, name, file);
    }
    if (is_cached(name)) return explain_cached(name, wanted, err);
    return error_set(err, ERR_NOT_FOUND, "%.120s has no %s, so it is not the folder of a model; %s",
                     name, wanted, what_is_read);
}
