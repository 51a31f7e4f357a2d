/* The choice of the kernels at run time. */
#include "model/backend/cpu/kernels/kernels.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "model/backend/cpu/kernels/step_check.h"

#ifdef OUTRIDER_X86
#include <cpuid.h>
#endif

/* The first feature that a variant needs and this CPU lacks; NULL: it can run here. */
typedef const char *lacks_fn(void);
/* True if this CPU can run a variant, but is faster with the next one. */
typedef bool is_slower_fn(void);

#ifdef OUTRIDER_X86

/* The compiler's name of a feature, which has to be a literal, and its name in /proc/cpuinfo. */
#define NEEDS(feature, shown) \
    if (!__builtin_cpu_supports(feature)) return (shown)

static const char *avx512fma_lacks(void)
{
    NEEDS("avx512f", "avx512f");
    NEEDS("avx512bw", "avx512bw");
    NEEDS("avx512vl", "avx512vl");
    NEEDS("avx512dq", "avx512dq");
    NEEDS("avx512vnni", "avx512_vnni");
    return NULL;
}

static const char *avx512_lacks(void)
{
    NEEDS("avx512bf16", "avx512_bf16");
    return avx512fma_lacks();
}

/* vdpbf16ps has half the rate of two fused steps on Intel's cores. */
static bool avx512_is_slower(void)
{
    return __builtin_cpu_is("intel");
}

/* clang 14 has no name to ask for f16c. */
static const char *avx2_lacks(void)
{
    unsigned eax, ebx, ecx = 0, edx;
    NEEDS("avx2", "avx2");
    NEEDS("fma", "fma");
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx >> 29 & 1 ? NULL : "f16c";
}

/* gcc 12 and clang 14 have no name to ask for vpdpbusd of 256 bits without AVX-512. */
static const char *avxvnni_lacks(void)
{
    unsigned eax = 0, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) || !(eax >> 4 & 1)) return "avx_vnni";
    return avx2_lacks();
}

#define FOR_X86(kernels, lacks, is_slower) "x86-64", &(kernels), (lacks), (is_slower)

#else

#define FOR_X86(kernels, lacks, is_slower) "x86-64", NULL, NULL, NULL

#endif

#ifdef OUTRIDER_AARCH64
#define FOR_AARCH64(kernels, lacks) "aarch64", &(kernels), (lacks), NULL
#else
#define FOR_AARCH64(kernels, lacks) "aarch64", NULL, NULL, NULL
#endif

/* The variants, the best first. A variant has its row in builds for other machines too, so that
 * every build knows its name. */
static const struct variant {
    const char *name;
    const char *machine;           /* that it is written for */
    const struct kernels *kernels; /* NULL: not in this build */
    lacks_fn *lacks;               /* NULL: every such machine can run it */
    is_slower_fn *is_slower;       /* NULL: never */
} variants[] = {
    {"avx512", FOR_X86(kernels_avx512, avx512_lacks, avx512_is_slower)},
    {"avx512fma", FOR_X86(kernels_avx512fma, avx512fma_lacks, NULL)},
    {"avxvnni", FOR_X86(kernels_avxvnni, avxvnni_lacks, NULL)},
    {"avx2", FOR_X86(kernels_avx2, avx2_lacks, NULL)},
    {"neon", FOR_AARCH64(kernels_neon, NULL)},
    {"plain", "any machine", &kernels_plain, NULL, NULL},
};

enum { N_VARIANTS = sizeof variants / sizeof *variants };
_Static_assert((int)N_VARIANTS <= (int)KERNELS_MAX, "tests have room for KERNELS_MAX variants");

static const char *lacking(const struct variant *v)
{
    return v->lacks ? v->lacks() : NULL;
}

static bool is_slower(const struct variant *v)
{
    return v->is_slower && v->is_slower();
}

static const char *forced_wrong;

void kernels_force_wrong(const char *name)
{
    forced_wrong = name;
}

/* Only of a variant that this CPU can run. */
static bool is_right(const struct variant *v)
{
    if (forced_wrong && strcmp(v->name, forced_wrong) == 0) return false;
    return step_check_passes(v->kernels->dot_step);
}

/* Returns the variant that auto takes. The last row can always run; kernels_find checks it as
 * well. */
static const struct variant *best(void)
{
    const struct variant *v = variants, *last = variants + N_VARIANTS - 1;
    while (v < last && (!v->kernels || lacking(v) || is_slower(v) || !is_right(v))) {
        v++;
    }
    return v;
}

const char *kernels_name(int i)
{
    return i < N_VARIANTS ? variants[i].name : NULL;
}

static void append(char *text, size_t size, const char *more)
{
    size_t len = strlen(text);
    snprintf(text + len, size - len, "%s", more);
}

void kernels_names(char *text, size_t size)
{
    snprintf(text, size, "auto");
    for (int i = 0; i < N_VARIANTS; i++) {
        append(text, size, i + 1 < N_VARIANTS ? ", " : " or ");
        append(text, size, variants[i].name);
    }
}

/* Why auto does not take a variant that is better by the table. */
static void append_reason(char *text, size_t size, const struct variant *v)
{
    append(text, size, v->name);
    if (lacking(v)) {
        append(text, size, " needs ");
        append(text, size, lacking(v));
    } else {
        append(text, size, is_slower(v) ? " is slower here" : " computes wrong bits here");
    }
}

void kernels_reason(char *text, size_t size, const char *name)
{
    bool any = strcmp(name, "auto") == 0;
    const struct variant *taken = best();
    snprintf(text, size, "%s", any ? "" : "asked for");
    for (const struct variant *v = variants; any && v < taken; v++) {
        if (!v->kernels) continue;
        append(text, size, *text ? ", " : "");
        append_reason(text, size, v);
    }
    if (!*text) append(text, size, "the best of this build");
}

static int forced_hops;

void kernels_force_hops(int hops)
{
    forced_hops = hops;
}

bool kernels_two_hops(void)
{
#ifdef OUTRIDER_X86
    return forced_hops ? forced_hops == 2 : __builtin_cpu_is("intel");
#else
    return forced_hops == 2;
#endif
}

int kernels_find(const struct kernels **kernels, const char *name, struct error *err)
{
    char names[KERNELS_TEXT_BYTES];
    const struct variant *v = variants, *end = variants + N_VARIANTS;
    *kernels = NULL;
    if (strcmp(name, "auto") == 0) name = best()->name;
    while (v < end && strcmp(name, v->name) != 0) {
        v++;
    }
    if (v == end) {
        kernels_names(names, sizeof names);
        return error_set(err, ERR_ARGUMENT, "kernels '%s' are not known, only %s", name, names);
    }
    if (!v->kernels) {
        return error_set(err, ERR_UNSUPPORTED, "kernels '%s' need a build for %s", name,
                         v->machine);
    }
    if (lacking(v)) {
        return error_set(err, ERR_UNSUPPORTED,
                         "kernels '%s' need %s, which this CPU lacks; auto takes %s", name,
                         lacking(v), best()->name);
    }
    if (!is_right(v)) {
        return error_set(err, ERR_UNSUPPORTED,
                         "kernels '%s' compute wrong bits on this CPU: a dot step differs from its "
                         "definition; %s%s",
                         name, best() == v ? "no others are left" : "auto takes ",
                         best() == v ? "" : best()->name);
    }
    *kernels = v->kernels;
    return 0;
}
