/* The names of synthetic models: "synthetic:SHAPE,seed=S" and its other options, in any order.
 *
 *   layers=L   another number of layers          vocab=V   another vocabulary
 *   core=N     layers 0..N-1 are the core        tail=R    the others add R times what they would
 *   agree=A    R is chosen so that a draft of the core agrees with the whole by A
 *              (synthetic_agree.c); the core is one layer unless core=N says more
 *   draft=N    of a name with a core: its first N layers alone. N must be the core. The draft's
 *              name is then the target's with ",draft=N" at its end, and a pair that does not
 *              belong together is refused here, instead of only being slow later
 *   blocks=K   matrices in blocks of the kind K (q4_k, q8_0, ...), as GGUF files have them
 * tail= and agree= exclude each other, and core= needs one of them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/config/config_parse.h"
#include "model/checkpoint/internal.h"
#include "model/checkpoint/synthetic_agree.h"
#include "model/numerics/synthetic_blocks.h"

enum { SHAPE_BYTES = 1024, CONFIG_MOST_BYTES = 4 << 20, CORE_OF_AGREE = 1 };

static int read_shape(struct synthetic_model *model, const char *shape, struct error *err)
{
    char names[256];
    char *text = NULL;
    size_t len = 0;
    int rc = 0;
    if (checkpoint_named_shape(shape, &model->cfg)) return 0;
    if (!strchr(shape, '/') && !strstr(shape, ".json")) {
        checkpoint_shape_names(names, sizeof names);
        return error_set(err, ERR_ARGUMENT,
                         "synthetic model: no shape \"%.100s\"; there are %s, and the path of any "
                         "config.json",
                         shape, names);
    }
    TRY(file_read_text(&text, &len, shape, CONFIG_MOST_BYTES, err));
    TRY(config_parse(&model->cfg, text, len, NULL, 0, shape, &model->rest, err));
    model->cfg.stored =
        WEIGHTS_BF16; /* elements are made in bf16, however the shape's are stored */
    model->cfg.stored_group = 0;
    model->rest.scheme = (struct quant_scheme){0};
out:
    free(text);
    return rc;
}

static int option_error(const char *option, const char *wanted, struct error *err)
{
    return error_set(err, ERR_ARGUMENT, "synthetic model: \"%.100s\" is not %s", option, wanted);
}

/* The value must be digits only: no sign, no space, nothing after them. */
static int read_number(const char *option, const char *value, uint64_t least, uint64_t most,
                       uint64_t *out, struct error *err)
{
    char wanted[80], *end = NULL;
    snprintf(wanted, sizeof wanted, "a number in %" PRIu64 "..%" PRIu64, least, most);
    if (*value < '0' || *value > '9') return option_error(option, wanted, err);
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (errno || *end || number < least || number > most) return option_error(option, wanted, err);
    *out = number;
    return 0;
}

static int read_ratio(const char *option, const char *value, double *out, struct error *err)
{
    char *end = NULL;
    double ratio = strtod(value, &end);
    if (end == value || *end || !(ratio >= 0 && ratio <= 1)) {
        return option_error(option, "a number in 0..1", err);
    }
    *out = ratio;
    return 0;
}

enum key {
    KEY_SEED,
    KEY_LAYERS,
    KEY_VOCAB,
    KEY_CORE,
    KEY_TAIL,
    KEY_AGREE,
    KEY_DRAFT,
    KEY_BLOCKS,
    N_KEYS
};

static const char *const keys[N_KEYS] = {
    [KEY_SEED] = "seed=",   [KEY_LAYERS] = "layers=", [KEY_VOCAB] = "vocab=",
    [KEY_CORE] = "core=",   [KEY_TAIL] = "tail=",     [KEY_AGREE] = "agree=",
    [KEY_DRAFT] = "draft=", [KEY_BLOCKS] = "blocks=",
};

/* The options of a name, as they are given. */
struct name {
    unsigned seen; /* bit per key */
    uint64_t numbers[N_KEYS];
    double ratios[N_KEYS];
    enum block_kind block;
};

static bool has(const struct name *name, enum key key)
{
    return name->seen >> key & 1;
}

static int read_blocks(const char *option, const char *value, enum block_kind *kind,
                       struct error *err)
{
    char names[160];
    if (synthetic_block_kind(value, kind)) return 0;
    synthetic_block_names(names, sizeof names);
    return error_set(err, ERR_ARGUMENT, "synthetic model: \"%.60s\" is none of %s", option, names);
}

static int read_option(struct name *name, const char *option, struct error *err)
{
    static const uint64_t least[N_KEYS] = {0, 1, 2, 0, 0, 0, 1, 0};
    static const uint64_t most[N_KEYS] = {UINT64_MAX, 4096, 1 << 24, 4096, 0, 0, 4096, 0};
    int key = 0;
    while (key < N_KEYS && strncmp(option, keys[key], strlen(keys[key])) != 0)
        key++;
    if (key == N_KEYS) {
        return option_error(
            option, "one of seed=, layers=, vocab=, core=, tail=, agree=, draft=, blocks=", err);
    }
    if (has(name, (enum key)key)) return option_error(option, "wanted twice", err);
    name->seen |= 1u << key;
    const char *value = option + strlen(keys[key]);
    if (key == KEY_TAIL || key == KEY_AGREE) {
        return read_ratio(option, value, &name->ratios[key], err);
    }
    if (key == KEY_BLOCKS) return read_blocks(option, value, &name->block, err);
    return read_number(option, value, least[key], most[key], &name->numbers[key], err);
}

