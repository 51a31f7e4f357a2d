/* ctest: labels=quick libs=jinja timeout=120 */
/* No template and no value takes more than its limits: steps, depth, memory, text. */
#include "base/clock.h"
#include "tests/support/jinja_cases.h"

enum { PATIENCE_US = 20000000 }; /* of what takes milliseconds */

static void exhaust_with(const char *template, const struct jinja_limits *limits, const char *part)
{
    struct error err;
    struct buffer text;
    int64_t began_us = clock_now_us();
    CHECK_ERR(jinja_run(template, limits, &text, &err), ERR_EXHAUSTED, part);
    int64_t took_us = clock_now_us() - began_us;
    ck_assert_msg(took_us < PATIENCE_US, "%s took %lld us", template, (long long)took_us);
    ck_assert_int_eq((int)text.len, 0);
    buffer_free(&text);
}

static void exhaust(const char *template, const char *part)
{
    exhaust_with(template, &jinja_ample, part);
}

/* Two lists of 2^24 items that share all of their parts; v is x or y. */
#define DOUBLED(v)                                                      \
    "{% set ns_" v " = namespace(" v "=[1]) %}{% for i in range(24) %}" \
    "{% set ns_" v "." v " = [ns_" v "." v ", ns_" v "." v "] %}{% endfor %}"

START_TEST(loops_end_after_so_many_steps)
{
    exhaust("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
            "the template takes more than 100000 steps");
    exhaust("{% for i in range(20000) %}{% if i == 1 %}{% endif %}{% endfor %}", "steps");
}
END_TEST

START_TEST(work_within_a_step_is_counted)
{
    static const char *const templates[] = {
        DOUBLED("x") DOUBLED("y") "{{ ns_x.x == ns_y.y }}",
        DOUBLED("x") DOUBLED("y") "{{ ns_x.x < ns_y.y }}",
        DOUBLED("x") DOUBLED("y") "{{ ns_x.x in [ns_y.y] }}",
        DOUBLED("x") DOUBLED("y") "{{ [ns_x.x, ns_y.y]|sort }}",
        DOUBLED("x") DOUBLED("y") "{{ [ns_x.x].index(ns_y.y) }}",
        DOUBLED("x") "{{ ns_x.x|tojson }}",
        "{% set x = 'ab' * 100000 %}{% for i in range(1000) %}{{ x == 'ab' * 100000 }}{% endfor %}",
        "{% set x = 'a' * 200000 %}{% for i in range(99) %}{% if x.find('b') %}{% endif %}{% "
        "endfor %}",
        "{{ ('a' * 300000).find('a' * 150000 ~ 'b') }}",
        "{{ ('a' * 300000).split('a' * 150000 ~ 'b')|length }}",
        "{{ ('a' * 300000).replace('a' * 150000 ~ 'b', '')|length }}",
        "{{ ('a' * 150000 ~ 'b') in 'a' * 300000 }}",
        "{{ ('a' * 300000).strip('b' * 1000 ~ 'a') }}",
        "{% set x = 'a' * 200000 %}{% for i in range(99) %}{% if x[-1] %}{% endif %}{% endfor %}",
        "{% set x = 'a' * 200000 %}{% for i in range(99) %}{% if x.isalpha() %}{% endif %}{% "
        "endfor %}",
        "{% set x = range(90000)|list %}{% for i in x %}{% if i in x %}{% endif %}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        const struct jinja_limits limits = {
            .steps = 200000, .depth = 100, .memory_bytes = 16 << 20};
        exhaust_with(templates[i], &limits, "steps");
    }
}
END_TEST

/* Keys are found by looking at all of them; so many lookups must count. */
START_TEST(lookups_in_large_dicts_are_counted)
{
    enum { N_KEYS = 20000 };
    const struct jinja_limits limits = {.steps = 1000000, .depth = 100, .memory_bytes = 64 << 20};
    static const char template[] = "{% for k in big %}{{ big[k] }}{% endfor %}";
    struct error err;
    struct buffer text = {0};
    struct jinja *jinja;
    json_t *values = json_object(), *big = json_object();
    json_object_set_new(values, "big", big);
    for (int i = 0; i < N_KEYS; i++) {
        char key[32];
        snprintf(key, sizeof key, "key_%d", i);
        json_object_set_new(big, key, json_integer(i));
    }
    CHECK_OK(jinja_parse(&jinja, template, strlen(template), "the template", &err));
    CHECK_ERR(jinja_render(jinja, values, 0, &limits, &text, &err), ERR_EXHAUSTED, "steps");
    json_decref(values);
    jinja_close(jinja);
    buffer_free(&text);
}
END_TEST

