/* ctest: labels=quick libs=client timeout=60 */
/* Output of the client for a server's messages: no control sequence reaches a terminal, marks add
 * up to the text whatever the ends say, and figures are right or say that they are not known. */
#include <math.h>
#include <stdio.h>

#include "client/client.h"
#include "client/figures/figures.h"
#include "client/input.h"
#include "client/painter.h"
#include "client/terminal.h"
#include "tests/support/check_util.h"

/* The text that is printed between show_begin and show_end. */
struct show {
    char *text;
    size_t len;
    struct terminal terminal;
};

static void show_begin(struct show *show, bool is_terminal, bool has_colors)
{
    *show = (struct show){0};
    FILE *out = open_memstream(&show->text, &show->len);
    ck_assert_ptr_nonnull(out);
    show->terminal = (struct terminal){out, is_terminal, has_colors};
}

static void show_end(struct show *show, const char *wanted)
{
    fclose(show->terminal.out);
    ck_assert_str_eq(show->text, wanted);
    free(show->text);
}

static void check_text(bool is_terminal, const char *text, const char *wanted)
{
    struct show show;
    show_begin(&show, is_terminal, false);
    terminal_text(&show.terminal, text, strlen(text));
    show_end(&show, wanted);
}

START_TEST(terminal_text_on_a_terminal_shows_control_characters)
{
    check_text(true, "a\tb\n", "a\tb\n");
    check_text(true, "\033[2J\033]0;x\007", "\\x1b[2J\\x1b]0;x\\x07");
    check_text(true, "back\b\rspace\x7f", "back\\x08\\x0dspace\\x7f");
    check_text(true,
               "\xc2\x9b"
               "31m",
               "\\u009b31m");
    check_text(true,
               "\xe2\x80\xae"
               "abc\xe2\x81\xa6",
               "\\u202eabc\\u2066");
    check_text(true, "na\xc3\xafve \xf0\x9f\x90\x89", "na\xc3\xafve \xf0\x9f\x90\x89");
}
END_TEST

START_TEST(terminal_text_on_a_terminal_shows_broken_characters_as_bytes)
{
    check_text(true, "\x9b", "\\x9b");
    check_text(true, "\xe2\x80", "\\xe2\\x80");
    check_text(true, "\xc0\x9b", "\\xc0\\x9b");          /* an overlong escape */
    check_text(true, "\xed\xa0\x80", "\\xed\\xa0\\x80"); /* a surrogate */
    check_text(true, "\xf5\x80\x80\x80", "\\xf5\\x80\\x80\\x80");
    check_text(true, "\xff\xe9", "\\xff\\xe9");
}
END_TEST

START_TEST(terminal_text_elsewhere_is_unchanged)
{
    check_text(false, "\033[2J\x9b\r\n", "\033[2J\x9b\r\n");
}
END_TEST

START_TEST(terminal_quoted_is_one_line_and_counts_columns)
{
    struct show show;
    show_begin(&show, false, false);
    ck_assert_int_eq(terminal_quoted(&show.terminal, "a\n\"\\\t\033\xc3\xafz", 9), 15);
    show_end(&show, "a\\n\\\"\\\\\\t\\x1b\xc3\xafz");
}
END_TEST

enum { N_IDS = 4 };
static const int32_t ids[N_IDS] = {1, 2, 3, 4};

static struct generate_tokens tokens_of(const char *text, const uint32_t ends[N_IDS],
                                        const enum token_origin origins[N_IDS],
                                        const char *rejected)
{
    return (struct generate_tokens){
        .n = N_IDS,
        .ids = ids,
        .origins = origins,
        .text_ends = ends,
        .text = text,
        .text_len = strlen(text),
        .rejected_id = rejected ? 9 : -1,
        .rejected_text = rejected ? rejected : "",
    };
}

