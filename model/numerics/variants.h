/* VARIANTS in front of a function compiles its loops for several instruction sets, one of which is
 * chosen when the program is loaded (gcc's target_clones, glibc's ifunc). Nothing is contracted or
 * reordered (cmake/flags.cmake), so all of them give the same bits. With other compilers or
 * libraries, and under sanitizers, whose runtime is not ready when the choice is made, it is
 * empty. */
#pragma once

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VARIANTS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VARIANTS
#endif
