/* ctest: labels=quick libs=jinja timeout=60 */
/* Values and operators of templates. What they must print is what jinja2 3.1.2 prints for them. */
#include "tests/support/jinja_cases.h"

START_TEST(literals_print_as_python_writes_them)
{
    static const struct jinja_case cases[] = {
        {"{{ 1, -2, 1.5, 2.0, true, False, none, \"a\", 'it\"s' }}",
         "(1, -2, 1.5, 2.0, True, False, None, 'a', 'it\"s')"},
        {"{{ [1, \"a\", none, true, 1.5, {\"k\": [1]}, (1,), (1, 2), ()] }}",
         "[1, 'a', None, True, 1.5, {'k': [1]}, (1,), (1, 2), ()]"},
        {"{{ {\"a\": 1, 2: \"b\", none: true, 1.5: []} }}",
         "{'a': 1, 2: 'b', None: True, 1.5: []}"},
        {"{{ \"a\" \"b\" 'c\\n\\x41\\u00e9\\t\\\\\\'\"' }}", "abc\nAé\t\\'\""},
        {"{{ [e, u, \"it's\", \"\\x00\\x1f\\x7f\\u200b\\ue000\\U000e0001\"] }}",
         "['', 'äöü ß 你好 😀 <&>\"\\'', \"it's\", '\\x00\\x1f\\x7f\\u200b\\ue000\\U000e0001']"},
        {"{{ 1e16, 1e15, 123456789012345678, 0.1 + 0.2, 1e-5, 0.0001, 1.0, -0.0, 1e22, 1e300 * "
         "1e10 }}",
         "(1e+16, 1000000000000000.0, 123456789012345678, 0.30000000000000004, 1e-05, 0.0001, 1.0, "
         "-0.0, 1e+22, inf)"},
        {"{{ 1_000 + 0x10 + 0o17 + 0b101, 1_0.5_0, 1e+3, 1E3 }}", "(1036, 10.5, 1000.0, 1000.0)"},
        {"{{ [missing], \"\\u4f60\"|length, \"\\U0001f600\"|length }}", "([Undefined], 1, 1)"},
        {"{{ missing }}{{ none }}{{ true }}{{ 1.50 }}", "NoneTrue1.5"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(arithmetic_is_that_of_python)
{
    static const struct jinja_case cases[] = {
        {"{{ 1 + 2 * 3 - 4 // 3 ** 2 % 5 / 2 }}", "7.0"},
        {"{{ -7 // 2, -7 % 3, 7 % -3, 7.5 // 2, -7.5 % 2, 7 // -2 }}", "(-4, 2, -2, 3.0, 0.5, -4)"},
        {"{{ 2 ** 3 ** 2, 2 ** -1, -2 ** 2, 2 ** 62, (-1) ** 1000000001 }}",
         "(64, 0.5, 4, 4611686018427387904, -1)"},
        {"{{ 1 / 3, 4 / 2, 9007199254740993 + 0.0, 10 / 4 }}",
         "(0.3333333333333333, 2.0, 9007199254740992.0, 2.5)"},
        {"{{ true + true, true * 3, -true, +t, -a, +b, -f }}", "(2, 3, -1, 1, -5, -3, -2.5)"},
        {"{{ \"ab\" * 3, [0] * 2, 2 * \"x\", l * 0, \"x\" * -1 }}",
         "('ababab', [0, 0], 'xx', [], '')"},
        {"{{ l + [4], (1,) + (2,), \"a\" + \"b\" }}", "([3, 1, 2, 4], (1, 2), 'ab')"},
        {"{{ a ~ b ~ f ~ n ~ t ~ s ~ missing ~ [1] }}", "5-32.5NoneTrueHello World[1]"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(comparisons_are_those_of_python)
{
    static const struct jinja_case cases[] = {
        {"{{ a == 5.0, t == 1, \"1\" == 1, [1] == [1.0], (1,) == [1], {\"a\": 1} == {\"a\": 1}, "
         "{\"a\": 1} == {\"a\": 2} }}",
         "(True, True, False, True, False, True, False)"},
        {"{{ 1 < 2 < 3, 1 < 3 < 2, \"a\" < \"b\", [1, 2] < [1, 3], \"A\" < \"a\", \"abc\" <= "
         "\"abd\", [1] < [1, 0] }}",
         "(True, False, True, True, True, True, True)"},
        {"{{ 1 == true, 0 == false, none == none, missing == missing2, none == false }}",
         "(True, True, True, True, False)"},
        {"{{ 9007199254740993 == 9007199254740992.0, 9007199254740993 > 9007199254740992.0, 2 != "
         "2.5 }}",
         "(False, True, True)"},
        {"{{ \"nan\"|float == \"nan\"|float, \"nan\"|float < 1, \"inf\"|float > 9007199254740993 "
         "}}",
         "(False, False, True)"},
        {"{{ a in l, 3 in l, \"ell\" in s, \"x\" in d, 5 not in l, \"\" in \"\", 1 in missing, "
         "none in [none] }}",
         "(False, True, True, True, True, True, False, True)"},
        {"{{ not a, not e, a and s, e or \"default\", n or e or 0, a and e and s }}",
         "(False, True, 'Hello World', 'default', 0, '')"},
        {"{{ not a == 5, a == 5 and b == 5 or t, \"a\" in [\"a\"] and \"b\" not in \"abc\" }}",
         "(False, True, False)"},
        {"{{ d == {\"items\": 9, \"x\": 1, \"y\": {\"z\": [1, 2, {\"k\": \"v\"}]}} }}", "True"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(slices_and_indices_are_those_of_python)
{
    static const struct jinja_case cases[] = {
        {"{{ s[0], s[-1], s[1:4], s[::-1], s[::2], s[-5:], s[10:2:-3], s[100:], s[:-100] }}",
         "('H', 'd', 'ell', 'dlroW olleH', 'HloWrd', 'World', 'doo', '', '')"},
        {"{{ l[1:], l[::-1], l[-1], l[5:], l[:2], l[-2:], (1, 2, 3)[1:], l[:][0], l[none:2] }}",
         "([1, 2], [2, 1, 3], 2, [], [3, 1], [1, 2], (2, 3), 3, [3, 1])"},
        {"{{ u[0], u[-1], u[8:10], u[::-1], u|length, \"😀é\"[1] }}",
         "('ä', \"'\", ' 😀', '\\'\">&< 😀 好你 ß üöä', 16, 'é')"},
        {"{{ l[true], s[false], l[9] is defined, s[99] is defined, l[\"x\"] is defined }}",
         "(1, 'H', False, False, False)"},
        {"{{ messages[1:]|length, messages[-1][\"content\"], messages[0].role, nested[0][1], l.0 "
         "}}",
         "(1, 'yo\\n', 'user', 2, 3)"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(attributes_are_methods_first_and_items_first_in_brackets)
{
    static const struct jinja_case cases[] = {
        {"{{ d.x, d[\"x\"], d.y.z[2].k, d[\"y\"][\"z\"][0], d.missing, d[\"missing\"] }}",
         "(1, 1, 'v', 1, Undefined, Undefined)"},
        {"{{ d[\"items\"], {\"get\": 7}[\"get\"], {\"a\": 1}.a, {\"a\": 1}[\"a\"] }}",
         "(9, 7, 1, 1)"},
        {"{{ d.items()|list, d.keys()|list, d.values()|list, d.get(\"x\"), d.get(\"q\"), "
         "d.get(\"q\", 4) }}",
         "([('x', 1), ('y', {'z': [1, 2, {'k': 'v'}]}), ('items', 9)], ['x', 'y', 'items'], [1, "
         "{'z': [1, 2, {'k': 'v'}]}, 9], 1, None, 4)"},
        {"{{ a.b is defined, s.foo is defined, l.foo is defined, n.x is defined, d.y.q is defined "
         "}}",
         "(False, False, False, False, False)"},
        {"{{ {1: \"one\", 2.0: \"two\", none: \"nothing\", true: \"yes\"}[1], {1: 2}[1.0], {1: "
         "2}[true] }}",
         "('yes', 2, 2)"},
        {"{{ dict(a=1, b=2), dict({\"x\": 1}, y=2), dict(d, q=1).q, dict() }}",
         "({'a': 1, 'b': 2}, {'x': 1, 'y': 2}, 1, {})"},
        {"{{ d|attr(\"x\") is defined, s|attr(\"upper\") is defined, d[[1]] is defined, (1, 2) in "
         "d, missing in d, d.get((1, 2)), d[(1,)] is defined }}",
         "(False, True, False, False, False, None, False)"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(tests_tell_kinds_apart)
{
    static const struct jinja_case cases[] = {
        {"{{ a is number, f is number, t is number, s is number, a is integer, f is integer, f is "
         "float, t is boolean }}",
         "(True, True, True, False, True, False, True, True)"},
        {"{{ t is true, t is false, n is none, s is string, d is mapping, l is sequence, s is "
         "sequence, d is sequence }}",
         "(True, False, True, True, True, True, True, True)"},
        {"{{ l is iterable, a is iterable, missing is iterable, missing is sequence, n is not "
         "none, a is not string }}",
         "(True, False, True, True, False, True)"},
        {"{{ missing is defined, missing is undefined, a is defined, a is undefined, d.q is "
         "defined }}",
         "(False, True, True, False, False)"},
        {"{{ a is odd, a is even, a is divisibleby 5, a is divisibleby(3), 0 is even, b is odd }}",
         "(True, False, True, False, True, True)"},
        {"{{ s is lower, \"abc\" is lower, \"ABC\" is upper, \"a1\" is lower, \"\" is lower, \"ǅ\" "
         "is upper }}",
         "(False, True, True, True, False, False)"},
        {"{{ a is eq 5, a is ne 5, a is gt 3, a is lt(3), a is ge 5, a is le 4, a is equalto 5 }}",
         "(True, False, True, False, True, False, True)"},
        {"{{ a is in [1, 5], \"x\" is in \"xyz\", 1 is in [2], a is greaterthan 4, a is lessthan 4 "
         "}}",
         "(True, True, False, True, False)"},
        {"{{ a is sameas 5, n is sameas none, t is sameas true, l is sameas l, l is sameas [3, 1, "
         "2] }}",
         "(True, True, True, True, False)"},
        {"{{ \"upper\" is filter, \"nope\" is filter, \"odd\" is test, d is callable, d.get is "
         "callable, \"<\"|e is escaped }}",
         "(True, False, True, False, True, True)"},
        {"{{ a is odd and t is true or n is none, not a is none, a is not odd }}",
         "(True, True, False)"},
    };
    CHECK_CASES(cases);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jinja_values");
    TCase *tcase = tcase_create("jinja_values");
    tcase_add_test(tcase, literals_print_as_python_writes_them);
    tcase_add_test(tcase, arithmetic_is_that_of_python);
    tcase_add_test(tcase, comparisons_are_those_of_python);
    tcase_add_test(tcase, slices_and_indices_are_those_of_python);
    tcase_add_test(tcase, attributes_are_methods_first_and_items_first_in_brackets);
    tcase_add_test(tcase, tests_tell_kinds_apart);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
