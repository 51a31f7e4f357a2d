/* From a wished agreement to the scale of the layers after the core.
 *
 * The residual stream before the head is core + tail, two nearly orthogonal vectors; the draft has
 * the core alone. After the final norm both models hold unit vectors with an angle between them,
 * tan(angle) = |tail| / |core|, and their logits are normal with deviation sigma (that of the head,
 * 1.2 + 0.465 ln V) and correlation cos(angle). Logits then differ by 2 sigma sin(angle / 2), root
 * mean square: the *contrast*. Since every head is made for the same entropy, agreement depends
 * nearly on the contrast alone and hardly on width, depth and vocabulary, so that one table is
 * enough for all shapes. The table is measured (bench/bench_agree.c, docs/journal/pairs.md).
 *
 * Sizes of core and tail, with the embedding 1, C layers in the core and B after it: each layer of
 * the core adds LAYERS_ADD / C to the square, each layer of the tail tail^2 times as much. A
 * layer's MLP adds 2 / C by construction, its attention less, since it averages over values. 3 / C
 * in all is taken: with it pairs of other cores, depths and lengths of text fall on one curve. */
#include "model/checkpoint/synthetic_agree.h"

#include <math.h>

#include "model/numerics/numerics.h"

static const double LAYERS_ADD = 3;
static const double COSINE_LEAST = 0.05; /* a tail of 20 times the core: the core is negligible */

struct point {
    double agreement, contrast;
};

static const struct point points[] = {
    {1.000, 0.000}, {0.980, 0.070}, {0.949, 0.177}, {0.898, 0.354}, {0.796, 0.717},
    {0.694, 1.096}, {0.592, 1.500}, {0.493, 1.918}, {0.408, 2.300}, {0.290, 2.931},
    {0.203, 3.500}, {0.098, 4.500}, {0.060, 5.000}, {0.040, 5.500},
};
enum { N_POINTS = sizeof points / sizeof *points };

double synthetic_logit_deviation(int vocab_size)
{
    return 1.2 + 0.465 * num_log(vocab_size);
}

double synthetic_agree_contrast(double wished)
{
    for (int i = 1; i < N_POINTS; i++) {
        const struct point *from = &points[i - 1], *to = &points[i];
        if (wished < to->agreement) continue;
        double part = (from->agreement - wished) / (from->agreement - to->agreement);
        return from->contrast + part * (to->contrast - from->contrast);
    }
    return points[N_POINTS - 1].contrast;
}

/* The agreement of two models with unrelated streams: the least that this vocabulary can have. */
static double least_agreement(double sigma)
{
    double contrast = sigma * sqrt(2 - 2 * COSINE_LEAST);
    for (int i = 1; i < N_POINTS; i++) {
        const struct point *from = &points[i - 1], *to = &points[i];
        if (to->contrast < contrast) continue;
        double part = (contrast - from->contrast) / (to->contrast - from->contrast);
        return from->agreement + part * (to->agreement - from->agreement);
    }
    return points[N_POINTS - 1].agreement;
}

int synthetic_agree_tail(const struct synthetic_model *model, double wished, double *tail,
                         struct error *err)
{
    int core = model->core_layers, n_after = model->cfg.n_layers - core;
    double sigma = synthetic_logit_deviation(model->cfg.vocab_size);
    double least = least_agreement(sigma);
    if (n_after < 1) {
        return error_set(err, ERR_ARGUMENT,
                         "synthetic model: agree= needs layers after the core: the core has %d of "
                         "%d; take a smaller core= or more layers=",
                         core, model->cfg.n_layers);
    }
    if (wished < least) {
        return error_set(err, ERR_ARGUMENT,
                         "synthetic model: agree=%g cannot be had: even unrelated models with a "
                         "vocabulary of %d agree by about %.2f",
                         wished, model->cfg.vocab_size, least);
    }
    double distance = synthetic_agree_contrast(wished) / sigma;
    double cosine = 1 - distance * distance / 2;
    double ratio = sqrt(1 / (cosine * cosine) - 1);
    *tail = ratio * sqrt((1 + LAYERS_ADD) / LAYERS_ADD * core / n_after);
    return 0;
}
