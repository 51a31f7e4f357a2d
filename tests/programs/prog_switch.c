/* ctest: libs=base */
/* A switch between network namespaces whose links can be slow, lossy or cut, for kernels without
 * netem. Each port is a TAP device that the program makes in the namespace of a process; the other
 * ends of all of them are here. A frame is read from one device, kept for the delay, and written to
 * another one. Frames of up to 64 KiB pass in one piece (the kernel's offloads stay on), so the
 * loss counts for what a socket hands over at once, not for each 1500 bytes.
 *
 * Usage: prog_switch PID:DEVICE...         port i has the address 02:4f:52:00:00:<i>
 *
 * Lines of the standard input change the links and are answered with "ok":
 *     delay US          from one port to another, in one direction
 *     loss RATIO        0.001 is one frame in a thousand
 *     cut I J           drops what goes between the two ports; cut I I: between I and everybody
 *     heal              ends all cuts
 *     count             is answered with the frames that were passed on and those that were lost
 * It ends with its standard input. */
#define _GNU_SOURCE /* setns, and ifreq of net/if.h */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    PORTS_MAX = 8,
    FRAME_BYTES = 66 << 10,
    VNET_HEADER_BYTES = 10, /* struct virtio_net_hdr, which the kernel wants back as it gave it */
    WAITING_MAX = 4096,
    READS_MAX = 32, /* of a port before the others have their turn */
    LINE_BYTES = 256
};

struct frame {
    int64_t due_ns;
    int port; /* that it goes to; -1 = to all but `from` */
    int from;
    size_t len;
    uint8_t *data;
};

static struct {
    int fds[PORTS_MAX], n_ports, timer;
    bool is_cut[PORTS_MAX][PORTS_MAX];
    int64_t delay_ns;
    double loss;
    uint64_t coin;
    long long n_passed, n_lost;
    struct frame waiting[WAITING_MAX]; /* a ring, in the order of arrival */
    int first, n_waiting;
} sw = {.coin = 88172645463325252u};

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("prog_switch: ", stderr);
    vfprintf(stderr, format, args);
    fprintf(stderr, ": %s\n", strerror(errno));
    va_end(args);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void make_device(int fd, const char *device)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    int header = VNET_HEADER_BYTES;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    if (ioctl(fd, TUNSETIFF, &request)) fail("cannot make the device %s", device);
    if (ioctl(fd, TUNSETVNETHDRSZ, &header)) fail("%s has no header of %d bytes", device, header);
    /* Without offloads it works too, but slower. */
    ioctl(fd, TUNSETOFFLOAD, (unsigned long)(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6));
}

/* The device belongs to the namespace in which /dev/net/tun was opened. */
static int open_port(const char *where)
{
    char path[64];
    const char *colon = strchr(where, ':');
    if (!colon) fail("%s: expected PID:DEVICE", where);
    snprintf(path, sizeof path, "/proc/%d/ns/net", atoi(where));
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET)) fail("cannot enter %s", path);
    close(space);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) fail("cannot open /dev/net/tun");
    make_device(fd, colon + 1);
    return fd;
}

static bool is_lost(void)
{
    sw.coin ^= sw.coin << 13;
    sw.coin ^= sw.coin >> 7;
    sw.coin ^= sw.coin << 17;
    return (double)(sw.coin >> 11) * 0x1p-53 < sw.loss;
}

static void write_to(int port, const struct frame *frame)
{
    if (sw.is_cut[frame->from][port] || write(sw.fds[port], frame->data, frame->len) < 0) {
        sw.n_lost++;
    } else {
        sw.n_passed++;
    }
}

static void deliver(const struct frame *frame)
{
    for (int i = 0; i < sw.n_ports; i++) {
        if (frame->port == i || (frame->port < 0 && frame->from != i)) write_to(i, frame);
    }
}

/* The port of the address that a frame is for; -1 for all. */
static int port_of(const uint8_t *frame)
{
    static const uint8_t ours[] = {0x02, 0x4f, 0x52, 0, 0};
    const uint8_t *address = frame + VNET_HEADER_BYTES;
    bool is_ours = memcmp(address, ours, sizeof ours) == 0 && address[5] < sw.n_ports;
    return is_ours ? address[5] : -1;
}

