/* The local cache of huggingface_hub, which `hf download` and transformers fill:
 *   CACHE/models--ORG--NAME/refs/REVISION     the hash of a snapshot
 *   CACHE/models--ORG--NAME/snapshots/HASH/   the files of the model, links to blobs beside it
 * CACHE is the first that is set of $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub
 * and ~/.cache/huggingface/hub. It is only read: nothing is downloaded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { HUB_PATH_BYTES = 4096, HUB_NAME_BYTES = 256 };

/* Writes the folder or file that the name of a model means into path. In this order it is:
 *   what there is at this path; a model's top folder in a cache means a snapshot in it
 *   for ORG/NAME and ORG/NAME@REVISION, a snapshot of this model in the cache
 *   the name itself, where the cache has no such model and it may be one of its own kind
 * The snapshot is that of REVISION, a name in refs/ or a whole hash; without one that of main, or
 * the only one that there is. Errors: ERR_NOT_FOUND says how to get what is missing; ERR_ARGUMENT
 * the name is too long. */
int hub_cache_resolve(char path[HUB_PATH_BYTES], const char *name, struct error *err);

/* Writes ORG/NAME of a model in a cache into name[size]. model: any name that hub_cache_resolve
 * takes, or a snapshot's folder. False, and name is "": it is none of a cache. */
bool hub_cache_model(const char *model, char *name, size_t size);

/* "; `hf download ORG/NAME` fetches what is missing" for a folder of a cache, "" for others. */
void hub_cache_advice(const char *folder, char *text, size_t size);

/* True if the folder is a cache: it has the top folder of a model, which name[size] is set to. */
bool hub_cache_is_root(const char *folder, char *name, size_t size);

/* Calls take with ORG/NAME of each model of the cache, in no order, and writes where the cache is
 * into path, "" if the environment does not say. */
void hub_cache_list(char path[HUB_PATH_BYTES], void (*take)(void *arg, const char *name),
                    void *arg);