START_TEST(painter_pieces_add_up_whatever_the_ends_say)
{
    static const enum token_origin origins[N_IDS] = {0};
    static const char text[] = "a\xc3\xaf\xf0\x9f\x90\x89z";
    static const uint32_t ends[][N_IDS] = {
        {1, 3, 7, 8}, {0, 0, 0, 0}, {8, 1, 0, 3}, {2, 4, 5, 6}, {99, 4, 99, ~0u}};
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
        struct generate_tokens tokens = tokens_of(text, ends[k], origins, NULL);
        const char *at = text;
        for (int i = 0; i <= N_IDS; i++) {
            struct piece piece = painter_piece(&tokens, i);
            ck_assert_ptr_eq(piece.text, at);
            ck_assert_int_ne(*piece.text & 0xC0, 0x80);
            at += piece.len;
        }
        ck_assert_ptr_eq(at, text + strlen(text));
    }
}
END_TEST

static bool check_drafts(bool has_colors, const struct generate_tokens *tokens, const char *wanted)
{
    struct show show;
    bool ends_with_line = false;
    show_begin(&show, has_colors, has_colors);
    painter_drafts(&show.terminal, tokens, &ends_with_line);
    show_end(&show, wanted);
    return ends_with_line;
}

START_TEST(painter_marks_each_origin)
{
    static const uint32_t ends[N_IDS] = {1, 2, 2, 4};
    static const enum token_origin rejecting[N_IDS] = {TOKEN_ACCEPTED, TOKEN_ACCEPTED,
                                                       TOKEN_ACCEPTED, TOKEN_REPLACEMENT};
    static const enum token_origin keeping[N_IDS] = {TOKEN_PLAIN, TOKEN_ACCEPTED, TOKEN_ACCEPTED,
                                                     TOKEN_BONUS};
    struct generate_tokens tokens = tokens_of("abcde", ends, rejecting, "x\n");
    check_drafts(false, &tokens, "[a][b]{-x\\n-}{+cd+}e");
    check_drafts(true, &tokens,
                 "\033[32ma\033[0m\033[32mb\033[0m\033[31;9mx\\n\033[0m\033[34mcd\033[0m"
                 "\033[0me\033[0m");
    tokens = tokens_of("abcd", ends, keeping, NULL);
    check_drafts(false, &tokens, "a[b]<cd>");
    tokens = tokens_of("abcd", ends, keeping, "y"); /* a replacement that has no token */
    check_drafts(false, &tokens, "a[b]<cd>{-y-}");
}
END_TEST

/* A round of the chain r u y, of whose guesses r stayed; u has the siblings v, w and x, and r has
 * s, which nobody needed. kept: of the siblings the one that stayed, 0 = none. */
static struct generate_round tree_round(struct generate_guess guesses[7], int kept)
{
    static const struct generate_guess all[] = {
        {1, "r", 1, 1, 0, 0, false}, {2, "s", 0, 0, 0, 1, false}, {3, "u\n", 1, 0, 1, 0, false},
        {4, "v", 0, 0, 1, 1, false}, {5, "w", 0, 0, 1, 2, false}, {6, "x", 0, 0, 1, 3, false},
        {7, "y", 1, -1, 2, 0, true}};
    int n = 0;
    guesses[n++] = all[0];
    if (kept) guesses[n++] = all[2 + kept];
    for (int i = 1; i < 7; i++) {
        if (!kept || i != 2 + kept) guesses[n++] = all[i];
    }
    return (struct generate_round){
        .n_guesses = n, .guesses = guesses, .drafter = "model", .n_kept = kept ? 2 : 1};
}

