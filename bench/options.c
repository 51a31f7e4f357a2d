/* The command lines of the benchmarks: argp over the tables of bench/options.h. */
#include "bench/options.h"

#include <argp.h>
#include <assert.h>
#include <stdio.h>

#include "base/system/program.h"
#include "base/text/options.h"
#include "model/backend/options.h"

enum { OPTIONS_MAX = 16, NAME_BYTES = 64, KEY_WITHOUT_LETTER = 256 };

static int key_of(const struct bench_option *options, int i)
{
    return options[i].letter ? options[i].letter : KEY_WITHOUT_LETTER + i;
}

static int take_value(const struct bench_option *o, char *arg, struct error *err)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "--%s", o->name);
    if (o->text) *o->text = arg;
    if (o->flag) *o->flag = true;
    if (o->number) return options_int(o->number, name, arg, o->least, o->most, err);
    if (o->fraction) {
        return options_float(o->fraction, name, arg, (float)o->least, (float)o->most, err);
    }
    if (o->list.values) {
        return options_int_list(o->list.values, o->list.n, o->list.n_max, name, arg,
                                (struct options_range){o->least, o->most}, err);
    }
    if (o->word.index) {
        return options_word(o->word.index, name, arg, o->word.names, o->word.n, err);
    }
    return 0;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    const struct bench_command *command = state->input;
    struct error err;
    if (key == ARGP_KEY_INIT && command->backend) state->child_inputs[0] = command->backend;
    for (int i = 0; command->options[i].name; i++) {
        if (key != key_of(command->options, i)) continue;
        if (take_value(&command->options[i], arg, &err)) {
            argp_failure(state, 2, 0, "%s", err.text);
        }
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

void bench_parse(int argc, char **argv, const struct bench_command *command)
{
    struct argp_option entries[OPTIONS_MAX + 1] = {{0}};
    const struct argp_child children[] = {{&backend_argp, 0, command->backend_title, 0}, {0}};
    const struct argp argp = {.options = entries,
                              .parser = parse_option,
                              .doc = command->doc,
                              .children = command->backend ? children : NULL};
    struct bench_command input = *command; /* argp hands its input over as void * */
    for (int i = 0; command->options[i].name; i++) {
        const struct bench_option *o = &command->options[i];
        assert(i < OPTIONS_MAX);
        entries[i] = (struct argp_option){
            .name = o->name, .key = key_of(command->options, i), .arg = o->arg, .doc = o->help};
    }
    if (command->backend) backend_options_init(command->backend);
    program_parse(&argp, argc, argv, &input);
}
