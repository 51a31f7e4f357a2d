/* A model's weights by name, wherever they come from: a Hugging Face folder (one safetensors file
 * or several with an index, mapped, never copied whole), a GGUF file (model/gguf) or a synthetic
 * model
 *   "synthetic:SHAPE,seed=S[,layers=L][,vocab=V][,core=N,tail=R][,agree=A[,core=N]][,draft=N]
 *    [,blocks=KIND]"
 * whose elements are computed when they are read (model/numerics/synthetic_elements.h), the same
 * for every way of sharding. SHAPE is a name such as llama-3.1-8b or tiny, or the path of a
 * config.json. With blocks=q4_k the matrices are in blocks of this kind, as those of a GGUF file
 * (model/numerics/synthetic_blocks.h).
 *
 * Pairs. "...,agree=A" is a target and "...,agree=A,draft=1" its draft: the target's first layer,
 * final norm and head, bit for bit. What the target's other layers add is scaled so that alpha of
 * `rejection` at temperature 1 is about A. The core, the layers that both have, is one layer unless
 * both names say core=N; draft=N must equal it. With core and tail the layers from N on add R times
 * what they would add otherwise, whatever agreement that gives; the draft is draft=N, or the same
 * seed with layers=N.
 *
 * Some of a model's layers, as a model of their own: "MODEL,layers=0-3,12-15" (layers.h). Only
 * their tensors are looked up and read, and they are called layer 0, 1, ... here.
 *
 * Immutable after open; reads may come from several threads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "model/checkpoint/config/config.h"
#include "model/checkpoint/find.h"
#include "model/checkpoint/layout.h"
#include "model/checkpoint/remark.h"

/* name: a folder, ORG/NAME of the Hugging Face cache (base/system/hub_cache.h), a GGUF file or
 * "synthetic:...", with or without a list of layers. Errors: ERR_NOT_FOUND, ERR_FORMAT,
 * ERR_UNSUPPORTED, ERR_IO, ERR_ARGUMENT for a synthetic name or a list that makes no sense. Every
 * tensor that the config asks for is looked up and checked here, so that a model that lacks one, or
 * has others that might change the result, is refused before anything is computed. */
int checkpoint_open(struct checkpoint **ck, const char *name, struct error *err);
void checkpoint_close(struct checkpoint *ck);

const struct model_config *checkpoint_config(const struct checkpoint *ck);
/* The folder where there is one, also for ORG/NAME; else the name as given to open, without a list
 * of layers. */
const char *checkpoint_name(const struct checkpoint *ck);
/* The number that layer i has in the model that it was chosen from; i where none were chosen. */
int checkpoint_layer(const struct checkpoint *ck, int i);
bool checkpoint_is_synthetic(const struct checkpoint *ck);
bool checkpoint_is_gguf(const struct checkpoint *ck);
/* Layers of the files after the model's own that guess tokens (MTP): they are no part of it. */
int checkpoint_n_guessing_layers(const struct checkpoint *ck);
/* [*n] the tensors that the config asks for, all of which are there. */
const struct tensor_spec *checkpoint_tensors(const struct checkpoint *ck, size_t *n);

/* The sentence, without the name of the model; NULL: there is nothing to say. */
const char *checkpoint_remark(const struct checkpoint *ck, enum checkpoint_remark which);
/* The token that takes the place of one that is not known yet: a model with one was taught to guess
 * several tokens from one pass (PARD, arXiv 2504.18583). It is as config.json has it, maybe no
 * token of the model; -1: there is none. *key: what config.json calls it; key may be NULL. */
int checkpoint_mask_token(const struct checkpoint *ck, const char **key);
/* Errors: ERR_UNSUPPORTED config.json has keys that nobody knows, which it names. */
int checkpoint_demand_known_keys(const struct checkpoint *ck, struct error *err);

/* A hash of config, tensor table and samples of every tensor's bytes, which tells different models
 * apart before hundreds of gigabytes are read. It overlooks damage between the samples; the
 * fingerprint of all bytes is known when the weights are loaded (model_fingerprint in
 * model/model.h). */
uint64_t checkpoint_fingerprint(const struct checkpoint *ck);

/* A hash of the mapped files' sizes, times and inodes; 0 for a synthetic model. It changes with any
 * change to the files that goes through the file system: a program can set a file's mtime back, but
 * not its ctime. Copies of a folder have different stamps. */
uint64_t checkpoint_stamp(const struct checkpoint *ck);

/* A hint that all weights will be read, one after the other; without it, a part of them
 * (weight_expect). */
void checkpoint_expect_whole(const struct checkpoint *ck);

/* Lets the pages read so far leave this process. They stay in the page cache, and a later read gets
 * them from there. */
void checkpoint_release(const struct checkpoint *ck);
