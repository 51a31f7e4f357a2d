/* Options for man and for shells. */
#include "base/text/option_pages.h"

#include <argp.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 78, WORDS_BYTES = 512, LIST_BYTES = 1024 };

bool option_pages_asked(const char *word)
{
    static const char start[] = "--" OPTION_PAGES_OPTION "=";
    return strncmp(word, start, sizeof start - 1) == 0;
}

/* ---- texts of man(7) ---- */

static void put_roff(char c)
{
    switch (c) {
    case '\\':
        fputs("\\e", stdout);
        break;
    case '-':
        fputs("\\-", stdout);
        break;
    case '\'':
        fputs("\\(aq", stdout);
        break;
    case '`':
        fputs("\\(ga", stdout);
        break;
    case '^':
        fputs("\\(ha", stdout);
        break;
    case '~':
        fputs("\\(ti", stdout);
        break;
    default:
        putchar(c);
    }
}

static void put_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        put_roff(text[i]);
}

/* Words of a paragraph in lines of the page's source, none of which begins as a request does. */
static void put_words(const char *text, size_t len)
{
    size_t column = 0;
    for (size_t at = 0; at < len;) {
        size_t n = 0;
        while (at + n < len && !isspace((unsigned char)text[at + n]))
            n++;
        if (n > 0) {
            if (column > 0) putchar(column + n < COLUMNS ? ' ' : '\n');
            if (column + n >= COLUMNS) column = 0;
            if (column == 0 && text[at] == '.') fputs("\\&", stdout);
            put_text(text + at, n);
            column += n + 1;
        }
        at += n ? n : 1;
    }
    if (column > 0) putchar('\n');
}

/* "  name  what it does" of a doc: the lengths of name and blanks before the rest; 0 where the line
 * is not so. */
static size_t item_name(const char *line, size_t len, size_t *rest)
{
    size_t end = 2;
    if (len < 2 || strncmp(line, "  ", 2) != 0) return 0;
    while (end < len && line[end] != ' ')
        end++;
    *rest = end;
    while (*rest < len && line[*rest] == ' ')
        ++*rest;
    return *rest >= end + 2 && *rest < len ? end - 2 : 0;
}

static size_t line_length(const char *text, size_t len)
{
    const char *end = memchr(text, '\n', len);
    return end ? (size_t)(end - text) : len;
}

static void put_item(const char *line, size_t len)
{
    size_t rest = 0, name = item_name(line, len, &rest);
    if (name) {
        fputs(".TP\n\\fB", stdout);
        put_text(line + 2, name);
        fputs("\\fR\n", stdout);
        put_words(line + rest, len - rest);
    } else {
        fputs(".RS\n.nf\n", stdout);
        put_text(line + 2, len - 2);
        fputs("\n.fi\n.RE\n", stdout);
    }
}

/* A paragraph: words, and lines that are indented, which are items or as they are. */
static void put_paragraph(const char *text, size_t len)
{
    size_t begin = 0, at = 0;
    while (at < len) {
        size_t n = line_length(text + at, len - at);
        if (n > 2 && strncmp(text + at, "  ", 2) == 0) {
            put_words(text + begin, at - begin);
            put_item(text + at, n);
            begin = at + n;
        }
        at += n + (at + n < len);
    }
    put_words(text + begin, len - begin);
}

static const char status_title[] = "Exit status";
/* Paragraphs that list commands. */
static const char *const commands_titles[] = {"Commands:\n", "More commands:\n"};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The bytes of the title, if the text begins with one of a list of commands, otherwise 0. */
static size_t commands_title(const char *text)
{
    for (size_t i = 0; i < sizeof commands_titles / sizeof *commands_titles; i++) {
        if (begins(text, commands_titles[i])) return strlen(commands_titles[i]);
    }
    return 0;
}

/* Prints the paragraphs of a doc that say the exit status, or all others. Commands get a section of
 * their own; title: of the section of the others; NULL: it has begun. */
static void put_paragraphs(const char *text, size_t len, bool is_status, const char *title)
{
    const char *end = text + len;
    while (text < end) {
        const char *stop = strstr(text, "\n\n");
        size_t n = stop && stop < end ? (size_t)(stop - text) : (size_t)(end - text);
        if (n > 0 && *text != '\n' && begins(text, status_title) == is_status) {
            size_t skip = commands_title(text);
            if (skip || title) {
                printf(".SH %s\n", !skip ? title : *text == 'C' ? "COMMANDS" : "MORE COMMANDS");
            } else {
                puts(".PP");
            }
            title = NULL;
            put_paragraph(text + skip, n - skip);
        }
        text += n;
        while (text < end && *text == '\n')
            text++;
    }
}