/* Refuses options that do not go together. */
static int check_options(const struct name *name, const char *text, struct error *err)
{
    bool has_core = has(name, KEY_CORE), has_tail = has(name, KEY_TAIL);
    if (!has(name, KEY_SEED)) return option_error(text, "complete: seed= is missing", err);
    if (has(name, KEY_AGREE)) {
        if (has_tail) {
            return option_error(text, "one model: tail= and agree= exclude each other", err);
        }
        if (has_core && name->numbers[KEY_CORE] < 1) {
            return option_error("core=0", "at least 1, as agree= asks for", err);
        }
        return 0;
    }
    if (has_core != has_tail) {
        return option_error(text, "complete: core= and tail= belong together", err);
    }
    if (has(name, KEY_DRAFT) && !has_core) {
        return option_error(text, "complete: draft= needs agree=A, or core=N and tail=R", err);
    }
    return 0;
}

/* A smaller vocabulary may have lost the special ids. */
static void drop_lost_ids(struct model_config *cfg)
{
    if (cfg->bos_id >= cfg->vocab_size) cfg->bos_id = -1;
    while (cfg->ends.n > 0 && cfg->ends.ids[cfg->ends.n - 1] >= cfg->vocab_size)
        cfg->ends.n--;
}

/* Cuts the target to its draft. */
static int cut_draft(struct synthetic_model *model, uint64_t n, struct error *err)
{
    if (n != (uint64_t)model->core_layers) {
        return error_set(err, ERR_ARGUMENT,
                         "synthetic model: \"draft=%" PRIu64 "\" is not the target's core of %d "
                         "layer%s: write draft=%d, or core=%" PRIu64 " in both names",
                         n, model->core_layers, model->core_layers == 1 ? "" : "s",
                         model->core_layers, n);
    }
    if (n > (uint64_t)model->cfg.n_layers) {
        return error_set(err, ERR_ARGUMENT,
                         "synthetic model: \"draft=%" PRIu64
                         "\" is more than the target's %d layers",
                         n, model->cfg.n_layers);
    }
    config_choose_layers(&model->cfg, NULL, (int)n);
    return 0;
}

/* The sizes of core and tail follow from what layers add, which a norm or a scale after it would
 * change. */
static bool adds_plainly(const struct model_config *cfg)
{
    return cfg->norms == NORMS_BEFORE && cfg->embedding_scale == 0 && cfg->logit_scale == 0 &&
           cfg->logit_softcap == 0 && config_layer(cfg, 0)->residual_scale == 0;
}

static int apply(struct synthetic_model *model, const struct name *name, struct error *err)
{
    int rc = 0;
    if ((has(name, KEY_CORE) || has(name, KEY_AGREE)) && !adds_plainly(&model->cfg)) {
        return error_set(err, ERR_ARGUMENT,
                         "synthetic model: core=, tail= and agree= are not for models of the class "
                         "%s, which norms or scales what layers add",
                         model->cfg.architecture);
    }
    model->seed = name->numbers[KEY_SEED];
    model->block = name->block;
    if (model->block) model->cfg.stored = WEIGHTS_BLOCKS;
    model->share_layers = model->cfg.n_layers;
    model->tail = has(name, KEY_TAIL) ? name->ratios[KEY_TAIL] : 1;
    if (has(name, KEY_LAYERS)) {
        config_choose_layers(&model->cfg, NULL, (int)name->numbers[KEY_LAYERS]);
    }
    if (has(name, KEY_VOCAB)) model->cfg.vocab_size = (int)name->numbers[KEY_VOCAB];
    if (has(name, KEY_CORE)) model->core_layers = (int)name->numbers[KEY_CORE];
    drop_lost_ids(&model->cfg);
    if (has(name, KEY_AGREE)) {
        if (!has(name, KEY_CORE)) model->core_layers = CORE_OF_AGREE;
        model->share_layers = model->core_layers;
        TRY(synthetic_agree_tail(model, name->ratios[KEY_AGREE], &model->tail, err));
    }
    if (has(name, KEY_DRAFT)) TRY(cut_draft(model, name->numbers[KEY_DRAFT], err));
out:
    return rc;
}

int synthetic_parse_name(struct synthetic_model *model, const char *name, struct error *err)
{
    char text[SHAPE_BYTES], *rest = NULL;
    struct name options = {0};
    int rc = 0;
    if (strlen(name) >= sizeof text) return option_error(name, "a name of this length", err);
    memcpy(text, name, strlen(name) + 1);
    char *shape = strchr(text, ':') + 1;
    char *option = strchr(shape, ',');
    if (option) *option++ = '\0';
    TRY(read_shape(model, shape, err));
    for (; option; option = rest) {
        rest = strchr(option, ',');
        if (rest) *rest++ = '\0';
        TRY(read_option(&options, option, err));
    }
    TRY(check_options(&options, name, err));
    rc = apply(model, &options, err);
out:
    return rc;
}
