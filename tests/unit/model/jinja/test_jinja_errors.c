/* ctest: labels=quick libs=jinja timeout=60 */
/* Errors of templates: what is not understood is refused when a template is read, with the
 * construct and its line; a fault of the values is refused when it is rendered, with the line. */
#include "tests/support/jinja_cases.h"

struct refusal {
    const char *template, *part;
};

static void refuse(const struct refusal *refusals, size_t n, int code, bool when_read)
{
    for (size_t i = 0; i < n; i++) {
        struct error err;
        struct buffer text;
        struct jinja *jinja;
        const char *template = refusals[i].template;
        int rc = jinja_parse(&jinja, template, strlen(template), "the template", &err);
        ck_assert_msg((rc != 0) == when_read, "%s: read with %d", template, rc);
        ck_assert_msg(!rc || jinja == NULL, "%s", template);
        jinja_close(jinja);
        CHECK_ERR(jinja_run(template, &jinja_ample, &text, &err), code, refusals[i].part);
        ck_assert_int_eq((int)text.len, 0);
        buffer_free(&text);
    }
}

#define REFUSE(refusals, code, when_read) \
    refuse((refusals), sizeof(refusals) / sizeof *(refusals), (code), (when_read))

START_TEST(unsupported_names_are_refused_with_their_line)
{
    static const struct refusal refusals[] = {
        {"a\n{% block x %}{% endblock %}",
         "the template: line 2: the tag 'block' is not supported"},
        {"{% include 'x' %}", "line 1: the tag 'include' is not supported"},
        {"{% extends 'x' %}", "line 1: the tag 'extends' is not supported"},
        {"{% import 'x' as y %}", "line 1: the tag 'import' is not supported"},
        {"{% do l.append(1) %}", "line 1: the tag 'do' is not supported"},
        {"\n\n{{ x|groupby('a') }}", "line 3: the filter 'groupby' is not supported"},
        {"{{ x|map('pprint') }}", "line 1: the filter 'pprint' is not supported"},
        {"{{ x is awesome }}", "line 1: the test 'awesome' is not supported"},
        {"{{ x|select('awesome') }}", "line 1: the test 'awesome' is not supported"},
        {"{{ x|selectattr('a', 'awesome') }}", "line 1: the test 'awesome' is not supported"},
        {"{{ s.encode('utf-8') }}", "line 1: the method 'encode' is not supported"},
        {"{% if 1 %}\n{{ cycler(1, 2) }}\n{% endif %}", "line 2: the function 'cycler' is not"},
        {"{{ open('/etc/passwd') }}", "line 1: the function 'open' is not supported"},
        {"{% for x in l recursive %}{{ loop(x) }}{% endfor %}", "a loop that is 'recursive'"},
        {"{{ '%s' % s }}", "after a text the operator '%' is not supported"},
        {"{{ l[1, 2] }}", "an index with ',' is not supported"},
        {"{{ '\\N{BULLET}' }}", "\\N{...}"},
        {"x\n{{ strftime_now('%d %f') }}", "line 2: strftime_now: '%f' is not supported"},
        {"{{ strftime_now('%-A') }}", "'%-A' is not supported"},
        {"{{ strftime_now('%éx') }}", "strftime_now: '%é' is not supported"},
        {"{{ strftime_now('%') }}", "'%' is not supported"},
    };
    REFUSE(refusals, ERR_UNSUPPORTED, true);
}
END_TEST

