/* The folder of files that are kept beside a model. */
#include "model/backend/pack_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The length of a file's path up to its name. */
static int len_of_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash - path) + 1 : 0;
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

int pack_folder_find(char out[PACK_FOLDER_BYTES], const char *option, const char *model,
                     bool is_synthetic, struct error *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int len;
    if (strcmp(option, "auto") != 0) {
        len = snprintf(out, PACK_FOLDER_BYTES, "%s", option);
    } else if (!is_synthetic && is_file(model)) {
        len = snprintf(out, PACK_FOLDER_BYTES, "%.*spacked", len_of_folder(model), model);
    } else if (!is_synthetic) {
        len = snprintf(out, PACK_FOLDER_BYTES, "%s/packed", model);
    } else if (cache && *cache) {
        len = snprintf(out, PACK_FOLDER_BYTES, "%s/outrider", cache);
    } else if (home && *home) {
        len = snprintf(out, PACK_FOLDER_BYTES, "%s/.cache/outrider", home);
    } else {
        return error_set(err, ERR_ARGUMENT,
                         "--pack-cache auto: %s is no folder, and neither XDG_CACHE_HOME nor HOME "
                         "is set; name a folder instead",
                         model);
    }
    if ((size_t)len < PACK_FOLDER_BYTES) return 0;
    return error_set(err, ERR_ARGUMENT, "--pack-cache %.100s: the folder's name is too long",
                     option);
}
