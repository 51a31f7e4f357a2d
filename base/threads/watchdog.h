/* Bounds work that cannot be interrupted from inside, such as a collective: if the watchdog is not
 * disarmed in time, a function runs on its thread. Time in which the watchdog itself cannot run
 * does not count, because the work could not run either: the virtual machine was paused, for
 * example while it moved to another host, or the process was stopped. Locked inside. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct watchdog;

typedef void watchdog_fn(void *arg);

int watchdog_open(struct watchdog **dog, watchdog_fn *on_late, void *arg, struct error *err);
/* Accepts NULL. */
void watchdog_close(struct watchdog *dog);

/* Until watchdog_disarm: on_late runs once, limit_us microseconds from now. Arming again begins
 * anew. */
void watchdog_arm(struct watchdog *dog, int64_t limit_us);
void watchdog_disarm(struct watchdog *dog);
/* Shortens the time that is left to limit_us microseconds, and never lengthens it; does nothing
 * when disarmed. */
void watchdog_hasten(struct watchdog *dog, int64_t limit_us);
/* False once on_late has begun. */
bool watchdog_is_armed(struct watchdog *dog);