START_TEST(wrong_syntax_is_refused_with_its_line)
{
    static const struct refusal refusals[] = {
        {"{{ 1 + }}", "line 1: the tag ends where an expression is expected"},
        {"{% if %}x{% endif %}", "the tag ends where an expression is expected"},
        {"a\n{% for x in l %}", "line 2: the template ends where 'endfor' is expected"},
        {"{% endif %}", "'endif' where a tag that is open is expected"},
        {"{% if t %}{% endfor %}", "'endfor' where"},
        {"{{ x", "a tag that begins here has no end (}})"},
        {"x\n{% if t", "line 2: a tag that begins here has no end (%})"},
        {"{% if t %}{% else %}{% else %}{% endif %}", "'else' where"},
        {"{{ \"abc }}", "a string has no end"},
        {"{{ (1, 2 }}", "unexpected '}'"},
        {"{{ ) }}", "unexpected ')'"},
        {"{{ a b }}", "'b' where the end of the tag is expected"},
        {"{% set = 1 %}", "'=' where the name of a variable is expected"},
        {"{% set true = 1 %}", "'true' where the name of a variable is expected"},
        {"{{ 1 is }}", "the tag ends where the name of a test is expected"},
        {"{{ 1| }}", "the tag ends where the name of a filter is expected"},
        {"{{ x. }}", "the tag ends where the name of an attribute is expected"},
        {"{{ {1, 2} }}", "',' where ':' is expected"},
        {"{{ a ? b }}", "unexpected character '?'"},
        {"{{ “a” }}", "unexpected character '“'"},
        {"{% break %}", "a loop around break or continue is expected"},
        {"{% for x in l %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}",
         "a loop around"},
        {"{% raw %}x", "{% raw %} has no {% endraw %}"},
        {"a\nb{# x", "line 2: a comment has no end (#})"},
        {"{% macro m(a=1, b) %}{% endmacro %}", "a default, as the parameter before has one"},
        {"{{ f(a=1, 2) }}", "a named argument is expected"},
        {"{{ f(**d, *l) }}", "the end of the arguments is expected"},
        {"{% call 5 %}{% endcall %}", "a call is expected"},
        {"{{ 99999999999999999999 }}", "the number 99999999999999999999 is too large"},
        {"{{ 0x }}", "a number has no digits"},
        {"{{ '\\ud800' }}", "an escape that is no character"},
        {"{{ '\\x4' }}", "an escape that is no character"},
        {"{{ [1 }}", "unexpected '}'"},
        {"{% %}", "the tag ends where the name of a tag is expected"},
        {"\xff", "the template is not valid UTF-8"},
        {"{{ 'a\xc3' }}", "the template is not valid UTF-8"},
    };
    REFUSE(refusals, ERR_FORMAT, true);
}
END_TEST

