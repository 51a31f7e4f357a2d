/* Helpers that the operation tests of the CUDA backend share: both backends, copies to the device
 * and back, random numbers that repeat, and checks that are counted. The same source runs on a GPU
 * and on the emulated device. Without libcheck, because a GPU machine need not have it. */
#pragma once

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/backend/cuda/internal.cuh"

extern "C" {
#include "model/backend/cpu/cpu.h"
#include "model/numerics/numerics.h"
}

enum { RIG_SKIPPED = 77 };

struct rig {
    struct backend *cpu, *cuda;
    int n_checks, n_failed;
    bool is_small; /* for a run under a sanitizer */
    uint32_t state;
};

/* Prints the first failures; a failed check does not end the test. */
#define EXPECT(rig, condition, ...)                                \
    do {                                                           \
        (rig)->n_checks++;                                         \
        if (!(condition) && (rig)->n_failed++ < 20) {              \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
            printf(__VA_ARGS__);                                   \
            printf("\n");                                          \
        }                                                          \
    } while (0)

/* For a call that must succeed, because the rest of the test means nothing otherwise. */
#define MUST(call, err)                                                       \
    do {                                                                      \
        if ((call) != 0) {                                                    \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, (err).text); \
            exit(EXIT_FAILURE);                                               \
        }                                                                     \
    } while (0)

static inline struct backend *rig_cuda(bool records)
{
    struct error err = {};
    struct backend *be = NULL;
    struct backend_cuda_options options = {};
    options.no_graphs = !records;
    int rc = backend_cuda_open(&be, &options, &err);
    if (rc == ERR_UNSUPPORTED) {
        printf("skipped: %s\n", err.text);
        exit(RIG_SKIPPED);
    }
    MUST(rc, err);
    return be;
}

static inline void rig_open(struct rig *rig, int argc, char **argv)
{
    struct error err = {};
    struct backend_cpu_options options = {"auto", 1, WEIGHTS_BF16};
    *rig = {};
    rig->state = 12345;
    rig->is_small = argc > 1 && strcmp(argv[1], "--small") == 0;
    rig->cuda = rig_cuda(false);
    MUST(backend_cpu_open(&rig->cpu, &options, &err), err);
}

/* Prints how many checks failed and returns the exit status of the program. */
static inline int rig_close(struct rig *rig)
{
    rig->cuda->ops->close(rig->cuda);
    rig->cpu->ops->close(rig->cpu);
    printf("%d checks, %d failed\n", rig->n_checks, rig->n_failed);
    return rig->n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Uniform in (-1, 1). */
static inline float rig_number(struct rig *rig)
{
    rig->state = rig->state * 1664525u + 1013904223u;
    return (static_cast<float>(rig->state >> 8) + 0.5f) * 0x1p-23f - 1.0f;
}

static inline float *rig_numbers(struct rig *rig, size_t n, float scale)
{
    float *out = static_cast<float *>(malloc(n * sizeof *out + 1));
    for (size_t i = 0; i < n; i++) {
        out[i] = rig_number(rig) * scale;
    }
    return out;
}

/* Device memory of `bytes`; a copy of host unless NULL. */
static inline void *device_open(struct rig *rig, const void *host, size_t bytes)
{
    struct error err = {};
    void *data = NULL;
    MUST(backend_buffer(rig->cuda, &data, bytes, &err), err);
    if (host) rig->cuda->ops->upload(rig->cuda, data, host, bytes);
    return data;
}

static inline float *device_floats(struct rig *rig, const float *host, size_t n)
{
    return static_cast<float *>(device_open(rig, host, n * sizeof *host));
}

static inline void device_close(struct rig *rig, void *data)
{
    rig->cuda->ops->buffer_close(rig->cuda, data, 0);
}

/* Waits for the step; bytes is a multiple of 4. */
static inline void device_read(struct rig *rig, void *host, const void *data, size_t bytes)
{
    const float *got =
        rig->cuda->ops->read(rig->cuda, static_cast<const float *>(data), bytes / sizeof(float));
    if (!got) {
        struct error err = {};
        cuda_finish(backend_cuda_of(rig->cuda), &err);
        printf("reading from the device: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
    memcpy(host, got, bytes);
}

static inline void rig_begin(struct rig *rig, const struct backend_step *step)
{
    struct error err = {};
    bool replayed = false;
    MUST(rig->cuda->ops->begin(rig->cuda, step, &replayed, &err), err);
}

static inline void rig_end(struct rig *rig)
{
    struct error err = {};
    bool again = false;
    MUST(rig->cuda->ops->end(rig->cuda, &again, &err), err);
    EXPECT(rig, !again, "a step that was not recorded is to be run again");
}

/* |got - want| <= tolerance, and no NaN. */
static inline bool rig_near(float got, float want, float tolerance)
{
    return fabsf(got - want) <= tolerance;
}