/* ---- the page ---- */

/* The doc of argp in two parts, before and after \v, without a line "Usage: ...". */
static const char *doc_of(const struct option_pages *pages, size_t *len, const char **after)
{
    const char *doc = pages->doc, *newline = strchr(doc, '\n');
    if (begins(doc, "Usage: ") && newline) doc = newline + 1;
    const char *mark = strchr(doc, '\v');
    *len = mark ? (size_t)(mark - doc) : strlen(doc);
    *after = mark ? mark + 1 : "";
    return doc;
}

/* "outrider-jobs-submit" */
static void put_page_name(const char *name, bool is_upper)
{
    for (; *name; name++)
        put_roff(*name == ' ' ? '-' : is_upper ? (char)toupper((unsigned char)*name) : *name);
}

/* The doc's first sentence, as what follows a name: without a capital and a period. */
static void put_purpose(const char *doc, size_t len)
{
    size_t n = line_length(doc, len);
    if (n > 0 && doc[n - 1] == '.') n--;
    for (size_t i = 0; i < n; i++)
        put_roff(i == 0 ? (char)tolower((unsigned char)doc[i]) : doc[i]);
}

static void put_head(const struct option_pages *pages, const char *purpose)
{
    const char *after;
    size_t len;
    const char *doc = doc_of(pages, &len, &after);
    fputs(".TH ", stdout);
    put_page_name(pages->name, true);
    printf(" 1 \"\" \"%s\" \"Outrider\"\n.SH NAME\n", argp_program_version);
    put_page_name(pages->name, false);
    fputs(" \\- ", stdout);
    if (purpose) {
        put_text(purpose, strlen(purpose));
    } else {
        put_purpose(doc, len);
    }
    fputs("\n.SH SYNOPSIS\n\\fB", stdout);
    put_text(pages->name, strlen(pages->name));
    fputs("\\fR", stdout);
    if (pages->n) fputs(" [\\fIOPTION\\fR...]", stdout);
    if (pages->args_doc) {
        putchar(' ');
        put_text(pages->args_doc, strlen(pages->args_doc));
    }
    putchar('\n');
    put_paragraphs(doc, len, false, "DESCRIPTION");
}

static void put_option(const struct option_page_row *row)
{
    fputs(".TP\n", stdout);
    if (row->letter) printf("\\fB\\-%c\\fR, ", row->letter);
    fputs("\\fB\\-\\-", stdout);
    put_text(row->name, strlen(row->name));
    fputs("\\fR", stdout);
    if (row->value) {
        fputs("=\\fI", stdout);
        put_text(row->value, strlen(row->value));
        fputs("\\fR", stdout);
    }
    putchar('\n');
    put_words(row->help, strlen(row->help));
}

static void put_title(const struct option_page_row *row)
{
    fputs(".SS ", stdout);
    put_text(row->title, strlen(row->title));
    putchar('\n');
    if (!row->example) return;
    fputs("Such as\n\\fB", stdout);
    put_text(row->example, strlen(row->example));
    fputs("\\fR.\n", stdout);
}

static void put_variables(const char *variables)
{
    if (!variables) return;
    fputs(".SH ENVIRONMENT\nEach option has a variable, called \\fB", stdout);
    put_text(variables, strlen(variables));
    fputs("\\fR and its name in capitals, with _ in place of \\-.\n"
          "Flags are on or off there.\nThe command line goes first.\n",
          stdout);
}

static void put_example(const char *example)
{
    if (!example) return;
    fputs(".SH EXAMPLES\n\\fB", stdout);
    put_text(example, strlen(example));
    fputs("\\fR\n", stdout);
}

static void print_man(const struct option_pages *pages, const char *purpose)
{
    const char *after, *title = NULL;
    size_t len;
    doc_of(pages, &len, &after);
    put_head(pages, purpose);
    if (pages->n) fputs(".SH OPTIONS\n", stdout);
    for (int i = 0; i < pages->n; i++) {
        const struct option_page_row *row = &pages->rows[i];
        if (row->title && row->title != title) put_title(row);
        title = row->title;
        put_option(row);
    }
    put_paragraphs(after, strlen(after), false, "NOTES");
    put_example(pages->example);
    if (pages->n) put_variables(pages->variables);
    put_paragraphs(after, strlen(after), true, "EXIT STATUS");
    fputs(".SH SEE ALSO\n"
          "\\fBoutrider\\fR(1), whose commands have pages of their own such as\n"
          "\\fBoutrider\\-generate\\fR(1),\n"
          "\\fBoutrider\\-coordinator\\fR(1),\n"
          "\\fBoutrider\\-worker\\fR(1),\n"
          "\\fBoutrider\\-group\\fR(1)\n",
          stdout);
}

