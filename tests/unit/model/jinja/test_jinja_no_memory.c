/* ctest: labels=quick libs=jinja fail_alloc=yes timeout=60 */
/* Reading and rendering a template while memory is short: each allocation fails once. */
#include "tests/support/fail_alloc.h"
#include "tests/support/jinja_cases.h"

static const char template[] =
    "{% macro m(x, y=1) %}{{ x|upper }}{{ caller() }}{% endmacro %}\n"
    "{% set ns = namespace(n=0) %}{% set block %}{{ s }}{% endset %}\n"
    "{% for p in people if p.age is defined %}\n"
    "{% call m(p.name) %}{{ p|tojson(indent=2) }}{% endcall %}\n"
    "{% set ns.n = ns.n + p.age %}{{ loop.nextitem }}{{ p }}\n"
    "{% endfor %}{{ strftime_now('%d %b %Y') }}{{ u.split()|join('-') }}{{ ('x' * 50000)|length }}";

struct source {
    json_t *values;
    struct buffer text; /* of the first time; the others must print the same */
};

static int use(struct source *source, const struct jinja *jinja, struct error *err)
{
    struct buffer text = {0};
    int rc = jinja_render(jinja, source->values, JINJA_NOW_S, &jinja_ample, &text, err);
    if (rc || !source->text.data) {
        if (!rc) source->text = text;
        if (rc) buffer_free(&text);
        return rc;
    }
    bool is_same =
        text.len == source->text.len && memcmp(text.data, source->text.data, text.len) == 0;
    buffer_free(&text);
    return is_same ? 0 : error_set(err, ERR_INTERNAL, "another text than before");
}

static int trial(void *arg, struct error *err)
{
    struct jinja *jinja;
    int rc = jinja_parse(&jinja, template, sizeof template - 1, "the template", err);
    if (!rc) rc = use(arg, jinja, err);
    jinja_close(jinja);
    return rc;
}

START_TEST(each_allocation_may_fail)
{
    struct error err;
    struct source source = {.values = json_loads(jinja_values, 0, NULL)};
    CHECK_OK(trial(&source, &err));
    ck_assert_uint_gt(source.text.len, 100);
    fail_alloc_each("a template", trial, &source, FAIL_ALL, 1);
    buffer_free(&source.text);
    json_decref(source.values);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jinja_no_memory");
    TCase *tcase = tcase_create("jinja_no_memory");
    tcase_add_test(tcase, each_allocation_may_fail);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