START_TEST(painter_marks_siblings_that_were_tried)
{
    static const uint32_t ends[N_IDS] = {1, 2, 3, 3};
    static const enum token_origin keeping[N_IDS] = {TOKEN_ACCEPTED, TOKEN_ACCEPTED, TOKEN_BONUS};
    static const enum token_origin rejecting[N_IDS] = {TOKEN_ACCEPTED, TOKEN_REPLACEMENT};
    struct generate_guess guesses[7];
    struct generate_tokens tokens = tokens_of("rwb", ends, keeping, "u\n");
    struct generate_round round = tree_round(guesses, 2);
    tokens.round = &round;
    tokens.n = 3;
    check_drafts(false, &tokens, "[r]{-u\\n-}{-|v-}[|w]<b>");
    check_drafts(true, &tokens,
                 "\033[32mr\033[0m\033[31;9mu\\n\033[0m\033[2m|\033[0m\033[31;9mv\033[0m"
                 "\033[32;4mw\033[0m\033[36mb\033[0m");
    tokens.n = 1; /* the text ends before the sibling, and the server says nothing of u */
    tokens.text_len = 1;
    tokens.rejected_id = -1;
    check_drafts(false, &tokens, "[r]");

    round = tree_round(guesses, 1);
    tokens = tokens_of("rvb", ends, keeping, "u\n");
    tokens.round = &round;
    tokens.n = 3;
    check_drafts(false, &tokens, "[r]{-u\\n-}[|v]<b>");

    round = tree_round(guesses, 0);
    tokens = tokens_of("rn", ends, rejecting, "u\n");
    tokens.round = &round;
    tokens.n = 2;
    check_drafts(false, &tokens, "[r]{-u\\n-}{-|v-}{-|w-}{-|x-}{+n+}");
    check_drafts(true, &tokens,
                 "\033[32mr\033[0m\033[31;9mu\\n\033[0m"
                 "\033[2m|\033[0m\033[31;9mv\033[0m\033[2m|\033[0m\033[31;9mw\033[0m"
                 "\033[2m|\033[0m\033[31;9mx\033[0m\033[34mn\033[0m");
}
END_TEST

/* The chain r u, of which u has the sibling v, and the second chain r p q: it is shown as siblings
 * are, as far as somebody has tried it. */
START_TEST(painter_marks_a_second_chain)
{
    static const uint32_t ends[N_IDS] = {1, 2, 3, 4};
    static const enum token_origin keeping[N_IDS] = {TOKEN_ACCEPTED, TOKEN_ACCEPTED, TOKEN_ACCEPTED,
                                                     TOKEN_BONUS};
    static const enum token_origin rejecting[N_IDS] = {TOKEN_ACCEPTED, TOKEN_REPLACEMENT};
    enum { BRANCH = GENERATE_BRANCH };
    const struct generate_guess r = {1, "r", 1, 1, 0, 0, false}, u = {3, "u", 1, 0, 1, 0, false},
                                v = {4, "v", 0, 0, 1, 1, false};
    struct generate_guess p = {5, "p", 1, 1, 1, BRANCH, false},
                          q = {6, "q", 1, 1, 2, BRANCH, false};
    const struct generate_guess kept[] = {r, p, q, u, v};
    struct generate_round round = {.n_guesses = 5, .guesses = kept, .n_kept = 3};
    struct generate_tokens tokens = tokens_of("rpqb", ends, keeping, "u");
    tokens.round = &round;
    check_drafts(false, &tokens, "[r]{-u-}{-|v-}[|p][|q]<b>");

    q.is_untried = true;
    /* After another first guess than r, so that nobody has tried it. */
    const struct generate_guess y = {7, "y", 1, 1, 1, BRANCH, true};
    const struct generate_guess rejected[] = {r, u, v, p, y, q};
    round = (struct generate_round){.n_guesses = 6, .guesses = rejected, .n_kept = 1};
    tokens = tokens_of("rn", ends, rejecting, "u");
    tokens.n = 2;
    tokens.round = &round;
    check_drafts(false, &tokens, "[r]{-u-}{-|v-}{-|p-}{+n+}");
}
END_TEST

/* The chain u r with the sibling v of u, after which there are y and its sibling q, and z after
 * q. */
