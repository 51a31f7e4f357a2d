/* Reading points. */
#include "speculation/planner/points.h"

int planner_points_read(const json_t *root, const char *key, const char *path,
                        struct planner_point *points, struct error *err)
{
    const json_t *list = json_member(root, key);
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > PLANNER_KNOTS) {
        return error_set(err, ERR_FORMAT, "%s: %s is no list of at most %d points", path, key,
                         PLANNER_KNOTS);
    }
    for (size_t i = 0; i < n; i++) {
        double rows, us;
        int count;
        json_error_t ignored;
        json_t *point = json_array_get(list, i);
        if (json_unpack_ex(point, &ignored, JSON_STRICT, "[FFi]", &rows, &us, &count)) {
            return error_set(err, ERR_FORMAT, "%s: point %zu of %s is no [rows, us, n]", path, i,
                             key);
        }
        points[i] = (struct planner_point){rows, us, count};
    }
    return 0;
}
