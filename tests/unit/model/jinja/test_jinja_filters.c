/* ctest: labels=quick libs=jinja timeout=60 */
/* Filters of templates. What they must print is what jinja2 3.1.2 prints for them, with the tojson
 * of transformers. */
#include "tests/support/jinja_cases.h"

START_TEST(filters_change_the_case_of_texts)
{
    static const struct jinja_case cases[] = {
        {"{{ s|upper, s|lower, s|title, s|capitalize, u|upper|lower, e|upper, a|upper }}",
         "('HELLO WORLD', 'hello world', 'Hello World', 'Hello world', 'äöü ss 你好 😀 <&>\"\\'', "
         "'', '5')"},
        {"{{ \"hello-world foo(bar) it's\"|title, \"ǆ ŉ\"|upper, \"ß\"|upper, \"ﬁn\"|upper, \"ÀB "
         "cD\"|capitalize, \"ß\"|title, \"ß\"|capitalize, \"ﬁn\"|title }}",
         "(\"Hello-World Foo(Bar) It's\", 'Ǆ ʼN', 'SS', 'FIN', 'Àb cd', 'SS', 'Ss', 'FIn')"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(filters_trim_replace_and_indent_texts)
{
    static const struct jinja_case cases[] = {
        {"{{ \"  x \\n\"|trim, \"xxaxx\"|trim(\"x\"), 42|trim, \"\\u3000a\\u00a0\"|trim, "
         "\"abc\"|trim(\"ca\"), e|trim }}",
         "('x', 'a', '42', 'a', 'b', '')"},
        {"{{ s|replace(\"o\", \"0\"), s|replace(\"o\", \"0\", 1), \"aaa\"|replace(\"\", \"-\"), "
         "\"aé\"|replace(\"\", \"-\", 2), 42|replace(4, 5) }}",
         "('Hell0 W0rld', 'Hell0 World', '-a-a-a-', '-a-é', '52')"},
        {"{{ ml|indent, ml|indent(2, true), ml|indent(2, blank=true), ml|indent(\"> \"), "
         "ml|indent(20), \"x\"|indent(first=true) }}",
         "('one\\n     two\\n\\n    three\\n', '  one\\n   two\\n\\n  three\\n', 'one\\n   two\\n  "
         "\\n  three\\n  ', 'one\\n>  two\\n\\n> three\\n', 'one\\n                     two\\n\\n  "
         "                  three\\n', '    x')"},
        {"{{ e|indent(first=true), \"\\n\\n\"|indent(2), \"a\\r\\nb\"|indent(1) }}",
         "('    ', '\\n\\n', 'a\\n b')"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(filters_give_defaults_and_lengths)
{
    static const struct jinja_case cases[] = {
        {"{{ missing|default(\"q\"), n|default(\"q\"), n|default(\"q\", true), e|default(\"z\", "
         "boolean=True), missing|d, 0|d(1) }}",
         "('q', None, 'q', 'z', '', 0)"},
        {"{{ l|length, s|count, d|length, missing|length, u|length, ()|length }}",
         "(3, 11, 3, 0, 16, 0)"},
        {"{{ [1, \"a\", none, 2.5]|string, \"abc\"|list, d|list, missing|list }}",
         "(\"[1, 'a', None, 2.5]\", ['a', 'b', 'c'], ['x', 'y', 'items'], [])"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(filters_make_numbers_of_texts)
{
    static const struct jinja_case cases[] = {
        {"{{ \"3\"|int, \"3.7\"|int, \"x\"|int, \"x\"|int(7), 3.9|int, -3.9|int, \" 12 \"|int, "
         "\"1_000\"|int, none|int, true|int }}",
         "(3, 3, 0, 7, 3, -3, 12, 1000, 0, 1)"},
        {"{{ \"ff\"|int(0, 16), \"0x1f\"|int(base=16), \"0b11\"|int(base=2), \"0o17\"|int(base=8), "
         "\"1__0\"|int, \"+5\"|int, \"- 5\"|int, \"1e3\"|int }}",
         "(255, 31, 3, 15, 0, 5, 0, 1000)"},
        {"{{ \"3\"|float, \"x\"|float, \"1e3\"|float, 3|float, \"inf\"|float, none|float, "
         "\"x\"|float(1.5), \" 2.5 \"|float, \"0x10\"|float, \"1_0.5\"|float }}",
         "(3.0, 0.0, 1000.0, 3.0, inf, 0.0, 1.5, 2.5, 0.0, 10.5)"},
        {"{{ a|abs, b|abs, -2.5|abs, true|abs }}", "(5, 3, 2.5, 1)"},
        {"{{ 2.5|round, 3.5|round, 2.675|round(2), 42|round, 1234.567|round(-2), 1234|round(-2), "
         "1250|round(-2), 0.5|round, -0.5|round }}",
         "(2.0, 4.0, 2.67, 42, 1200.0, 1200, 1200, 0.0, -0.0)"},
        {"{{ 2.1|round(0, \"ceil\"), 2.9|round(method=\"floor\"), 2.15|round(1, \"floor\"), "
         "1e300|round(2) }}",
         "(3.0, 2.0, 2.1, 1e+300)"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(filters_join_and_pick_items)
{
    static const struct jinja_case cases[] = {
        {"{{ l|join, l|join(\", \"), w|join(\"-\"), people|join(\", \", attribute=\"name\"), "
         "\"abc\"|join(\".\"), d|join, []|join(\"x\") }}",
         "('312', '3, 1, 2', 'b-A-c-a', 'Bob, alice, Carl', 'a.b.c', 'xyitems', '')"},
        {"{{ l|first, l|last, []|first, \"abc\"|first, \"abc\"|last, d|first, \"äb\"|first }}",
         "(3, 2, Undefined, 'a', 'c', 'x', 'ä')"},
        {"{{ l|reverse|list, \"abc\"|reverse, ()|reverse|list }}", "([2, 1, 3], 'cba', [])"},
        {"{{ l|sum, people[:2]|sum(attribute=\"age\"), [0.1, 0.2]|sum, l|sum(start=10), "
         "nested|sum(start=[]) }}",
         "(6, 55, 0.30000000000000004, 16, [1, 2, 3])"},
        {"{{ l|batch(2)|list, l|batch(2, \"x\")|list, [1, 2, 3, 4]|batch(2)|list, "
         "[]|batch(2)|list, l|batch(9)|list }}",
         "([[3, 1], [2]], [[3, 1], [2, 'x']], [[1, 2], [3, 4]], [], [[3, 1, 2]])"},
        {"{{ d|items|list, missing|items|list }}",
         "([('x', 1), ('y', {'z': [1, 2, {'k': 'v'}]}), ('items', 9)], [])"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(filters_map_and_select_items)
{
    static const struct jinja_case cases[] = {
        {"{{ l|map(\"string\")|list, w|map(\"upper\")|join, people|map(attribute=\"name\")|list, "
         "people|map(attribute=\"age\", default=0)|list }}",
         "(['3', '1', '2'], 'BACA', ['Bob', 'alice', 'Carl'], [30, 25, 0])"},
        {"{{ people|map(\"length\")|list, nested|map(\"first\")|list, "
         "people|map(attribute=\"name\")|map(\"lower\")|list }}",
         "([2, 2, 1], [1, 3], ['bob', 'alice', 'carl'])"},
        {"{{ people|map(attribute=\"name.0\")|list, nested|map(attribute=0)|list, "
         "nested|map(attribute=\"0\")|list }}",
         "(['B', 'a', 'C'], [1, 3], [1, 3])"},
        {"{{ people|selectattr(\"age\")|map(attribute=\"name\")|list, people|selectattr(\"age\", "
         "\"defined\")|list|length }}",
         "(['Bob', 'alice'], 2)"},
        {"{{ people|rejectattr(\"age\", \"defined\")|map(attribute=\"name\")|list, "
         "people|selectattr(\"name\", \"equalto\", \"Bob\")|list }}",
         "(['Carl'], [{'name': 'Bob', 'age': 30}])"},
        {"{{ people[:2]|selectattr(\"age\", \"gt\", 26)|map(attribute=\"name\")|join, "
         "messages|selectattr(\"role\", \"==\", \"user\")|list }}",
         "('Bob', [{'role': 'user', 'content': 'hi'}])"},
        {"{{ l|select(\"odd\")|list, l|reject(\"odd\")|list, l|select(\"gt\", 1)|list, [0, 1, "
         "\"\"]|select|list, l|select(\"in\", [1, 2])|list }}",
         "([3, 1], [2], [3, 2], [1], [1, 2])"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(filters_order_items)
{
    static const struct jinja_case cases[] = {
        {"{{ l|sort, l|sort(reverse=true), w|sort, w|sort(case_sensitive=true), "
         "w|sort(reverse=true), \"bca\"|sort }}",
         "([1, 2, 3], [3, 2, 1], ['A', 'a', 'b', 'c'], ['A', 'a', 'b', 'c'], ['c', 'b', 'A', 'a'], "
         "['a', 'b', 'c'])"},
        {"{{ people|sort(attribute=\"name\")|map(attribute=\"name\")|list, "
         "people[:2]|sort(attribute=\"age,name\")|map(attribute=\"name\")|list }}",
         "(['alice', 'Bob', 'Carl'], ['alice', 'Bob'])"},
        {"{{ [[1, \"b\"], [1, \"a\"]]|sort, [(2, \"x\"), (1, \"y\")]|sort, [1, 0.5, true]|sort, "
         "people|map(attribute=\"x\")|sort|length, [(1, \"b\"), (1, "
         "\"a\")]|sort(attribute=\"0,1\") }}",
         "([[1, 'a'], [1, 'b']], [(1, 'y'), (2, 'x')], [0.5, 1, True], 3, [(1, 'a'), (1, 'b')])"},
        {"{{ w|unique|list, [1, 1.0, true, 2]|unique|list, w|unique(case_sensitive=true)|list, "
         "people|unique(attribute=\"name\")|list|length }}",
         "(['b', 'A', 'c'], [1, 2], ['b', 'A', 'c', 'a'], 3)"},
        {"{{ l|min, l|max, w|min, w|max, []|max, people[:2]|max(attribute=\"age\"), "
         "people[:2]|min(attribute=\"age\") }}",
         "(1, 3, 'A', 'c', Undefined, {'name': 'Bob', 'age': 30}, {'name': 'alice', 'age': 25})"},
        {"{{ d|dictsort, {\"B\": 1, \"a\": 2}|dictsort, {\"B\": 1, \"a\": 2}|dictsort(true), "
         "{\"b\": 1, \"a\": 2}|dictsort(by=\"value\"), {\"b\": 1, \"a\": 2}|dictsort(reverse=true) "
         "}}",
         "([('items', 9), ('x', 1), ('y', {'z': [1, 2, {'k': 'v'}]})], [('a', 2), ('B', 1)], "
         "[('B', 1), ('a', 2)], [('b', 1), ('a', 2)], [('b', 1), ('a', 2)])"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(tojson_is_json_dumps_of_python)
{
    static const struct jinja_case cases[] = {
        {"{{ d|tojson }}", "{\"x\": 1, \"y\": {\"z\": [1, 2, {\"k\": \"v\"}]}, \"items\": 9}"},
        {"{{ u|tojson }}", "\"äöü ß 你好 😀 <&>\\\"'\""},
        {"{{ u|tojson(ensure_ascii=true) }}",
         "\"\\u00e4\\u00f6\\u00fc \\u00df \\u4f60\\u597d \\ud83d\\ude00 <&>\\\"'\""},
        {"{{ [n, t, f, big, 1.0, -0.0, 1e22, e, [], {}]|tojson }}",
         "[null, true, 2.5, 9007199254740993, 1.0, -0.0, 1e+22, \"\", [], {}]"},
        {"{{ {\"a\": [], \"b\": {}, \"c\": [1, [2]]}|tojson(indent=2) }}",
         "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    [\n      2\n    ]\n  ]\n}"},
        {"{{ d|tojson(indent=4) }}",
         "{\n    \"x\": 1,\n    \"y\": {\n        \"z\": [\n            1,\n            2,\n       "
         "     {\n                \"k\": \"v\"\n            }\n        ]\n    },\n    \"items\": "
         "9\n}"},
        {"{{ [1, {\"a\": 2}]|tojson(indent=\"\\t\") }}", "[\n\t1,\n\t{\n\t\t\"a\": 2\n\t}\n]"},
        {"{{ [1]|tojson(indent=0) }}", "[\n1\n]"},
        {"{{ {\"b\": 1, \"a\": {\"d\": 1, \"c\": 2}}|tojson(sort_keys=true) }}",
         "{\"a\": {\"c\": 2, \"d\": 1}, \"b\": 1}"},
        {"{{ d|tojson(separators=(\",\", \":\")) }}",
         "{\"x\":1,\"y\":{\"z\":[1,2,{\"k\":\"v\"}]},\"items\":9}"},
        {"{{ {1: 2, none: 3, false: 4, 1.5: 6}|tojson }}",
         "{\"1\": 2, \"null\": 3, \"false\": 4, \"1.5\": 6}"},
        {"{{ \"\\x7f\\x1f\\x00\\n\\r\\t\\b\\f\\\\/\\u2028\"|tojson }}",
         "\"\177\\u001f\\u0000\\n\\r\\t\\b\\f\\\\/\342\200\250\""},
        {"{{ [\"nan\"|float, \"inf\"|float, \"-inf\"|float]|tojson }}",
         "[NaN, Infinity, -Infinity]"},
        {"{{ \"<script>'&\"|tojson }}", "\"<script>'&\""},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(safe_texts_are_not_escaped_again)
{
    static const struct jinja_case cases[] = {
        {"{{ \"<b>&'\\\"\"|e, \"<b>\"|escape, \"<a>\"|e|e, (\"<a>\"|safe)|e }}",
         "(Markup('&lt;b&gt;&amp;&#39;&#34;'), Markup('&lt;b&gt;'), Markup('&lt;a&gt;'), "
         "Markup('<a>'))"},
        {"{{ (\"<a>\"|safe) + \"<b>\", \"<x>\" + (\"<a>\"|safe), (\"<a>\"|safe) ~ \"<b>\", "
         "[\"<a>\"|safe] }}",
         "(Markup('<a>&lt;b&gt;'), Markup('&lt;x&gt;<a>'), '<a><b>', [Markup('<a>')])"},
    };
    CHECK_CASES(cases);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jinja_filters");
    TCase *tcase = tcase_create("jinja_filters");
    tcase_add_test(tcase, filters_change_the_case_of_texts);
    tcase_add_test(tcase, filters_trim_replace_and_indent_texts);
    tcase_add_test(tcase, filters_give_defaults_and_lengths);
    tcase_add_test(tcase, filters_make_numbers_of_texts);
    tcase_add_test(tcase, filters_join_and_pick_items);
    tcase_add_test(tcase, filters_map_and_select_items);
    tcase_add_test(tcase, filters_order_items);
    tcase_add_test(tcase, tojson_is_json_dumps_of_python);
    tcase_add_test(tcase, safe_texts_are_not_escaped_again);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