START_TEST(painter_marks_guesses_after_a_sibling)
{
    static const uint32_t ends[N_IDS] = {1, 2, 3, 4};
    static const enum token_origin origins[N_IDS] = {TOKEN_ACCEPTED, TOKEN_ACCEPTED,
                                                     TOKEN_REPLACEMENT};
    enum { FIRST = GENERATE_GROWN, SECOND };
    const struct generate_guess guesses[] = {
        {4, "v", 1, 1, 0, 1, false},     {6, "q", 1, 1, 1, SECOND, false},
        {3, "u", 1, 0, 0, 0, false},     {1, "r", 1, -1, 1, 0, true},
        {7, "y", 1, 0, 1, FIRST, false}, {8, "z", 1, 0, 2, FIRST, false},
    };
    const struct generate_round round = {.n_guesses = 6, .guesses = guesses, .n_kept = 2};
    struct generate_tokens tokens = tokens_of("vqn", ends, origins, "u");
    tokens.n = 3;
    tokens.round = &round;
    check_drafts(false, &tokens, "{-u-}[|v]{-|y-}[|q]{-|z-}{+n+}");
}
END_TEST

/* All of a chain stays, so that its siblings change nothing. */
START_TEST(painter_shows_a_chain_with_and_without_a_round_alike)
{
    static const uint32_t ends[N_IDS] = {1, 2, 3, 4};
    static const enum token_origin keeping[N_IDS] = {TOKEN_ACCEPTED, TOKEN_ACCEPTED, TOKEN_ACCEPTED,
                                                     TOKEN_BONUS};
    static const enum token_origin rejecting[N_IDS] = {TOKEN_ACCEPTED, TOKEN_ACCEPTED,
                                                       TOKEN_ACCEPTED, TOKEN_REPLACEMENT};
    static const struct generate_guess guesses[] = {
        {1, "a", 1, 1, 0, 0, false}, {2, "b", 1, 1, 1, 0, false}, {3, "c", 1, 1, 2, 0, false},
        {4, "x", 1, 1, 3, 0, false}, {5, "y", 1, 1, 4, 0, true},  {6, "z", 1, 1, 1, 1, false}};
    struct generate_round round = {.n_guesses = 5, .guesses = guesses, .n_kept = 3};
    struct generate_tokens tokens = tokens_of("abcd", ends, rejecting, "x");
    check_drafts(false, &tokens, "[a][b][c]{-x-}{+d+}");
    tokens.round = &round;
    check_drafts(false, &tokens, "[a][b][c]{-x-}{+d+}");
    round.n_guesses = 6;
    check_drafts(false, &tokens, "[a][b][c]{-x-}{+d+}");
    round.n_guesses = 3;
    tokens = tokens_of("abcd", ends, keeping, NULL);
    tokens.round = &round;
    check_drafts(false, &tokens, "[a][b][c]<d>");
}
END_TEST

START_TEST(painter_says_whether_a_line_has_ended)
{
    static const uint32_t ends[N_IDS] = {1, 2, 3, 4};
    static const enum token_origin kept[N_IDS] = {TOKEN_PLAIN, TOKEN_PLAIN, TOKEN_PLAIN,
                                                  TOKEN_BONUS};
    static const enum token_origin plain[N_IDS] = {TOKEN_PLAIN};
    struct generate_tokens tokens = tokens_of("abc\n", ends, plain, NULL);
    ck_assert(check_drafts(false, &tokens, "abc\n"));
    tokens = tokens_of("abc\n", ends, kept, NULL); /* the mark comes after the newline */
    ck_assert(!check_drafts(false, &tokens, "abc<\n>"));
    ck_assert(check_drafts(true, &tokens,
                           "\033[0ma\033[0m\033[0mb\033[0m\033[0mc\033[0m\033[36m\n\033[0m"));
    tokens = tokens_of("abc\n", ends, plain, "x\n"); /* a rejected guess is shown in one line */
    ck_assert(!check_drafts(false, &tokens, "abc\n{-x\\n-}"));
}
END_TEST

