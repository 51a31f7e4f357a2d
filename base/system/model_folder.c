/* Why a name is no model folder. */
#include "base/system/model_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/system/hub_cache.h"
#include "base/text/ending.h"

static const char what_is_read[] =
    "Outrider reads GGUF files, and Hugging Face folders: config.json, tokenizer.json and "
    "safetensors";

/* The first file of the folder that is called .gguf; false: there is none. */
static bool find_gguf(const char *folder, char *found, size_t size)
{
    struct dirent *entry;
    DIR *open = opendir(folder);
    *found = '\0';
    while (open && (entry = readdir(open))) {
        if (!ending_is(entry->d_name, ".gguf")) continue;
        if (!*found || strcmp(entry->d_name, found) < 0) snprintf(found, size, "%s", entry->d_name);
    }
    if (open) closedir(open);
    return *found != '\0';
}

int model_folder_explain(const char *name, const char *wanted, int rc, struct error *err)
{
    struct stat st;
    char file[256], advice[HUB_NAME_BYTES + 64];
    if (stat(name, &st)) {
        if (errno != ENOENT || !*name) return rc;
        return error_set(err, ERR_NOT_FOUND, "there is no %s %.120s",
                         ending_is(name, ".gguf") ? "file" : "folder", name);
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
    hub_cache_advice(name, advice, sizeof advice);
    if (advice[0]) {
        return error_set(err, ERR_NOT_FOUND, "%.150s has no %s: it was not fetched whole%s", name,
                         wanted, advice);
    }
    if (hub_cache_is_root(name, file, sizeof file)) {
        return error_set(err, ERR_NOT_FOUND,
                         "%.120s is a Hugging Face cache; name one of its models, such as %.200s",
                         name, file);
    }
    return error_set(err, ERR_NOT_FOUND, "%.120s has no %s, so it is not the folder of a model; %s",
                     name, wanted, what_is_read);
}
