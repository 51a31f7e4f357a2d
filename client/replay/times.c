/* Times of a cluster, given as three numbers or as the planner's kept tables. */
#include "client/replay/times.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/system/file.h"
#include "base/text/json.h"
#include "speculation/planner/points.h"

enum { FILE_BYTES_MAX = 1 << 20 };

void replay_times_line(struct replay_times *times, double step_us, double row_us, double rest_us)
{
    for (int rows = 0; rows <= DRAFT_MAX + 1; rows++) {
        times->step_us[rows] = step_us + (rows > 1 ? (rows - 1) * row_us : 0);
    }
    for (int rows = 1; rows <= DRAFT_MAX + 1; rows++) {
        times->rest_us[rows] = rest_us;
    }
}

/* The planner fits curves to the tables. */
static int fit(struct replay_times *times, const struct planner_tables *tables, const char *path,
               struct error *err)
{
    int rc = 0;
    struct planner *planner = NULL;
    TRY(mem_array(&planner, 1, sizeof *planner, err));
    planner_tables_set(planner, tables);
    planner_curve_fit(&planner->step);
    planner_curve_fit(&planner->rest);
    for (int rows = 1; rows <= DRAFT_MAX + 1; rows++) {
        times->step_us[rows] = planner_curve_at(&planner->step, rows);
        times->rest_us[rows] = planner_curve_at(&planner->rest, rows);
    }
    if (!(times->step_us[1] > 0)) {
        rc = error_set(err, ERR_FORMAT,
                       "%s has no time of a step; give --step-us and --row-us instead", path);
    }
out:
    free(planner);
    return rc;
}

int replay_times_read(struct replay_times *times, const char *path, struct error *err)
{
    int rc = 0;
    char *text = NULL;
    size_t len;
    json_t *root = NULL;
    struct planner_tables tables = {0};
    TRY(file_read_text(&text, &len, path, FILE_BYTES_MAX, err));
    TRY(json_parse_text(&root, text, len, path, err));
    TRY(planner_points_read(root, "step", path, tables.step, err));
    TRY(planner_points_read(root, "rest", path, tables.rest, err));
    TRY(fit(times, &tables, path, err));
out:
    json_decref(root);
    free(text);
    return rc;
}