/* ---- the table ---- */

/* Takes one word from the front of a list such as "auto, on or off" or "cpu, cuda:N, or cuda".
 * Returns the end of the word and of what parts it from the next one; NULL: no such word. */
static const char *take_word(const char *text, size_t *len)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (n > 0 && text[n] && strchr("-:", text[n])))
        n++;
    while (n > 0 && text[n - 1] == ':') /* what follows says more of the words */
        n--;
    *len = n;
    text += n;
    if (n == 0) return NULL;
    if (begins(text, ", or ")) return text + 5;
    if (begins(text, ", ")) return text + 2;
    if (begins(text, " or ")) return text + 4;
    return *text && strchr(";:.", *text) ? "" : *text ? NULL : text;
}

/* Writes the words of a list, with blanks between them; those with a capital stand for something
 * else and are left out. Returns whether the text is a list, or begins with one before ; : or . */
static bool read_list(const char *text, char *out, size_t size)
{
    int n_words = 0;
    out[0] = '\0';
    while (*text) {
        size_t len, used = strlen(out);
        const char *next = take_word(text, &len);
        bool is_plain = true;
        if (!next) return false;
        for (size_t i = 0; i < len; i++)
            is_plain = is_plain && !isupper((unsigned char)text[i]);
        n_words++;
        if (is_plain && used + len + 2 < size) {
            snprintf(out + used, size - used, "%s%.*s", used ? " " : "", (int)len, text);
        }
        text = next;
    }
    return n_words > 1;
}

/* The words that the option takes, or "". */
static void list_words(const struct option_page_row *row, char *out, size_t size)
{
    char list[LIST_BYTES] = "";
    out[0] = '\0';
    if (!row->value) return;
    if (row->is_switch) {
        snprintf(out, size, "on off");
        return;
    }
    for (int i = 0; i < row->n_words; i++) {
        size_t used = strlen(out);
        snprintf(out + used, size - used, "%s%s", used ? " " : "", row->words[i]);
    }
    if (row->n_words) return;
    if (row->names) row->names(list, sizeof list);
    if (list[0] && read_list(list, out, size)) return;
    if (row->expected && read_list(row->expected, out, size)) return;
    if (!read_list(row->help, out, size)) out[0] = '\0';
}

static const char *kind_of(const char *value, const char *words)
{
    if (!value) return "none";
    if (strstr(value, "FOLDER") || strstr(value, "DIR")) return "folders";
    if (strstr(value, "FILE") || strstr(value, "MODEL") || strstr(value, "DATASTORE")) {
        return "files";
    }
    return words[0] ? "words" : "any";
}

/* Prints the lines after the title. False: the doc has no such title. */
static bool print_commands(const char *doc, const char *title)
{
    const char *line = strstr(doc, title);
    if (!line) return false;
    for (line += strlen(title); *line;) {
        size_t rest = 0, n = line_length(line, strlen(line)), name = item_name(line, n, &rest);
        if (name == 0) break;
        printf("command\t%.*s\t%.*s\n", (int)name, line + 2, (int)(n - rest), line + rest);
        line += n + (line[n] == '\n');
    }
    return true;
}

static void print_table(const struct option_pages *pages)
{
    const char *after, *args = pages->args_doc;
    size_t len;
    const char *doc = doc_of(pages, &len, &after);
    bool has_commands = false;
    for (int i = 0; i < pages->n; i++) {
        const struct option_page_row *row = &pages->rows[i];
        char words[WORDS_BYTES], letter[] = {'-', (char)row->letter, '\0'};
        list_words(row, words, sizeof words);
        printf("option\t--%s\t%s\t%s\t%s\t%s\t%s\n", row->name, letter,
               row->value ? row->value : "-", kind_of(row->value, words), words[0] ? words : "-",
               row->help);
    }
    for (size_t i = 0; i < sizeof commands_titles / sizeof *commands_titles; i++)
        has_commands = print_commands(doc, commands_titles[i]) || has_commands;
    if (args && !has_commands) {
        bool are_files = strcmp(kind_of(args, ""), "any") != 0;
        printf("argument\t%s\n", are_files ? "files" : "any");
    }
}

int option_pages_print(const struct option_pages *pages, const char *form, struct error *err)
{
    if (strcmp(form, "table") == 0) {
        print_table(pages);
    } else if (strcmp(form, "man") == 0 || begins(form, "man:")) {
        print_man(pages, form[3] ? form + 4 : NULL);
    } else {
        return error_set(err, ERR_ARGUMENT,
                         "--" OPTION_PAGES_OPTION " %.40s: expected man or table", form);
    }
    return 0;
}
