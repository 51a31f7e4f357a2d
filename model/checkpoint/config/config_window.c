/* Which layers have a sliding window, as the classes of transformers decide it:
 *   Mistral, Ministral 3, Phi-3
 *            all layers, where "sliding_window" is not null
 *   Gemma, OLMo 3, Ministral
 *            the layers that "layer_types" names, and without such a list all but each so-many-th
 *   SmolLM3  where "use_sliding_window" is on: the layers that "layer_types" names, and without
 *            such a list those without rotation
 *   Qwen     where "use_sliding_window" is on: the layers that "layer_types" names, and without
 *            such a list those from "max_window_layers" on
 *   Llama    none: the class does not know the key, while other programs obey it, so that a window
 *            which would change the result is refused
 * The same layers may have a rotation of their own, and some have none. */
#include "model/checkpoint/config/config_window.h"

#include <stdbool.h>
#include <string.h>

#include "base/text/json.h"

enum { MOST_WINDOW = 1 << 30 };

struct reading {
    const struct model_config *cfg;
    const json_t *root, *types; /* "layer_types", or NULL */
    const struct model_family *family;
    const char *origin;
    int window;        /* 0: none */
    int first;         /* max_window_layers */
    int period;        /* without a list each such layer has no window; 0: all have it */
    int norope_period; /* without a list each such layer has no rotation; 0: all have one */
};

/* A model with this window computes something else than one without. */
static bool matters(const struct reading *in)
{
    return in->window > 0 && in->window < in->cfg->max_positions;
}

static int read_keys(struct reading *in, struct error *err)
{
    bool has_switch = family_has_key(in->family, "use_sliding_window"), is_on = !has_switch;
    int rc = 0;
    in->types = json_member(in->root, "layer_types");
    in->first = has_switch ? in->family->window_layers : 0;
    /* The class's default is for a missing key, and null means that there is none. */
    in->window = json_object_get(in->root, "sliding_window") ? 0 : in->family->sliding_window;
    TRY(json_read_int(in->root, "sliding_window", 1, MOST_WINDOW, &in->window, in->origin, err));
    TRY(json_read_bool(in->root, "use_sliding_window", &is_on, in->origin, err));
    TRY(json_read_int(in->root, "max_window_layers", 0, LAYERS_MAX, &in->first, in->origin, err));
    if (!is_on) in->window = 0;
    if (!family_has_key(in->family, "max_window_layers")) in->first = 0;
    in->period = in->family->window_period;
    if (family_has_key(in->family, "sliding_window_pattern")) {
        TRY(json_read_int(in->root, "sliding_window_pattern", 1, LAYERS_MAX, &in->period,
                          in->origin, err));
    }
    in->norope_period = in->family->norope_period;
    if (family_has_key(in->family, "no_rope_layer_interval")) {
        TRY(json_read_int(in->root, "no_rope_layer_interval", 1, LAYERS_MAX, &in->norope_period,
                          in->origin, err));
    }
out:
    return rc;
}

static bool is_period(int period, int layer)
{
    return period > 0 && (layer + 1) % period == 0;
}

/* Sets *rotates to false for a layer without rotation. "no_rope_layers" has a 1 for each layer that
 * has one. */
static int read_rotates(const struct reading *in, int layer, bool *rotates, struct error *err)
{
    const json_t *list = json_member(in->root, "no_rope_layers");
    *rotates = !is_period(in->norope_period, layer);
    if (!list || !family_has_key(in->family, "no_rope_layers")) return 0;
    const json_t *value = json_array_get(list, (size_t)layer);
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number > 1) {
        return error_set(err, ERR_FORMAT, "%s: \"no_rope_layers\" has no 0 or 1 for layer %d",
                         in->origin, layer);
    }
    *rotates = number == 1;
    return 0;
}