START_TEST(macros_and_values_go_only_so_deep)
{
    exhaust("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
            "the template has more than 100 levels");
    exhaust("{% set ns = namespace(x=1) %}{% for i in range(200) %}{% set ns.x = [ns.x] %}"
            "{% endfor %}",
            "a value has more than 100 levels");
    exhaust("{% set ns = namespace(x=1) %}{% for i in range(200) %}{% set ns.x = {'k': ns.x} %}"
            "{% endfor %}",
            "a value has more than 100 levels");
}
END_TEST

START_TEST(values_that_are_given_go_only_so_deep)
{
    struct error err;
    struct buffer text = {0};
    struct jinja *jinja;
    json_t *value = json_integer(1), *values = json_object();
    for (int i = 0; i < 99; i++) {
        json_t *list = json_array();
        json_array_append_new(list, value);
        value = list;
    }
    json_object_set_new(values, "x", value);
    CHECK_OK(jinja_parse(&jinja, "{{ x }}", 7, "the template", &err));
    const struct jinja_limits shallow = {.steps = 100000, .depth = 50, .memory_bytes = 1 << 20};
    CHECK_ERR(jinja_render(jinja, values, 0, &shallow, &text, &err), ERR_EXHAUSTED, "50 levels");
    CHECK_OK(jinja_render(jinja, values, 0, &jinja_ample, &text, &err));
    ck_assert_int_eq((int)text.len, 99 + 1 + 99);
    json_decref(values);
    jinja_close(jinja);
    buffer_free(&text);
}
END_TEST

START_TEST(values_and_text_take_only_so_much_memory)
{
    exhaust("{{ ('x' * 600000)|length }}{{ ('x' * 600000)|length }}",
            "the template needs more than 1048576 bytes of values");
    exhaust("{{ 'x' * 2000000 }}", "repeated too often");
    exhaust("{{ 'x' * 9223372036854775807 }}", "repeated too often");
    exhaust("{% set x = 'x' * 400000 %}{{ x }}{{ x }}{{ x }}",
            "the template writes more than 1048576 bytes");
    exhaust("{{ range(200000) }}", "range has more than 100000 numbers");
    exhaust("{% set x = ['x' * 300000] * 9 %}{{ x }}", "the template writes more than");
    exhaust("{{ (['x' * 300000] * 9)|tojson }}", "the template writes more than");
    exhaust("{{ (['x' * 300000] * 9)|join }}", "bytes of values");
}
END_TEST

/* A text of two parts that are repeated: begin open... middle close... end. */
struct pattern {
    const char *begin, *open, *middle, *close, *end;
    int n;
};

static char *repeated(const struct pattern *p)
{
    size_t len = strlen(p->begin) + strlen(p->middle) + strlen(p->end);
    char *text = malloc(len + (size_t)p->n * (strlen(p->open) + strlen(p->close)) + 1);
    ck_assert(text != NULL);
    char *at = stpcpy(text, p->begin);
    for (int i = 0; i < p->n; i++)
        at = stpcpy(at, p->open);
    at = stpcpy(at, p->middle);
    for (int i = 0; i < p->n; i++)
        at = stpcpy(at, p->close);
    strcpy(at, p->end);
    return text;
}

