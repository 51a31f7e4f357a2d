/* The command lines of the benchmarks: rows over the tables of bench/options.h. */
#include "bench/options.h"

#include <assert.h>

#include "base/system/program.h"
#include "base/text/options.h"
#include "model/backend/options.h"

enum { OPTIONS_MAX = 16 };

static int take_value(void *option, const char *name, const char *arg, struct error *err)
{
    const struct bench_option *o = option;
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

void bench_parse(int argc, char **argv, const struct bench_command *command)
{
    static const struct option_row end;
    struct bench_option options[OPTIONS_MAX];
    struct option_row rows[OPTIONS_MAX][2]; /* each a part of its own, because its field is */
    struct option_program program = {.doc = command->doc};
    int n = 0;
    for (; command->options[n].name; n++) {
        const struct bench_option *o = &options[n];
        assert(n < OPTIONS_MAX);
        options[n] = command->options[n];
        rows[n][0] = (struct option_row){.name = o->name,
                                         .letter = o->letter,
                                         .value = o->arg,
                                         .read = take_value,
                                         .help = o->help};
        rows[n][1] = end;
        program.parts[n] = (struct option_part){.rows = rows[n], .fields = &options[n]};
    }
    if (command->backend) {
        program.parts[n] = (struct option_part){.rows = backend_rows, .fields = command->backend};
    }
    program_options(&program, argc, argv);
}
