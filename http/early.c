/* Refusals of requests that libmicrohttpd does not hand over. 0.9.75 sends the head of such an
 * answer twice when it finds the fault after the last header (a Content-Length that is no
 * number, cookies that it has no room for), and clients take the second head for the body. It logs
 * a line before that, and then we answer in its place. */
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "http/internal.h"

int http_error_json(char *out, size_t size, const char *type, const char *text)
{
    return snprintf(out, size,
                    "{\"error\":{\"message\":\"%s\",\"type\":\"%s\",\"param\":null,"
                    "\"code\":null}}",
                    text, type);
}

/* An answer is a few hundred bytes, which fit into the buffer of a socket that has sent nothing;
 * what does not fit is lost with the connection. */
static void send_all(struct http_connection *c, const char *data, size_t len)
{
    const union MHD_ConnectionInfo *tls =
        MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    ssize_t sent = tls ? gnutls_record_send(tls->tls_session, data, len)
                       : send(c->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

/* Nothing of libmicrohttpd's own answer reaches the client, because it cannot send any more. */
static void refuse(struct http_connection *c, const char *status, const char *text)
{
    char json[512], answer[1024];
    int len = http_error_json(json, sizeof json, "invalid_request_error", text);
    int n = snprintf(answer, sizeof answer,
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
                     "Connection: close\r\n\r\n%s",
                     status, len, json);
    send_all(c, answer, (size_t)n);
    shutdown(c->fd, SHUT_WR);
    c->is_refused = true;
}

/* The one whose head is complete, while the handler has not been called: there is no other time at
 * which a connection is seen so. */
static bool is_between(const struct http_connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    bool is_awaited = !c->has_headers && c->deadline_us != INT64_MAX;
    return is_awaited && !c->is_refused && info && info->header_size > 0;
}

void http_early_note(struct http_server *server, const char *line)
{
    bool is_length = strstr(line, MHD_HTTP_HEADER_CONTENT_LENGTH) != NULL;
    if (!is_length && !strstr(line, "cookies")) return;
    monitor_enter(&server->monitor);
    struct http_connection *c = server->connections.next;
    while (c != &server->connections && !is_between(c))
        c = c->next;
    if (c != &server->connections) {
        if (is_length)
            refuse(c, "400 Bad Request", HTTP_BAD_LENGTH);
        else
            refuse(c, "431 Request Header Fields Too Large", "There are too many cookies.");
    }
    monitor_leave(&server->monitor);
}
