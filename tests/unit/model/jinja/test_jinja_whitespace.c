/* ctest: labels=quick libs=jinja timeout=60 */
/* White space around tags, with trim_blocks and lstrip_blocks. What templates must print is what
 * jinja2 3.1.2 prints for them. */
#include "tests/support/jinja_cases.h"

START_TEST(a_line_that_has_only_a_block_is_left_out)
{
    static const struct jinja_case cases[] = {
        {"{% if t %}\nx\n{% endif %}\n", "x\n"},
        {"  {% if t %}  \n  x\n  {% endif %}  \nend", "  \n  x\n  \nend"},
        {"a\n  {% if t %}\nb\n  {% endif %}\nc", "a\nb\nc"},
        {"a {% if t %}\nb {% endif %}\nc", "a b c"},
        {"{% if t %}\n\nx{% endif %}", "\nx"},
        {"\t{% set x = 1 %}\n{{ x }}", "1"},
        {"a\r\n  {% if t %}\r\nb\r\n{% endif %}\rc", "a\nb\nc"},
        {"x\n  {# comment #}\ny", "x\ny"},
        {"x {# comment #}\ny", "x y"},
        {"{% for x in l %}\n{{ x }}\n{% endfor %}\n", "3\n1\n2\n"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(a_minus_takes_all_blanks_away)
{
    static const struct jinja_case cases[] = {
        {"a  {%- if t -%}  b  {%- endif -%}  c", "abc"},
        {"a \n\n {{- b -}} \n\n c", "a-3c"},
        {"{{ a -}}   x   {{- b }}", "5x-3"},
        {"x{#- c -#}  y", "xy"},
        {"  {%- for x in l -%}  {{ x }}  {%- endfor -%}  ", "312"},
        {"{% for x in l -%}\n  {{ x }}\n{%- endfor %}\n\n", "312"},
        {"a\302\240{{- 1 }}", "a1"},
        {"a \034{{- 1 -}}\037 b", "a1b"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(a_plus_keeps_what_would_go)
{
    static const struct jinja_case cases[] = {
        {"  {%+ if t %}x{% endif +%}\ny", "  x\ny"},
        {"a {%+ if t %} b {% endif +%}\n c", "a  b \n c"},
        {"  {%+ set x = 1 +%}\n{{ x }}", "  \n1"},
        {"x\n  {#+ c #}\ny", "x\n  y"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(a_print_tag_keeps_its_line)
{
    static const struct jinja_case cases[] = {
        {"  {{ a }}  \n  x", "  5  \n  x"},
        {"{{ a }}\n\n{{ b }}\n", "5\n\n-3"},
        {"\n{{ a }}", "\n5"},
        {"{{ '\\n' }}\n", "\n"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(one_line_break_at_the_end_is_left_out)
{
    static const struct jinja_case cases[] = {
        {"x\n", "x"}, {"x\n\n", "x\n"},   {"x\r\n", "x"},
        {"x\r", "x"}, {"x", "x"},         {"", ""},
        {"\n", ""},   {"{{ a }}\n", "5"}, {"{% if t %}x{% endif %}\n\n", "x"},
    };
    CHECK_CASES(cases);
}
END_TEST

START_TEST(a_template_of_messages_prints_them)
{
    static const struct jinja_case cases[] = {
        {"{%- for message in messages -%}\n    {%- if message['role'] == 'user' -%}\n        {{- "
         "'<|user|>\\n' + message['content'] | trim + '\\n' -}}\n    {%- else -%}\n        {{- "
         "'<|assistant|>\\n' + message.content.strip() + '<|end|>' -}}\n    {%- endif -%}\n{%- "
         "endfor -%}\n",
         "<|user|>\nhi\n<|assistant|>\nyo<|end|>"},
        {"{% for m in messages %}\n{{ '<|' ~ m.role ~ '|>' }}\n{{ m.content }}\n{% endfor %}\n{% "
         "if add_generation_prompt %}\n<|assistant|>\n{% endif %}\n",
         "<|user|>\nhi\n<|assistant|>\nyo\n\n"},
    };
    CHECK_CASES(cases);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jinja_whitespace");
    TCase *tcase = tcase_create("jinja_whitespace");
    tcase_add_test(tcase, a_line_that_has_only_a_block_is_left_out);
    tcase_add_test(tcase, a_minus_takes_all_blanks_away);
    tcase_add_test(tcase, a_plus_keeps_what_would_go);
    tcase_add_test(tcase, a_print_tag_keeps_its_line);
    tcase_add_test(tcase, one_line_break_at_the_end_is_left_out);
    tcase_add_test(tcase, a_template_of_messages_prints_them);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