START_TEST(templates_nest_only_so_deep)
{
    static const struct {
        struct pattern pattern;
        const char *part;
    } cases[] = {
        {{"{{ ", "(", "1", ")", " }}", 200}, "more than 200 levels"},
        {{"{{ ", "[", "1", "]", " }}", 200}, "more than 200 levels"},
        {{"{{ ", "{1: ", "1", "}", " }}", 200}, "more than 200 levels"},
        {{"{{ ", "f(", "1", ")", " }}", 200}, "more than 200 levels"},
        {{"{{ a", "[", "1", "]", " }}", 200}, "more than 200 levels"},
        {{"{% set ", "(", "a", ")", " = 1 %}", 250}, "more than 200 levels"},
        {{"{{ ", "(", "1", ")", " }}", 300}, "too many open brackets"},
        {{"{{ ", "- ", "1", "", " }}", 1000}, "more than 200 levels"},
        {{"{{ ", "not ", "1", "", " }}", 1000}, "more than 200 levels"},
        {{"{{ ", "1 if 1 else ", "1", "", " }}", 1000}, "more than 200 levels"},
        {{"", "{% if 1 %}", "", "{% endif %}", "", 1000}, "more than 200 levels"},
        {{"", "{% for a in [1] %}", "", "{% endfor %}", "", 1000}, "more than 200 levels"},
        {{"", "{% macro m() %}", "", "{% endmacro %}", "", 1000}, "more than 200 levels"},
        {{"{{ 1", " < 1", "", "", " }}", 100}, "fewer comparisons in a row"},
        {{"{{ [1", ", 1", "", "", "] }}", 5000}, "more than 4096 items"},
        {{"{{ f(1", ", 1", "", "", ") }}", 5000}, "more than 4096 items"},
        {{"{{ f(a=1", ", a=1", "", "", ") }}", 5000}, "more than 4096 items"},
        {{"{% macro m(a", ", a", "", "", ") %}", 50}, "fewer parameters"},
        {{"{% set a", ", a", "", "", " = 1 %}", 50}, "fewer variables"},
        {{"{% with a = 1", ", a = 1", "", "", " %}", 50}, "fewer variables"},
        {{"", "x", "x", "", "", 1 << 20}, "more than 1048576 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err;
        struct jinja *jinja;
        char *text = repeated(&cases[i].pattern);
        CHECK_ERR(jinja_parse(&jinja, text, strlen(text), "the template", &err), ERR_FORMAT,
                  cases[i].part);
        free(text);
    }
}
END_TEST

/* A template with so many names. */
START_TEST(templates_have_only_so_many_names)
{
    enum { N_NAMES = 4096 };
    struct error err;
    struct jinja *jinja;
    struct buffer source = {0};
    for (int i = 0; i <= N_NAMES; i++) {
        char tag[32];
        snprintf(tag, sizeof tag, "{{ name_%d }}", i);
        CHECK_OK(buffer_append(&source, tag, strlen(tag), &err));
    }
    CHECK_ERR(jinja_parse(&jinja, (const char *)source.data, source.len, "the template", &err),
              ERR_FORMAT, "more than 4096 names");
    buffer_free(&source);
}
END_TEST

/* Parts that follow each other may be long; where they are within each other for the renderer, the
 * limit of depth ends it. */
START_TEST(templates_may_be_long)
{
    const struct jinja_limits limits = {.steps = 1000000, .depth = 20, .memory_bytes = 1 << 20};
    static const struct {
        struct pattern pattern;
        int code;
        size_t len;
    } cases[] = {
        {{"{% if 0 %}a", "{% elif 0 %}b", "", "", "{% else %}c{% endif %}", 50000}, 0, 1},
        {{"", "{{ a }}{% set x = 1 %}", "", "", "", 20000}, 0, 20000},
        {{"{% filter upper", "|upper", " %}x", "", "{% endfilter %}", 50000}, ERR_EXHAUSTED, 0},
        {{"{{ 1", " + 1", " }}", "", "", 50000}, ERR_EXHAUSTED, 0},
        {{"{{ a", ".b", " }}", "", "", 50000}, ERR_EXHAUSTED, 0},
        {{"{{ a", "|list", " }}", "", "", 50000}, ERR_EXHAUSTED, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        struct buffer text;
        char *source = repeated(&cases[i].pattern);
        int rc = jinja_run(source, &limits, &text, &err);
        ck_assert_msg(rc == cases[i].code, "case %zu: %s", i, err.text);
        ck_assert_uint_eq(text.len, cases[i].len);
        buffer_free(&text);
        free(source);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jinja_limits");
    TCase *tcase = tcase_create("jinja_limits");
    tcase_add_test(tcase, loops_end_after_so_many_steps);
    tcase_add_test(tcase, work_within_a_step_is_counted);
    tcase_add_test(tcase, lookups_in_large_dicts_are_counted);
    tcase_add_test(tcase, macros_and_values_go_only_so_deep);
    tcase_add_test(tcase, values_that_are_given_go_only_so_deep);
    tcase_add_test(tcase, values_and_text_take_only_so_much_memory);
    tcase_add_test(tcase, templates_nest_only_so_deep);
    tcase_add_test(tcase, templates_have_only_so_many_names);
    tcase_add_test(tcase, templates_may_be_long);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