START_TEST(values_that_do_not_fit_are_refused_with_the_line)
{
    static const struct refusal refusals[] = {
        {"x\n\n{{ missing.x }}", "the template, line 3: 'missing' is undefined"},
        {"{{ d.q.z }}", "a dict has no 'q'"},
        {"{{ missing + 1 }}", "'missing' is undefined"},
        {"{{ missing() }}{% set missing = 1 %}", "'missing' is undefined"},
        {"{{ missing|tojson }}", "'missing' is undefined"},
        {"{{ missing[1:] }}", "'missing' is undefined"},
        {"{{ 'a' + 1 }}", "'str' + 'int' has no meaning"},
        {"{{ 1 + 'a' }}", "'int' + 'str' has no meaning"},
        {"{{ [] < {} }}", "'list' < 'dict' has no meaning"},
        {"{{ 1 in 5 }}", "'int' in 'int' has no meaning"},
        {"{{ -s }}", "has no meaning"},
        {"{{ [1, 'a']|sort }}", "have no order"},
        {"{{ 1 / 0 }}", "division by zero"},
        {"{{ 1 // 0 }}", "division by zero"},
        {"{{ 1.5 % 0 }}", "division by zero"},
        {"{{ 9223372036854775807 + 1 }}", "does not fit into 64 bits"},
        {"{{ 3 ** 99 }}", "does not fit into 64 bits"},
        {"{{ -9223372036854775807 - 1 - 1 }}", "does not fit into 64 bits"},
        {"{{ 5|length }}", "a int has no length"},
        {"{{ a.x() }}{% set a = 1 %}", "the method 'x'"},
        {"{% set f = 1 %}{{ f() }}", "a int cannot be called"},
        {"{% for x in 5 %}{% endfor %}", "a int has no items to go over"},
        {"{% set x, y = [1] %}", "1 values for 2 variables"},
        {"{% set d.x = 1 %}", "an attribute of a dict cannot be set"},
        {"{{ l.append(1) }}", "a template must not change a list"},
        {"{{ d.update({}) }}", "a template must not change a dict"},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "'m' takes at most 1 arguments"},
        {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "'m' has no argument 'b'"},
        {"{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "the macro is given 'a' twice"},
        {"{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}", "does not use caller()"},
        {"{{ 'x'|replace('y') }}", "replace needs its argument 'new'"},
        {"{{ s|upper(1) }}", "upper takes at most 0 arguments, not 1"},
        {"{{ s|trim(characters='x') }}", "trim has no argument 'characters'"},
        {"{{ s|trim('x', chars='y') }}", "trim is given 'chars' twice"},
        {"{{ s.split('') }}", "the separator of a split is empty"},
        {"{{ s.index('zz') }}", "the text does not contain the part"},
        {"{{ l.index(9) }}", "the list does not have the item"},
        {"{{ ','.join([1]) }}", "join: item 0 is a int"},
        {"{{ s.replace(none, 'a') }}", "a text is needed, not a None"},
        {"{{ {[1]: 2} }}", "a list cannot be a key of a dict"},
        {"{{ ([1],) in d }}", "a tuple cannot be a key of a dict"},
        {"{{ {(1, 2): 3} }}", "a tuple cannot be a key of a dict"},
        {"{{ nested|unique|list }}", "unique: a list cannot be compared"},
        {"{{ [1] in d }}", "a list cannot be a key of a dict"},
        {"{{ range(1, 2, 0) }}", "range with step 0"},
        {"{{ l[::0] }}", "a slice with step 0"},
        {"{{ d[1:] }}", "a dict cannot be sliced"},
        {"{{ d.get }}", "a method cannot be printed"},
        {"{{ namespace(1) }}", "dict and namespace take a dict and named values"},
        {"{{ strftime_now(5) }}", "a text is needed, not a int"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        bool when_read = strstr(refusals[i].part, "the method") != NULL;
        refuse(&refusals[i], 1, when_read ? ERR_UNSUPPORTED : ERR_ARGUMENT, when_read);
    }
}
END_TEST

START_TEST(a_template_can_refuse_a_conversation)
{
    struct error err;
    struct buffer text;
    CHECK_ERR(
        jinja_run("a\n{{ raise_exception('Roles must alternate!') }}", &jinja_ample, &text, &err),
        ERR_ARGUMENT, "the template, line 2: Roles must alternate!");
    ck_assert_int_eq((int)text.len, 0);
    buffer_free(&text);
}
END_TEST

/* Whole characters: two bytes each, so that a cut at an odd place would tear one. */
START_TEST(a_long_refusal_is_cut_between_characters)
{
    struct error err;
    struct buffer text;
    CHECK_ERR(jinja_run("{{ raise_exception('x' ~ 'é' * 1000) }}", &jinja_ample, &text, &err),
              ERR_ARGUMENT, "the template, line 1: xé");
    json_t *whole = json_string(err.text);
    ck_assert_msg(whole != NULL, "the text is not UTF-8: %s", err.text);
    json_decref(whole);
    buffer_free(&text);
}
END_TEST

START_TEST(nothing_but_the_given_values_can_be_reached)
{
    static const char *const templates[] = {
        "{{ ''.__class__ }}",  "{{ l.__init__ }}",
        "{{ d.__class__ }}",   "{{ self }}",
        "{{ config }}",        "{{ request }}",
        "{{ lipsum }}",        "{{ d['__class__'] }}",
        "{{ s|attr('mro') }}", "{{ loop.__class__ is defined or '' }}{% set loop = d %}"};
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        struct error err;
        struct buffer text;
        int rc = jinja_run(templates[i], &jinja_ample, &text, &err);
        ck_assert_msg(rc == ERR_ARGUMENT || (rc == 0 && text.len == 0), "%s gives %.*s",
                      templates[i], (int)text.len, text.data ? (char *)text.data : "");
        buffer_free(&text);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jinja_errors");
    TCase *tcase = tcase_create("jinja_errors");
    tcase_add_test(tcase, unsupported_names_are_refused_with_their_line);
    tcase_add_test(tcase, wrong_syntax_is_refused_with_its_line);
    tcase_add_test(tcase, values_that_do_not_fit_are_refused_with_the_line);
    tcase_add_test(tcase, a_template_can_refuse_a_conversation);
    tcase_add_test(tcase, a_long_refusal_is_cut_between_characters);
    tcase_add_test(tcase, nothing_but_the_given_values_can_be_reached);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
