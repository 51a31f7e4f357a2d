/* VARIANTS before a function compiles its loops for several instruction sets, one of which is chosen
 * when the program is loaded (gcc's target_clones, glibc's ifunc). Nothing is contracted or reordered
 * (cmake/flags.cmake), so all give the same bits. Elsewhere, and under sanitizers, whose runtime is
 * not up when the choice is made, it is nothing. */
#pragma once

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VARIANTS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VARIANTS
#endif
