/* Stacks and the switch between them. */
#include "fiber.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

namespace
{

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __asan_unpoison_memory_region(void const volatile *address, size_t size);
#endif

#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
constexpr size_t stack_bytes = 256 * 1024;
#else
constexpr size_t stack_bytes = 64 * 1024;
#endif
/* The stride keeps the tops of stacks out of the same cache sets, because 32 lanes use them in
 * turn. */
constexpr size_t stride = stack_bytes + 7 * 64;
constexpr int n_stacks = 1024;
constexpr uint64_t canary = 0x0ddba11c0ffee123u;
constexpr int n_canaries = 8;

unsigned char *pool()
{
    static unsigned char *memory = [] {
        void *p = mmap(nullptr, stride * n_stacks, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            fprintf(stderr, "emulate: no memory for the stacks of %d threads\n", n_stacks);
            abort();
        }
        for (int i = 0; i < n_stacks; i++) {
            uint64_t *bottom =
                reinterpret_cast<uint64_t *>(static_cast<unsigned char *>(p) + size_t(i) * stride);
            for (int j = 0; j < n_canaries; j++)
                bottom[j] = canary;
        }
        return static_cast<unsigned char *>(p);
    }();
    return memory;
}

} // namespace

bool emulate_fiber_is_intact(int stack)
{
    const uint64_t *bottom = reinterpret_cast<uint64_t *>(pool() + size_t(stack) * stride);
    for (int i = 0; i < n_canaries; i++) {
        if (bottom[i] != canary) return false;
    }
    return true;
}

#ifdef EMULATE_UCONTEXT

void emulate_fiber_prepare(emulate_fiber *fiber, int stack, void (*entry)())
{
    constexpr size_t below = n_canaries * sizeof canary;
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = pool() + size_t(stack) * stride + below;
    fiber->context.uc_stack.ss_size = stride - below;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, entry, 0);
}

void emulate_fiber_switch(emulate_fiber *from, emulate_fiber *to)
{
    swapcontext(&from->context, &to->context);
}

#else

/* emulate_stack_switch(void **save, void *load): stores the callee-saved registers of the System V
 * ABI on the old stack and loads them from the new one; the compiler takes everything else as lost
 * by a call. */
extern "C" void emulate_stack_switch(void **save, void *load);
asm(".text\n"
    ".p2align 4\n"
    ".globl emulate_stack_switch\n"
    ".type emulate_stack_switch,@function\n"
    "emulate_stack_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size emulate_stack_switch,.-emulate_stack_switch\n");

void emulate_fiber_prepare(emulate_fiber *fiber, int stack, void (*entry)())
{
    uintptr_t top =
        reinterpret_cast<uintptr_t>(pool() + size_t(stack + 1) * stride) & ~uintptr_t(15);
    void **frame = reinterpret_cast<void **>(top) - 8;
#if defined(__SANITIZE_ADDRESS__)
    /* The entry of the stack's last user never returned, so its red zones are still there. */
    constexpr size_t entry_bytes = 4096;
    __asan_unpoison_memory_region(reinterpret_cast<void *>(top - entry_bytes), entry_bytes);
#endif
    for (int i = 0; i < 6; i++)
        frame[i] = nullptr;
    frame[6] = reinterpret_cast<void *>(entry); /* where `ret` jumps to */
    frame[7] = nullptr;                         /* entry's return address; keeps rsp at 8 mod 16 */
    fiber->stack_pointer = frame;
}

void emulate_fiber_switch(emulate_fiber *from, emulate_fiber *to)
{
    emulate_stack_switch(&from->stack_pointer, to->stack_pointer);
}

#endif