static int check_list(const struct reading *in, struct error *err)
{
    if (json_is_array(in->types) && json_array_size(in->types) == (size_t)in->cfg->n_layers) {
        return 0;
    }
    return error_set(err, ERR_FORMAT, "%s: \"layer_types\" is not a list of %d names", in->origin,
                     in->cfg->n_layers);
}

/* Sets *slides to true if "layer_types" gives the layer a window. */
static int read_type(const struct reading *in, int layer, bool *slides, struct error *err)
{
    const char *name = json_string_value(json_array_get(in->types, (size_t)layer));
    *slides = name && strcmp(name, "sliding_attention") == 0;
    if (!*slides && (!name || strcmp(name, "full_attention") != 0)) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"layer_types\" has \"%.32s\" for layer %d; only full_attention and "
                         "sliding_attention are supported",
                         in->origin, name ? name : "no name", layer);
    }
    if (*slides && in->window == 0) {
        return error_set(err, ERR_FORMAT,
                         "%s: \"layer_types\" has \"sliding_attention\" for layer %d, but "
                         "\"sliding_window\" is not set%s",
                         in->origin, layer,
                         family_has_key(in->family, "use_sliding_window")
                             ? ", or \"use_sliding_window\" is not true"
                             : "");
    }
    /* Here the class has the window in all layers, whatever the list says. */
    bool has_switch = family_has_key(in->family, "use_sliding_window");
    bool is_of_all = family_has_key(in->family, "sliding_window") && !has_switch &&
                     in->family->windows == WINDOWS_OF_KEYS;
    if (!*slides && is_of_all && matters(in)) {
        return error_set(err, ERR_UNSUPPORTED,
                         "%s: \"layer_types\" has \"full_attention\" for layer %d, but in a %s "
                         "model \"sliding_window\" = %d is for all layers; leave one of them out",
                         in->origin, layer, in->family->model_type, in->window);
    }
    return 0;
}

/* The window and the rotation of one layer. */
static int read_layer(const struct reading *in, int layer, struct layer_kind *kind,
                      struct error *err)
{
    bool slides = in->window > 0 && layer >= in->first && !is_period(in->period, layer);
    bool rotates = true;
    int rc = 0;
    TRY(read_rotates(in, layer, &rotates, err));
    if (in->types) {
        TRY(read_type(in, layer, &slides, err));
    } else if (in->window == 0 && in->period > 0) {
        rc = error_set(err, ERR_FORMAT,
                       "%s: \"sliding_window\" is null, but layers of a %s model have a window "
                       "unless \"layer_types\" says otherwise",
                       in->origin, in->family->model_type);
        goto out;
    } else if (in->family->windows == WINDOWS_UNROTATED) {
        slides = slides && !rotates;
    }
    if (!rotates) kind->rope = ROPE_NONE;
    if (slides && in->cfg->ropes[1].theta != 0) kind->rope = 1;
    if (slides && !family_has_key(in->family, "sliding_window")) {
        if (matters(in)) {
            return error_set(err, ERR_UNSUPPORTED,
                             "%s: \"sliding_window\" = %d is not supported, because a %s model "
                             "attends to all positions; set it to null if this one does",
                             in->origin, in->window, in->family->model_type);
        }
        slides = false;
    }
    kind->window = slides ? in->window : 0;
out:
    return rc;
}

int config_window_read(struct model_config *cfg, const struct layer_kind *common,
                       const json_t *root, const struct model_family *family, const char *origin,
                       struct error *err)
{
    struct reading in = {.cfg = cfg, .root = root, .family = family, .origin = origin};
    int rc = 0;
    TRY(read_keys(&in, err));
    if (family->tensors == TENSORS_OF_SHARED_MLP) in.types = NULL; /* config_family.c has read it */
    if (in.types) TRY(check_list(&in, err));
    for (int i = 0; i < cfg->n_layers; i++) {
        struct layer_kind kind = *common;
        TRY(read_layer(&in, i, &kind, err));
        layer_table_set(&cfg->layers, i, &kind);
    }
out:
    return rc;
}
