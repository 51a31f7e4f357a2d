/* The filters by the files that have them; filters.c has their table. */
#pragma once

#include "model/jinja/library.h"
#include "model/jinja/render.h"

/* ---- tojson.c: json.dumps ---- */
builtin_fn filter_tojson;

/* ---- filters_text.c ---- */
builtin_fn filter_trim, filter_upper, filter_lower, filter_title, filter_capitalize, filter_replace,
    filter_indent, filter_string, filter_safe, filter_escape;

/* ---- filters_number.c ---- */
builtin_fn filter_int, filter_float, filter_abs, filter_round;

/* ---- filters_items.c: what goes over items ---- */
builtin_fn filter_join, filter_first, filter_last, filter_list, filter_reverse, filter_map,
    filter_select, filter_reject, filter_selectattr, filter_rejectattr, filter_sum, filter_batch,
    filter_items;

/* ---- filters_order.c: what compares items ---- */
builtin_fn filter_sort, filter_unique, filter_min, filter_max, filter_dictsort;

/* item.a.0.b for the path "a.0.b", or item[3] for 3; `otherwise` (NULL = undefined) where that is
 * undefined. path NULL: the item itself. */
int filter_attribute(struct render *r, const struct value *item, const struct value *path,
                     const struct value *otherwise, struct value *out, struct error *err);
