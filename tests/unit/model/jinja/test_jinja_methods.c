/* ctest: labels=quick libs=jinja timeout=60 */
/* Methods of texts, lists and dicts in templates. What they must print is what jinja2 3.1.2 prints
 * for them. */
#include "tests/support/jinja_cases.h"

START_TEST(texts_have_the_methods_of_str)
{
    static const struct jinja_case cases[] = {
        {"{{ s.upper(), s.lower(), s.title(), s.capitalize(), \"they're bill's\".title(), \"ÀÉ "
         "çÉ\".title(), \"ß\".upper(), \"ß\".title(), \"ßa\".capitalize() }}",
         "('HELLO WORLD', 'hello world', 'Hello World', 'Hello world', \"They'Re Bill'S\", 'Àé "
         "Çé', 'SS', 'Ss', 'Ssa')"},
        {"{{ s.strip(\"Hd\"), \"  x\\n\".strip(), \"  x \".lstrip(), \"  x \".rstrip(), "
         "\"xyx\".strip(\"x\"), \"a\".strip(none) }}",
         "('ello Worl', 'x', 'x ', '  x', 'y', 'a')"},
        {"{{ s.startswith(\"He\"), s.endswith((\"x\", \"ld\")), s.startswith(\"\"), "
         "e.endswith(\"x\"), s.startswith((\"x\", \"y\")) }}",
         "(True, True, True, False, False)"},
        {"{{ s.find(\"o\"), s.rfind(\"o\"), s.find(\"zz\"), s.index(\"W\"), s.count(\"l\"), "
         "\"aaa\".count(\"aa\"), \"ab\".count(\"\"), u.find(\"ß\"), u.rfind(\"\") }}",
         "(4, 7, -1, 6, 3, 1, 3, 4, 16)"},
        {"{{ s.replace(\"l\", \"L\"), s.replace(\"l\", \"L\", 1), \"aaa\".replace(\"\", \"-\"), "
         "s.replace(\"zz\", \"x\"), \"abab\".replace(\"ab\", \"\") }}",
         "('HeLLo WorLd', 'HeLlo World', '-a-a-a-', 'Hello World', '')"},
        {"{{ \"prefix-x\".removeprefix(\"prefix-\"), \"x.txt\".removesuffix(\".txt\"), "
         "\"abc\".removeprefix(\"z\"), \"abc\".removesuffix(\"\") }}",
         "('x', 'x', 'abc', 'abc')"},
        {"{{ \"-\".join([\"a\", \"b\"]), \",\".join(\"xyz\"), \"x\".join([]), \", \".join(w), "
         "\"\".join((\"a\",)) }}",
         "('a-b', 'x,y,z', '', 'b, A, c, a', 'a')"},
        {"{{ \"abc\".isdigit(), \"12\".isdigit(), \"a1\".isalnum(), \"ab\".isalpha(), \" "
         "\\t\".isspace(), \"AB\".isupper(), \"ab\".islower(), \"\".isdigit(), \"éà\".isalpha() }}",
         "(False, True, True, True, True, True, True, False, True)"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(texts_are_split_as_str_does)
{
    static const struct jinja_case cases[] = {
        {"{{ s.split(), s.split(\"o\"), s.split(\"o\", 1), s.rsplit(\"l\", 1), s.split(\"zz\"), "
         "s.rsplit(\"o\") }}",
         "(['Hello', 'World'], ['Hell', ' W', 'rld'], ['Hell', ' World'], ['Hello Wor', 'd'], "
         "['Hello World'], ['Hell', ' W', 'rld'])"},
        {"{{ \"  a  b c \".split(), \"  a  b c \".split(none, 1), \"  a  b c \".rsplit(none, 1), "
         "\"a,b,,c\".split(\",\"), \"\".split(), \"\".split(\",\") }}",
         "(['a', 'b', 'c'], ['a', 'b c '], ['  a  b', 'c'], ['a', 'b', '', 'c'], [], [''])"},
        {"{{ \"a\\u3000b\".split(), \"x\".split(\"x\"), "
         "\"<think>a</think>b\".split(\"</think>\")[-1], \"a.b.c\".split(\".\", maxsplit=1) }}",
         "(['a', 'b'], ['', ''], 'b', ['a', 'b.c'])"},
        {"{{ ml.splitlines(), ml.splitlines(true), \"a\\r\\nb\\rc\\x0bd\".splitlines(), "
         "\"\".splitlines(), \"a\\n\".splitlines() }}",
         "(['one', ' two', '', 'three'], ['one\\n', ' two\\n', '\\n', 'three\\n'], ['a', 'b', 'c', "
         "'d'], [], ['a'])"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(lists_and_dicts_have_the_methods_that_change_nothing)
{
    static const struct jinja_case cases[] = {
        {"{{ l.index(1), l.count(3), [1, 1.0, true].count(1), (1, 2).index(2), "
         "[\"a\"].count(\"b\") }}",
         "(1, 1, 3, 1, 0)"},
        {"{{ d.get(\"x\"), d.get(\"q\"), d.get(\"q\", 4), d.get(none), d.keys()|list, "
         "d.values()|first, d.items()|last }}",
         "(1, None, 4, None, ['x', 'y', 'items'], 1, ('items', 9))"},
    };
    CHECK_CASES(cases);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jinja_methods");
    TCase *tcase = tcase_create("jinja_methods");
    tcase_add_test(tcase, texts_have_the_methods_of_str);
    tcase_add_test(tcase, texts_are_split_as_str_does);
    tcase_add_test(tcase, lists_and_dicts_have_the_methods_that_change_nothing);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
