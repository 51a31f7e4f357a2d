/* Four lines for people, which a shell and Python take as they are. */
#include "client/serve/greeting.h"

#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "client/serve/door.h"
#include "client/terminal.h"

void greeting_open(struct greeting *greeting, const struct serve_options *options)
{
    *greeting = (struct greeting){
        .served_name = serve_value_of_coordinator(options, "served-name"),
        .has_tls = serve_value_of_coordinator(options, "tls-certificate") != NULL,
        .has_keys = serve_value_of_coordinator(options, "keys") != NULL,
    };
}

void greeting_print(const struct greeting *greeting)
{
    const struct terminal terminal = terminal_of(stdout);
    char url[GREETING_BYTES + 16], open[GREETING_BYTES];
    const char *name = greeting->served_name ? greeting->served_name : greeting->model;
    const char *key = greeting->has_keys ? " -H \"Authorization: Bearer $KEY\"" : "";
    bool is_usual = strcmp(greeting->address, CLIENT_ADDRESS_DEFAULT) == 0;
    snprintf(url, sizeof url, "%s://%s", greeting->has_tls ? "https" : "http",
             door_to_open(greeting->http, open, sizeof open));
    terminal_text(&terminal, name, strlen(name));
    printf(" is served at %s/ (Ctrl-C ends it)\n", url);
    printf("  curl %s/v1/completions%s -H 'Content-Type: application/json' -d '{\"prompt\": \"Once "
           "upon a time\"}'\n",
           url, key);
    printf("  openai.OpenAI(base_url=\"%s/v1\", api_key=%s)\n", url,
           greeting->has_keys ? "KEY" : "\"none\"");
    printf("  outrider chat%s%s\n", is_usual ? "" : " --address ",
           is_usual ? "" : greeting->address);
    fflush(stdout);
}