static struct generate_summary summary_of_three_rounds(void)
{
    return (struct generate_summary){
        .finish_reason = "length",
        .stop_match = "",
        .rule = "rejection",
        .speculation_off = "",
        .request_id = "r",
        .arithmetic = "a",
        .completion_tokens = 8,
        .prompt_tokens = 2,
        .seed = UINT64_MAX,
        .counters = {.rounds = 3,
                     .drafted = 10,
                     .accepted = 5,
                     .rejections = 2,
                     .first_round_tokens = 2,
                     .siblings = 6,
                     .staged = 7,
                     .appended = 8,
                     .appended_accepted = 9,
                     .drafted_at = {4, 3, 3},
                     .tested_at = {4, 3},
                     .accepted_at = {3, 2},
                     .prompt_us = 1500,
                     .queue_us = 500,
                     .total_us = 4000,
                     .rounds_us = 2000,
                     .expected_us = 1710,
                     .planned_us = 1800,
                     .draft_us = 600,
                     .wire_us = 100,
                     .verify_us = 1000,
                     .collective_us = 200,
                     .accept_us = 100,
                     .bytes_sent = 300,
                     .bytes_received = 700,
                     .rows = 10},
    };
}

static void check_near(double value, double wanted)
{
    ck_assert_msg(fabs(value - wanted) <= 1e-9 * fabs(wanted), "%g is not %g", value, wanted);
}

START_TEST(figures_are_those_of_the_definitions)
{
    const struct generate_summary summary = summary_of_three_rounds();
    struct figures f = figures_of(&summary);
    check_near(f.tokens_per_round, 8.0 / 3);
    check_near(f.alpha, 5.0 / 7);
    check_near(f.draft_efficiency, 0.5);
    ck_assert_int_eq(f.n_positions, 2);
    check_near(f.acceptance_at[0], 0.75);
    check_near(f.acceptance_at[1], 2.0 / 3);
    check_near(f.decode_tokens_per_s, 3000);
    check_near(f.total_tokens_per_s, 2000);
    check_near(f.first_token_ms, 2);
    check_near(f.bytes_per_position, 100);
    check_near(f.round_us, 1000);
    check_near(f.part_us[PART_DRAFT], 300);
    check_near(f.part_ratio[PART_VERIFY], 0.5);
    check_near(f.predicted_ratio, 0.95);
}
END_TEST

START_TEST(figures_without_rounds_are_not_known)
{
    const struct generate_summary summary = {.finish_reason = "",
                                             .stop_match = "",
                                             .rule = "",
                                             .speculation_off = "",
                                             .request_id = "",
                                             .arithmetic = ""};
    struct figures f = figures_of(&summary);
    ck_assert(isnan(f.alpha) && isnan(f.tokens_per_round) && isnan(f.decode_tokens_per_s));
    ck_assert(isnan(f.round_us) && isnan(f.bytes_per_position));
    json_t *object = figures_json(&summary);
    ck_assert(json_is_null(json_object_get(object, "alpha")));
    json_decref(object);
    char *text;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    figures_print(out, &summary);
    fclose(out);
    ck_assert_ptr_null(strstr(text, "nan"));
    free(text);
}
END_TEST

static void check_counter(const json_t *object, const char *name, int wanted)
{
    json_t *value = json_object_get(json_object_get(object, "counters"), name);
    ck_assert_msg(value, "%s is missing", name);
    ck_assert_int_eq(json_integer_value(value), wanted);
}

