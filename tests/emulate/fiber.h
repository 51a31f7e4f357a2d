/* Fibers: stacks that take turns on one OS thread. On x86-64 a switch is a dozen instructions,
 * elsewhere ucontext does it. Stacks are pooled and never freed. */
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(EMULATE_UCONTEXT)
#define EMULATE_UCONTEXT
#endif

#ifdef EMULATE_UCONTEXT
#include <ucontext.h>
struct emulate_fiber {
    ucontext_t context;
};
#else
struct emulate_fiber {
    void *stack_pointer;
};
#endif

/* The fiber starts in `entry`, which must never return, on stack number `stack`. */
void emulate_fiber_prepare(emulate_fiber *fiber, int stack, void (*entry)());
void emulate_fiber_switch(emulate_fiber *from, emulate_fiber *to);
/* False: the stack has overflown. */
bool emulate_fiber_is_intact(int stack);
