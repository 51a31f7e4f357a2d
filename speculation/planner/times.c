/* Tables of times over rows: what the planner measures, smoothed and forced monotone. Its constants
 * are choices and not measurements; tests/unit/speculation/planner/test_planner_load.c compares the
 * planner that they make with the best fixed K over simulated machines. */
#include "speculation/planner/times.h"

#include <math.h>

/* Counts. Each comment begins with the unit. */
enum {
    /* Measurements: a new one counts at least 1 / MEMORY_TIMES in a mean, so that the mean can
     * follow. */
    MEMORY_TIMES = 48,
    /* Rounds: a knot that was not measured for so long is used seldom. */
    SELDOM_ROUNDS = 8,
    /* Measurements that such a knot counts as at most, where each number of rows has its own. While
     * one number of rows is used all the time, a change of its time looks like a change of load, so
     * only the few measurements of others can tell that the shape has changed. They count more
     * then, and probes ask for them more often. */
    SELDOM_TIMES = 8,
    /* Measurements that a knot counts as at most in the line through its neighbours, so that one
     * that is used all the time does not outvote the others. */
    LINE_TIMES = 8,
    /* Measurements of a knot before it moves the scale. */
    SCALE_TIMES = 2,
    /* Measurements that a knot counts as at most when only weak ones were made. */
    WEAK_TIMES = 8,
    /* Measurements of a knot that change so much that the fit is made anew at once. */
    NEW_TIMES = 4,
    /* Times the largest number of rows: more rows than this are far beyond it. */
    FAR_ROWS = 4,
    /* Measured knots on either side that the line at a knot goes through. */
    LINE_KNOTS = 16
};

/* Ratio: a measurement counts as no more than this times the mean, because a single slow one says
 * nothing of the next. Where times are steady the limit is closer: clip_spreads times as far as
 * they usually are from the mean, but no closer than clip_least. */
static const double clip = 1.5;
static const double clip_least = 1.05;
static const double clip_spreads = 4;
/* Weight of one measurement in the usual distance. */
static const double spread_weight = 1. / 16;
/* Weight of one measurement in the scale that all knots share: about 8 rounds follow a change of
 * load. */
static const double scale_weight = 0.125;
/* Rows: points twice as far away have no weight in the line at the first knot; at r rows it is
 * r / 2 more, because knots of many rows are far apart. */
static const double line_width = 16;
/* Measurements times rows squared, at line_width: the evidence for slope 0 before anything was
 * measured. Neighbouring numbers of rows say little of the slope, so more rows look cheap until
 * they are tried. */
static const double flatness = 64;
/* Measurements: when a knot was timed once, the line counts as much as two measurements of it. */
static const double line_weight = 2;

/* Measurements that the line counts as at a knot of many rows, however often that was timed: a few
 * rows of many change little, and a difference between neighbours is noise. */
static const double far_line_weight = 8;
/* Rounds: a knot that was not measured for so long counts half, because others have changed. */
static const double old_rounds = 2000;
/* Ratio of rows: so far beyond a measured number of rows more rows look cheap until tried. */
static const double tried_ratio = 1.5;