/* In JSON, in a sum of two, and what people are shown. */
START_TEST(figures_tell_how_guesses_were_made)
{
    const struct generate_summary summary = summary_of_three_rounds();
    struct generate_summary sum = summary;
    char *text;
    size_t len;
    figures_add(&sum, &summary);
    for (int n = 1; n <= 2; n++) {
        json_t *object = figures_json(n == 1 ? &summary : &sum);
        check_counter(object, "siblings", 6 * n);
        check_counter(object, "staged", 7 * n);
        check_counter(object, "appended", 8 * n);
        check_counter(object, "appended_accepted", 9 * n);
        check_counter(object, "expected_us", 1710 * n);
        check_counter(object, "planned_us", 1800 * n);
        json_decref(object);
    }
    FILE *out = open_memstream(&text, &len);
    figures_print(out, &summary);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "7 guesses without a pass of their own"));
    ck_assert_ptr_nonnull(strstr(text, "6 more guesses"));
    free(text);
}
END_TEST

START_TEST(figures_json_keeps_every_bit_of_the_seed)
{
    const struct generate_summary summary = summary_of_three_rounds();
    json_t *object = figures_json(&summary);
    ck_assert_str_eq(json_string_value(json_object_get(object, "seed")), "18446744073709551615");
    json_t *drafted = json_object_get(json_object_get(object, "counters"), "drafted_per_position");
    ck_assert_int_eq((int)json_array_size(drafted), 3);
    json_decref(object);
}
END_TEST

START_TEST(json_text_loses_no_byte)
{
    json_t *text = client_json_text("a\xff\0b", 4);
    ck_assert_int_eq((int)json_string_length(text), 5);
    ck_assert_mem_eq(json_string_value(text), "a\xc3\xbf\0b", 5);
    json_decref(text);
}
END_TEST

START_TEST(input_ids_reads_commas_and_blanks)
{
    struct error err;
    struct token_ids list = {0};
    CHECK_OK(input_ids(&list, "--ids", " 1,2, 3\n2147483647 ", &err));
    ck_assert_int_eq((int)list.n, 4);
    ck_assert_int_eq(list.data[3], INT32_MAX);
    token_ids_free(&list);
    static const char *const wrong[] = {"1,-2", "1;2", "2147483648", "99999999999999999999999999x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct token_ids none = {0};
        CHECK_ERR(input_ids(&none, "--ids", wrong[i], &err), ERR_ARGUMENT, "--ids");
        token_ids_free(&none);
    }
    struct token_ids empty = {0};
    CHECK_ERR(input_ids(&empty, "--ids", " , ", &err), ERR_ARGUMENT, "no token id");
    token_ids_free(&empty);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_show");
    TCase *tests = tcase_create("show");
    tcase_add_test(tests, terminal_text_on_a_terminal_shows_control_characters);
    tcase_add_test(tests, terminal_text_on_a_terminal_shows_broken_characters_as_bytes);
    tcase_add_test(tests, terminal_text_elsewhere_is_unchanged);
    tcase_add_test(tests, terminal_quoted_is_one_line_and_counts_columns);
    tcase_add_test(tests, painter_pieces_add_up_whatever_the_ends_say);
    tcase_add_test(tests, painter_marks_each_origin);
    tcase_add_test(tests, painter_marks_siblings_that_were_tried);
    tcase_add_test(tests, painter_marks_a_second_chain);
    tcase_add_test(tests, painter_marks_guesses_after_a_sibling);
    tcase_add_test(tests, painter_shows_a_chain_with_and_without_a_round_alike);
    tcase_add_test(tests, painter_says_whether_a_line_has_ended);
    tcase_add_test(tests, figures_are_those_of_the_definitions);
    tcase_add_test(tests, figures_without_rounds_are_not_known);
    tcase_add_test(tests, figures_tell_how_guesses_were_made);
    tcase_add_test(tests, figures_json_keeps_every_bit_of_the_seed);
    tcase_add_test(tests, json_text_loses_no_byte);
    tcase_add_test(tests, input_ids_reads_commas_and_blanks);
    suite_add_tcase(suite, tests);
    return check_main(suite);
}
