/* ctest: labels=quick libs=jinja timeout=60 */
/* Statements of templates. What they must print is what jinja2 3.1.2 prints for them, with the
 * settings of transformers. */
#include "tests/support/jinja_cases.h"

START_TEST(loops_go_over_lists_dicts_texts_and_nothing)
{
    static const struct jinja_case cases[] = {
        {"{% for x in l %}{{ x }},{% endfor %}", "3,1,2,"},
        {"{% for k in d %}{{ k }},{% endfor %}", "x,y,items,"},
        {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
         "x=1;y={'z': [1, 2, {'k': 'v'}]};items=9;"},
        {"{% for c in \"héy\" %}[{{ c }}]{% endfor %}", "[h][é][y]"},
        {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
        {"{% for x in [] %}a{% else %}empty{% endfor %}", "empty"},
        {"{% for x in missing %}a{% else %}empty{% endfor %}", "empty"},
        {"{% for i in range(3) %}{% for j in range(i) %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
         "10 20 21 "},
        {"{{ range(2, 8, 3)|list }}{{ range(5, 0, -2)|list }}{{ range(0)|list }}",
         "[2, 5][5, 3, 1][]"},
        {"{% for x in l %}{{ x }}{% endfor %}[{{ x }}]", "312[]"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(a_loop_knows_where_it_is)
{
    static const struct jinja_case cases[] = {
        {"{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }} "
         "{% endfor %}",
         "1032 2121 3210 "},
        {"{% for x in l %}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
         "TrueFalse3 FalseFalse3 FalseTrue3 "},
        {"{% for x in l %}{{ loop.depth }}{{ loop.depth0 }}{{ loop|length }} {% endfor %}",
         "103 103 103 "},
        {"{% for x in [1, 2, 3] %}<{{ loop.previtem }}|{{ loop.nextitem }}>{% endfor %}",
         "<|2><1|3><2|>"},
        {"{% for x in [1, 2, 3] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% "
         "endfor %}",
         "FalseTrue TrueTrue TrueFalse "},
        {"{% for x in [1, 2, 3] %}{{ loop.cycle(\"a\", \"b\") }}{% endfor %}", "aba"},
        {"{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}", "True False True "},
        {"{% for x in nested %}{% set outer = loop %}{% for y in x %}{{ outer.index }}.{{ "
         "loop.index }} {% endfor %}{% endfor %}",
         "1.1 1.2 2.1 "},
        {"{{ loop is defined }}{% for x in l %}{{ loop is defined }}{% endfor %}",
         "FalseTrueTrueTrue"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(a_loops_condition_chooses_what_is_counted)
{
    static const struct jinja_case cases[] = {
        {"{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}",
         "1/2:3 2/2:2 "},
        {"{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}", "none"},
        {"{% for m in messages if m.role != 'user' %}{{ m.content }}{% endfor %}", "yo\n"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(break_and_continue_end_the_innermost_loop)
{
    static const struct jinja_case cases[] = {
        {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "32"},
        {"{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "3"},
        {"{% for x in \"ab\" %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ "
         "y }}{% endfor %}{% endfor %}",
         "a1b1"},
        {"{% for x in l %}{% break %}{% else %}left early{% endfor %}", "left early"},
        {"{% for x in l %}{% with y = x %}{% if y == 1 %}{% break %}{% endif %}{% endwith %}{{ x "
         "}}{% endfor %}",
         "3"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(conditions_take_the_first_that_holds)
{
    static const struct jinja_case cases[] = {
        {"{% if a > 10 %}A{% elif a > 4 %}B{% else %}C{% endif %}", "B"},
        {"{% if a > 10 %}A{% elif a > 9 %}B{% elif a == 5 %}C{% elif a %}D{% endif %}", "C"},
        {"{% if e or n or [] or {} or 0 or 0.0 or missing %}A{% else %}B{% endif %}", "B"},
        {"{% if missing is defined and missing.x %}a{% else %}b{% endif %}", "b"},
        {"{% if 1 %}{% set q = 1 %}{% endif %}{{ q }}", "1"},
        {"{{ \"yes\" if a > 3 else \"no\" }}{{ \"x\" if e }}{{ 1 if a > 9 else 2 if b else 3 }}",
         "yes2"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(set_stays_within_its_body_and_namespaces_do_not)
{
    static const struct jinja_case cases[] = {
        {"{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "1"},
        {"{% for x in l %}{% if loop.first %}{% set z = x %}{% endif %}[{{ z }}]{% endfor %}",
         "[3][][]"},
        {"{% set ns = namespace(n=0, s=\"\") %}{% for i in l %}{% set ns.n = ns.n + i %}{% set "
         "ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }} {{ ns.s }}",
         "6 312"},
        {"{% set ns = namespace() %}{% set ns.found = false %}{% for m in messages %}{% if m.role "
         "== 'assistant' %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}",
         "True"},
        {"{% set ns = namespace(d, q=3) %}{{ ns.x }}{{ ns.q }}{{ ns.none is defined }}", "13False"},
        {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set x, y = "
         "\"ab\" %}{{ x }}{{ y }}",
         "1234ab"},
        {"{% set x %}block {{ a }}{% endset %}[{{ x }}]", "[block 5]"},
        {"{% set y | upper | replace(\"A\", \"_\") %}abc{% endset %}{{ y }}", "_BC"},
        {"{% set loop = 5 %}{{ loop }}", "5"},
        {"{% with x = 1, y = x %}{{ x }}{{ y }}{% endwith %}[{{ x }}]", "1[]"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(macros_take_arguments_and_see_where_they_are_defined)
{
    static const struct jinja_case cases[] = {
        {"{% macro m(x, y=2, z=none) %}<{{ x }},{{ y }},{{ z }}>{% endmacro %}{{ m(1) }}{{ m(1, 3) "
         "}}{{ m(z=4, x=0) }}{{ m() }}",
         "<1,2,None><1,3,None><0,2,4><,2,None>"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}",
         "(1, 2){'k': 3}"},
        {"{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}[{{ m(1) }}]", "[11]"},
        {"{% macro m(a, l=l, w=a) %}{{ a }}{{ l }}{{ w }}{% endmacro %}[{{ m(1) }}][{{ m(w=2) }}]",
         "[11][2]"},
        {"{% macro m(a, b, c=3) %}{{ a }}{{ b }}{{ c }}{{ kwargs }}{% endmacro %}{{ m(*[1, 2]) "
         "}}{{ m(1, *[2], c=4) }}{{ m(*\"ab\", **{\"c\": 9}) }}{{ m(**{\"a\": 1, \"b\": 2, \"z\": "
         "0}) }}",
         "123{}124{}ab9{}123{'z': 0}"},
        {"{% macro outer() %}{% macro inner(x) %}i{{ x }}{% endmacro %}{{ inner(1) }}{{ inner(2) "
         "}}{% endmacro %}{{ outer() }}",
         "i1i2"},
        {"{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1)|int }}{% endif %}{% "
         "endmacro %}{{ fact(5) }}",
         "120"},
        {"{% set v = 5 %}{% macro m() %}{{ v }}{% endmacro %}{% set v = 6 %}{{ m() }}", "6"},
        {"{% macro m() %} x {% endmacro %}[{{ m()|trim }}][{{ m() ~ 1 }}][{{ m is callable }}]",
         "[x][ x 1][True]"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(a_call_block_hands_its_body_to_the_macro)
{
    static const struct jinja_case cases[] = {
        {"{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ a }}{% endcall %}",
         "[body 5]"},
        {"{% macro m(x) %}{{ caller(x) }}!{% endmacro %}{% call(v) m(7) %}got {{ v }}{% endcall %}",
         "got 7!"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(filter_blocks_and_generation_tags_are_bodies)
{
    static const struct jinja_case cases[] = {
        {"{% filter upper %}abc {{ s }}{% endfilter %}", "ABC HELLO WORLD"},
        {"{% filter trim|replace(\"b\", \"x\")|upper %} abc {% endfilter %}", "AXC"},
        {"{% generation %}gen {{ a }}{% endgeneration %}", "gen 5"},
        {"{% set x = 3 %}{% generation %}{% set x = 4 %}{{ x }}{% endgeneration %}{{ x }}", "43"},
        {"{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
         "hiyo\n"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(raw_text_and_comments_are_no_tags)
{
    static const struct jinja_case cases[] = {
        {"{% raw %}{{ not }} {% this %}{% endraw %}", "{{ not }} {% this %}"},
        {"a{# comment {{ x }} #}b", "ab"},
        {"a{# of two\nlines #}b", "ab"},
        {"{{ \"{{\" }}{{ \"%}\" }}{{ \"}}\" }}", "{{%}}}"},
        {"{%- raw -%}  {{ x }}  {%- endraw -%}", "{{ x }}"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(the_date_is_printed_as_python_does)
{
    static const struct jinja_case cases[] = {
        {"{{ strftime_now(\"%d %b %Y\") }}", "14 Nov 2023"},
        {"{{ strftime_now(\"%Y-%m-%d %H:%M:%S %j %A %B %%\") }}",
         "2023-11-14 22:13:20 318 Tuesday November %"},
        {"{{ strftime_now(\"%a %e %-d %-m %I %p %y %u %w %F %T %R %D\") }}",
         "Tue 14 14 11 10 PM 23 2 2 2023-11-14 22:13:20 22:13 11/14/23"},
        {"{{ strftime_now(\"%c|%x|%X|%h|%-H|%-j\") }}",
         "Tue Nov 14 22:13:20 2023|11/14/23|22:13:20|Nov|22|318"},
        {"[{{ strftime_now(\"\") }}]", "[]"},
    };
    CHECK_CASES(cases);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jinja_statements");
    TCase *tcase = tcase_create("jinja_statements");
    tcase_add_test(tcase, loops_go_over_lists_dicts_texts_and_nothing);
    tcase_add_test(tcase, a_loop_knows_where_it_is);
    tcase_add_test(tcase, a_loops_condition_chooses_what_is_counted);
    tcase_add_test(tcase, break_and_continue_end_the_innermost_loop);
    tcase_add_test(tcase, conditions_take_the_first_that_holds);
    tcase_add_test(tcase, set_stays_within_its_body_and_namespaces_do_not);
    tcase_add_test(tcase, macros_take_arguments_and_see_where_they_are_defined);
    tcase_add_test(tcase, a_call_block_hands_its_body_to_the_macro);
    tcase_add_test(tcase, filter_blocks_and_generation_tags_are_bodies);
    tcase_add_test(tcase, raw_text_and_comments_are_no_tags);
    tcase_add_test(tcase, the_date_is_printed_as_python_does);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