static double clamp(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

static int clamp_rows(int rows)
{
    return rows < 1 ? 1 : rows > PLANNER_ROWS_MAX ? PLANNER_ROWS_MAX : rows;
}

int planner_knot_of(int rows)
{
    unsigned before = (unsigned)clamp_rows(rows) - 1;
    if (before < PLANNER_ROWS_EXACT) return (int)before;
    int shift = 2; /* of PLANNER_ROWS_EXACT = 8 << 2: the three bits below the highest one */
    while (before >> shift >= 16) {
        shift++;
    }
    return PLANNER_ROWS_EXACT + (shift - 2) * 8 + (int)(before >> shift) - 8;
}

/* weight: 0 .. 1, of the new time besides the others. It counts as at most `most` means. */
static void time_add(struct planner_time *t, double us, double weight, double most)
{
    if (t->n == 0 || (t->n == 1 && us < t->us)) {
        t->us = us;
    } else if (t->n > 1) {
        int n = t->n < MEMORY_TIMES ? t->n : MEMORY_TIMES;
        t->us += weight * (clamp(us, 0, most * t->us) - t->us) / n;
    }
    t->n++;
}

void planner_time_add(struct planner_time *t, double us)
{
    time_add(t, us, 1, clip);
}

/* ---- measuring ---- */

/* The mean number of rows has the weights of the mean time. What the knot itself has given to the
 * scale says nothing of its shape: without this factor a knot that is used all the time would take
 * the noise of the scale into its shape bit by bit, and the two would drift away from the knots
 * that are not used. */
static void knot_add(struct planner_knot *knot, int rows, double us, double most)
{
    int n = knot->shape.n < MEMORY_TIMES ? knot->shape.n : MEMORY_TIMES;
    if (n == 0 || (n == 1 && us < knot->shape.us)) {
        knot->rows = rows;
    } else if (n > 1) {
        knot->rows += (rows - knot->rows) / n;
    }
    time_add(&knot->shape, us, 1 - knot->share, most);
}

/* The first time of a knot is no more than what the others make likely, because otherwise one
 * outlier would rule this knot out for good. Far beyond the largest number of rows, where nothing
 * is likely, it may be proportional to the rows. */
static double clip_first(const struct planner_curve *c, int rows, double us)
{
    double wanted = planner_curve_at(c, rows);
    if (rows > FAR_ROWS * c->largest && c->largest > 0) {
        wanted = fmax(wanted, planner_curve_at(c, c->largest) * rows / c->largest);
    }
    return wanted > 0 ? fmin(us, clip * wanted) : us;
}

static void begin_measurement(struct planner_curve *c, int rows, double us, uint64_t at)
{
    if (c->scale_us <= 0) {
        c->scale_us = us;
        c->knots[planner_knot_of(rows)].share = 1;
    }
    if (rows > c->largest) c->largest = rows;
    if (at > c->newest) c->newest = at;
    c->is_stale = true;
}

/* The most that a time counts as, over what was expected. */
static double clip_of(const struct planner_curve *c)
{
    return c->spread > 0 ? clamp(1 + clip_spreads * c->spread, clip_least, clip) : clip;
}

/* A change that lasts makes the spread large within a few measurements, and is then followed
 * fast. */
static void observe_spread(struct planner_curve *c, double ratio)
{
    double far = fabs(clamp(ratio, 1 / clip, clip) - 1);
    if (c->spread <= 0) c->spread = (clip - 1) / clip_spreads;
    c->spread += spread_weight * (far - c->spread);
}

/* Outliers are too long and never too short, so only long times are clipped, as in the mean: if
 * the two differed, the scale would drift. */
static void move_scale(struct planner_curve *c, struct planner_knot *own, double us, uint64_t at)
{
    if (own->shape.n < SCALE_TIMES || c->scaled_at == at) return;
    double ratio = us / (c->scale_us * own->shape.us);
    c->scale_us *= 1 + scale_weight * (clamp(ratio, 0, clip_of(c)) - 1);
    c->scaled_at = at;
    observe_spread(c, ratio);
    for (int i = 0; i < PLANNER_KNOTS; i++) {
        c->knots[i].share *= 1 - scale_weight;
    }
    own->share += scale_weight;
}

void planner_curve_add(struct planner_curve *c, int rows, double us, uint64_t at)
{
    rows = clamp_rows(rows);
    struct planner_knot *knot = &c->knots[planner_knot_of(rows)];
    us = fmax(us, 1);
    if (knot->shape.n == 0) us = clip_first(c, rows, us);
    begin_measurement(c, rows, us, at);
    if (rows > c->largest_own) c->largest_own = rows;
    double most = clip_of(c);
    move_scale(c, knot, us, at);
    bool is_seldom = rows <= PLANNER_ROWS_EXACT && at > knot->at + SELDOM_ROUNDS;
    if (is_seldom && knot->shape.n > SELDOM_TIMES) knot->shape.n = SELDOM_TIMES;
    knot_add(knot, rows, us / c->scale_us, most);
    knot->at = at;
    if (knot->shape.n <= NEW_TIMES) c->is_new = true;
}

void planner_curve_add_weakly(struct planner_curve *c, int rows, double us, uint64_t at)
{
    rows = clamp_rows(rows);
    struct planner_knot *knot = &c->knots[planner_knot_of(rows)];
    us = fmax(us, 1);
    if (knot->shape.n == 0) us = clip_first(c, rows, us);
    begin_measurement(c, rows, us, at);
    knot->at = at;
    if (knot->shape.n < WEAK_TIMES) {
        knot_add(knot, rows, us / c->scale_us, clip);
        c->is_new = true;
    } else {
        double shape = clamp(us / c->scale_us, 0, knot->shape.us * clip);
        knot->shape.us += (shape - knot->shape.us) / MEMORY_TIMES;
    }
}

void planner_curve_set(struct planner_curve *c, double rows, double us, int n)
{
    int nearest = clamp_rows((int)lround(rows));
    begin_measurement(c, nearest, us, 0);
    if (nearest > c->largest_own) c->largest_own = nearest;
    c->knots[planner_knot_of(nearest)] = (struct planner_knot){
        .shape = {us / c->scale_us, n},
        .rows = clamp(rows, 1, PLANNER_ROWS_MAX),
        .at = c->newest,
    };
    c->is_new = true;
}

/* ---- fitting ---- */

/* The measured knots in ascending order. */
struct points {
    double rows[PLANNER_KNOTS], shape[PLANNER_KNOTS];
    double n[PLANNER_KNOTS]; /* measurements; old ones count less */
    int n_points;
};

/* The line through the points near `rows`; slope >= 0, because more rows are never cheaper. */
struct line {
    double at_rows, slope;
};

static struct line line_at(const struct points *points, int index)
{
    double rows = points->rows[index], width = line_width + rows / 2;
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    int first = index > LINE_KNOTS ? index - LINE_KNOTS : 0;
    for (int i = first; i < points->n_points && i <= index + LINE_KNOTS; i++) {
        double x = points->rows[i] - rows, near = fmax(1 - x * x / (4 * width * width), 0);
        double weight = fmin(points->n[i], LINE_TIMES) * near * near;
        w += weight;
        wx += weight * x;
        wy += weight * points->shape[i];
        wxx += weight * x * x;
        wxy += weight * x * points->shape[i];
    }
    double flat = flatness * width * width / (line_width * line_width);
    double slope = fmax((w * wxy - wx * wy) / (w * wxx - wx * wx + w * flat), 0);
    return (struct line){fmax((wy - slope * wx) / w, 0), slope};
}

static void list_points(const struct planner_curve *c, struct points *points)
{
    int n = 0;
    for (int i = 0; i < PLANNER_KNOTS; i++) {
        const struct planner_knot *knot = &c->knots[i];
        if (knot->shape.n == 0) continue;
        points->rows[n] = knot->rows;
        points->shape[n] = knot->shape.us;
        double age = (double)(c->newest - knot->at) / old_rounds;
        points->n[n++] = knot->shape.n / (1 + age);
    }
    points->n_points = n;
}

/* The time of a knot that was used once is mostly the line's; later it is what was measured. */
static double own_or_line(const struct points *points, int index)
{
    double n = points->n[index];
    double weight = points->rows[index] > PLANNER_ROWS_EXACT ? far_line_weight : line_weight / n;
    return (n * points->shape[index] + weight * line_at(points, index).at_rows) / (n + weight);
}

/* value[i] of each point. More rows are never cheaper, so neighbours that say otherwise are
 * averaged, each weighted by how often it was used (pool adjacent violators; Ayer et al. 1955).
 * Without it the planner would choose whichever of many noisy numbers came out smallest by
 * chance. */
static void pool(const struct points *points, double *value)
{
    double mean[PLANNER_KNOTS], weight[PLANNER_KNOTS];
    int length[PLANNER_KNOTS], n = 0;
    for (int i = 0; i < points->n_points; i++) {
        mean[n] = own_or_line(points, i);
        weight[n] = fmin(points->n[i], MEMORY_TIMES);
        length[n++] = 1;
        for (; n > 1 && mean[n - 2] > mean[n - 1]; n--) {
            double both = weight[n - 2] + weight[n - 1];
            mean[n - 2] = (mean[n - 2] * weight[n - 2] + mean[n - 1] * weight[n - 1]) / both;
            weight[n - 2] = both;
            length[n - 2] += length[n - 1];
        }
    }
    for (int block = 0, i = 0; block < n; block++) {
        for (int end = i + length[block]; i < end; i++) {
            value[i] = mean[block];
        }
    }
}

/* us[rows] = value + slope * (rows - at), for first <= rows <= last. */
static void draw(float *us, int first, int last, double at, double value, double slope)
{
    for (int rows = first; rows <= last; rows++) {
        us[rows] = (float)(value + slope * (rows - at));
    }
}

/* Between two points the time is interpolated, but as far as half beyond the first one it follows
 * the line there if that is cheaper: the times of a step bend upward, so that the straight way to a
 * far point would forbid rows that were never tried. */
static void draw_between(const struct points *points, int i, const double *value, double scale_us,
                         float *us)
{
    double from = points->rows[i], to = points->rows[i + 1], end = value[i + 1];
    double middle = floor(from * tried_ratio) + 1, slope = (end - value[i]) / (to - from);
    double cheap = fmin(line_at(points, i).slope, slope), at_middle = value[i];
    if (middle < to) {
        draw(us, (int)from + 1, (int)middle, from, scale_us * value[i], scale_us * cheap);
        at_middle += cheap * (middle - from);
        slope = (end - at_middle) / (to - middle);
        from = middle;
    }
    draw(us, (int)from + 1, (int)to, from, scale_us * at_middle, scale_us * slope);
}

/* Below the first point the time falls with the line there, at most in proportion; beyond the last
 * one it rises with the line there. */
static void draw_points(const struct points *points, const double *value, double scale_us,
                        float *us)
{
    int last = points->n_points - 1;
    double first = points->rows[0], slope = fmin(line_at(points, 0).slope, value[0] / first);
    draw(us, 1, (int)first, first, scale_us * value[0], scale_us * slope);
    for (int i = 0; i < last; i++) {
        draw_between(points, i, value, scale_us, us);
    }
    draw(us, (int)points->rows[last] + 1, PLANNER_ROWS_MAX, points->rows[last],
         scale_us * value[last], scale_us * line_at(points, last).slope);
}

void planner_curve_fit(struct planner_curve *c)
{
    struct points points;
    double value[PLANNER_KNOTS];
    if (!c->is_stale) return;
    list_points(c, &points);
    pool(&points, value);
    draw_points(&points, value, c->scale_us, c->fit);
    c->slope_us = c->scale_us * line_at(&points, 0).slope;
    c->is_stale = c->is_new = false;
}

double planner_curve_at(const struct planner_curve *c, int rows)
{
    return rows < 1 ? 0 : (double)c->fit[clamp_rows(rows)];
}
