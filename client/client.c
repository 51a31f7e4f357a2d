/* Functions that the subcommands share. */
#include "client/client.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/option_names.h"
#include "base/text/option_pages.h"
#include "client/terminal.h"

enum { NAME_BYTES = 64, COMMANDS_MAX = 32 };

const char *client_hint(char hint[CLIENT_HINT_BYTES], const char *word,
                        const struct client_command *commands)
{
    const char *names[COMMANDS_MAX];
    int n = 0;
    while (n < COMMANDS_MAX && commands[n].name) {
        names[n] = commands[n].name;
        n++;
    }
    const char *nearest = option_names_nearest(word, names, n);
    hint[0] = '\0';
    if (nearest) snprintf(hint, CLIENT_HINT_BYTES, " (do you mean %s?)", nearest);
    return hint;
}

static int refuse_command(const struct client_commands *commands, const char *name)
{
    struct error err;
    if (name) {
        char hint[CLIENT_HINT_BYTES];
        error_set(&err, ERR_ARGUMENT, "'%.60s' is not a command of %s%s: give %s", name,
                  commands->name, client_hint(hint, name, commands->commands), commands->list);
    } else {
        error_set(&err, ERR_ARGUMENT, "no command of %s: give %s", commands->name, commands->list);
    }
    return client_fail_local(&err);
}

int client_print_pages(char *name, const char *help, char *word)
{
    const struct option_program program = {.doc = help, .args_doc = CLIENT_COMMANDS_ARGS};
    char *words[] = {name, word, NULL};
    struct error err;
    int rc = option_program_parse(&program, 2, words, &err); /* returns after failures alone */
    return rc ? client_fail_local(&err) : CLIENT_OK;
}

int client_run_one(const struct client_commands *commands, int argc, char **argv)
{
    static char name[NAME_BYTES];
    if (argc < 2) return refuse_command(commands, NULL);
    snprintf(name, sizeof name, "outrider %s", commands->name);
    if (option_pages_asked(argv[1])) return client_print_pages(name, commands->help, argv[1]);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0 ||
        strcmp(argv[1], "-h") == 0) {
        struct error err;
        fputs(commands->help, stdout);
        return client_flush(&err) ? client_fail(&err) : CLIENT_OK;
    }
    for (const struct client_command *command = commands->commands; command->name; command++) {
        if (strcmp(argv[1], command->name) != 0) continue;
        snprintf(name, sizeof name, "outrider %s %s", commands->name, command->name);
        argv[1] = name;
        return command->run(argc - 1, argv + 1);
    }
    return refuse_command(commands, argv[1]);
}

int client_take_argument(const char **slot, const char *argument, const char *what,
                         struct error *err)
{
    if (*slot) {
        return error_set(err, ERR_ARGUMENT, "'%.60s' is too much: give one %s", argument, what);
    }
    *slot = argument;
    return 0;
}

int client_fail(const struct error *err)
{
    const struct terminal terminal = terminal_of(stderr);
    fputs("outrider: ", stderr);
    terminal_text(&terminal, err->text, strlen(err->text));
    fputc('\n', stderr);
    return err->code == ERR_CANCELLED ? CLIENT_INTERRUPTED : CLIENT_FAILED;
}

int client_fail_local(const struct error *err)
{
    int status = client_fail(err);
    return err->code == ERR_ARGUMENT ? CLIENT_USAGE : status;
}

int client_flush(struct error *err)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    return error_set(err, ERR_IO, "cannot write to the standard output: %s", strerror(errno));
}

int client_print_json(json_t *object, struct error *err)
{
    if (!object) return error_set(err, ERR_NO_MEMORY, "no memory for the JSON object");
    int failure = json_dumpf(object, stdout, JSON_REAL_PRECISION(9));
    json_decref(object);
    if (failure) return error_set(err, ERR_NO_MEMORY, "the JSON object cannot be written");
    fputc('\n', stdout);
    return client_flush(err);
}

json_t *client_json_text(const char *text, size_t len)
{
    json_t *string = json_stringn(text, len);
    if (string) return string;
    /* Not UTF-8: each byte becomes the code point of its number, so that nothing is lost. */
    char *wide = malloc(2 * len + 1);
    size_t n = 0;
    if (!wide) return NULL;
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte >= 0x80) wide[n++] = (char)(0xC0 | byte >> 6);
        wide[n++] = (char)(byte < 0x80 ? byte : 0x80 | (byte & 0x3F));
    }
    string = json_stringn(wide, n);
    free(wide);
    return string;
}

json_t *client_json_number(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}
