/* Comparisons. The steps that one may take are counted before it is made. */
#include <math.h>

#include "model/jinja/pystring.h"
#include "model/jinja/render.h"

int compare_equal(struct render *r, const struct value *a, const struct value *b, bool *is_equal,
                  struct error *err)
{
    int rc = render_step(r, value_work(a, b), err);
    *is_equal = !rc && value_equal(a, b);
    return rc;
}

int compare_order(struct render *r, const struct value *a, const struct value *b, int *order,
                  struct error *err)
{
    int rc = render_step(r, value_work(a, b), err);
    return rc ? rc : value_compare(a, b, order, err);
}

static int list_contains(struct render *r, const struct list *list, const struct value *one,
                         bool *is_in, struct error *err)
{
    int rc = render_step(r, list->n / 4, err);
    for (size_t i = 0; i < list->n && !*is_in && !rc; i++)
        rc = compare_equal(r, &list->items[i], one, is_in, err);
    return rc;
}

static int text_contains(struct render *r, struct string text, struct string part, bool *is_in,
                         struct error *err)
{
    int rc = render_step(r, string_find_work(text, part), err);
    *is_in = !rc && string_find(text, part, 0) <= text.len;
    return rc;
}

static int contains(struct render *r, const struct value *all, const struct value *one, bool *is_in,
                    struct error *err)
{
    const struct value *found = NULL;
    *is_in = false;
    if (all->kind == VALUE_UNDEFINED) return 0;
    if (all->kind == VALUE_STRING && one->kind == VALUE_STRING) {
        return text_contains(r, all->text, one->text, is_in, err);
    }
    if (value_is_sequence(all)) return list_contains(r, all->list, one, is_in, err);
    if (all->kind != VALUE_DICT) return operator_refuse(OPERATION_IN, one, all, err);
    int rc = member_find(r, all->dict, one, &found, err);
    *is_in = found != NULL;
    return rc;
}

static bool is_nan(const struct value *v)
{
    return v->kind == VALUE_FLOAT && isnan(v->number);
}

static bool order_holds(enum operation operation, int order)
{
    switch (operation) {
    case OPERATION_LESS:
        return order < 0;
    case OPERATION_LESS_EQUAL:
        return order <= 0;
    case OPERATION_GREATER:
        return order > 0;
    default:
        return order >= 0;
    }
}

static int ordered(struct render *r, enum operation operation, const struct value *a,
                   const struct value *b, struct value *out, struct error *err)
{
    int order, rc = compare_order(r, a, b, &order, err);
    if (rc == ERR_ARGUMENT) return operator_refuse(operation, a, b, err);
    if (rc) return rc;
    *out = value_bool(order_holds(operation, order) && !is_nan(a) && !is_nan(b));
    return 0;
}

int compare_run(struct render *r, enum operation operation, const struct value *a,
                const struct value *b, struct value *out, struct error *err)
{
    bool holds;
    int rc;
    switch (operation) {
    case OPERATION_EQUAL:
    case OPERATION_UNEQUAL:
        rc = compare_equal(r, a, b, &holds, err);
        break;
    case OPERATION_IN:
    case OPERATION_NOT_IN:
        rc = contains(r, b, a, &holds, err);
        break;
    default:
        return ordered(r, operation, a, b, out, err);
    }
    bool is_negated = operation == OPERATION_UNEQUAL || operation == OPERATION_NOT_IN;
    *out = value_bool(holds != is_negated);
    return rc;
}
