/* The name of a model that clients are told, which says nothing of the server's disk. */
#pragma once

#include <stddef.h>

/* The last part of the model's folder, into name[size], cut where its room ends: "target" for
 * "deploy/models/tales/target/". A GGUF file is opened for its general.name, or its
 * general.basename, size_label and finetune with "-" between them. One without, or whose name is a
 * path or holds control characters, has the name of the file without its ending and the number of a
 * split file: "tales-Q8_0" for "models/tales-Q8_0-00001-of-00002.gguf". A model of the Hugging
 * Face cache, named in any way, is ORG/NAME (base/system/hub_cache.h). A synthetic model keeps its
 * name, but where its SHAPE is the path of a file, only that path's last part stays. "." is the
 * current folder. A list of layers (model/checkpoint/layers.h) stays at the end of the name. */
void checkpoint_served_name(const char *model, char *name, size_t size);