static void set_timer(void)
{
    struct itimerspec at = {0};
    if (sw.n_waiting) {
        int64_t due_ns = sw.waiting[sw.first].due_ns;
        at.it_value.tv_sec = due_ns / 1000000000;
        at.it_value.tv_nsec = due_ns % 1000000000;
    }
    timerfd_settime(sw.timer, TFD_TIMER_ABSTIME, &at, NULL);
}

static void deliver_due(void)
{
    while (sw.n_waiting && sw.waiting[sw.first].due_ns <= now_ns()) {
        struct frame *frame = &sw.waiting[sw.first];
        deliver(frame);
        free(frame->data);
        sw.first = (sw.first + 1) % WAITING_MAX;
        sw.n_waiting--;
    }
    set_timer();
}

static void keep(const struct frame *frame)
{
    struct frame kept = *frame;
    kept.data = malloc(frame->len);
    if (!kept.data || sw.n_waiting == WAITING_MAX) {
        free(kept.data);
        sw.n_lost++;
        return;
    }
    memcpy(kept.data, frame->data, frame->len);
    sw.waiting[(sw.first + sw.n_waiting++) % WAITING_MAX] = kept;
}

static void take_frames(int from)
{
    static uint8_t data[FRAME_BYTES];
    for (int i = 0; i < READS_MAX; i++) {
        ssize_t len = read(sw.fds[from], data, sizeof data);
        if (len <= VNET_HEADER_BYTES) return;
        const struct frame frame = {.due_ns = now_ns() + sw.delay_ns,
                                    .port = port_of(data),
                                    .from = from,
                                    .len = (size_t)len,
                                    .data = data};
        if (sw.loss > 0 && is_lost()) {
            sw.n_lost++;
        } else if (sw.delay_ns || sw.n_waiting) {
            keep(&frame);
        } else {
            deliver(&frame);
        }
    }
}

static void cut(int a, int b)
{
    if (a < 0 || b < 0 || a >= sw.n_ports || b >= sw.n_ports) fail("no such port");
    for (int i = 0; i < sw.n_ports; i++) {
        if (a == b || i == b) sw.is_cut[a][i] = sw.is_cut[i][a] = true;
    }
}

static void obey(const char *line)
{
    double value;
    int a, b;
    if (sscanf(line, "delay %lf", &value) == 1) {
        sw.delay_ns = (int64_t)(value * 1000);
    } else if (sscanf(line, "loss %lf", &value) == 1) {
        sw.loss = value;
    } else if (sscanf(line, "cut %d %d", &a, &b) == 2) {
        cut(a, b);
    } else if (strncmp(line, "heal", 4) == 0) {
        memset(sw.is_cut, 0, sizeof sw.is_cut);
    } else if (strncmp(line, "count", 5) == 0) {
        printf("%lld %lld\n", sw.n_passed, sw.n_lost);
        return;
    } else {
        fail("'%s' is no command", line);
    }
    puts("ok");
}

/* One command at a time comes, because each is answered. */
static void take_command(void)
{
    char line[LINE_BYTES];
    ssize_t len = read(STDIN_FILENO, line, sizeof line - 1);
    if (len <= 0) exit(0);
    line[len] = '\0';
    obey(line);
    fflush(stdout);
}

static void run(void)
{
    struct pollfd polled[PORTS_MAX + 2];
    int n = sw.n_ports;
    for (int i = 0; i < n; i++) {
        polled[i] = (struct pollfd){.fd = sw.fds[i], .events = POLLIN};
    }
    polled[n] = (struct pollfd){.fd = sw.timer, .events = POLLIN};
    polled[n + 1] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        if (poll(polled, (nfds_t)n + 2, -1) < 0 && errno != EINTR) fail("poll");
        for (int i = 0; i < n; i++) {
            if (polled[i].revents & POLLIN) take_frames(i);
        }
        deliver_due();
        if (polled[n + 1].revents) take_command();
    }
}

int main(int argc, char **argv)
{
    const struct sched_param priority = {.sched_priority = 1};
    if (argc < 3 || argc > PORTS_MAX + 1) fail("expected 2 to %d of PID:DEVICE", PORTS_MAX);
    for (int i = 1; i < argc; i++) {
        sw.fds[sw.n_ports++] = open_port(argv[i]);
    }
    sw.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (sw.timer < 0) fail("no timer");
    /* Ranks that spin would make frames wait for a core; where that is not allowed they do. */
    sched_setscheduler(0, SCHED_FIFO, &priority);
    puts("ok");
    fflush(stdout);
    run();
}
