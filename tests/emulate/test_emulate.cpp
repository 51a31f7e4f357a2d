/* The emulator's test: kernels with known results, and faults that it must find, each in a child
 * process. */
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "test_emulate.h"

namespace
{

/* --- Exchanges --- */

__global__ void __launch_bounds__(256) sum_kernel(const float *__restrict__ in, float *out, int n)
{
    __shared__ float parts[8];
    float sum = 0;
    for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) {
        sum += __ldg(&in[blockIdx.x * unsigned(n) + unsigned(i)]);
    }
    for (int bits = 16; bits; bits /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, bits);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < 8 ? parts[threadIdx.x] : 0;
        for (unsigned delta = 4; delta; delta /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, delta);
        if (threadIdx.x == 0) out[blockIdx.x] = sum;
    }
}

void sums_of_blocks_are_right()
{
    constexpr int n = 1000, n_blocks = 3;
    std::vector<float> in(n * n_blocks);
    for (size_t i = 0; i < in.size(); i++)
        in[i] = float(i % 17);
    float *device = device_of(in.data(), in.size()), *sums = device_of<float>(nullptr, n_blocks);
    cudaLaunchConfig_t config = config_of(n_blocks, 256);
    CHECK_CUDA(cudaLaunchKernelEx(&config, sum_kernel, device, sums, n));
    float out[n_blocks];
    host_of(out, sums, n_blocks);
    for (int b = 0; b < n_blocks; b++) {
        float expected = 0;
        for (int i = 0; i < n; i++)
            expected += in[size_t(b * n + i)];
        CHECK(out[b] == expected); /* small integers: exact in any order */
    }
    CHECK_CUDA(cudaFree(device));
}

template <class T> __global__ void shuffle_kernel(T *out)
{
    int lane = int(threadIdx.x) % 32;
    T mine = T(threadIdx.x) + T(0.5) + T(1ull << 20);
    T *row = out + threadIdx.x * 5;
    row[0] = __shfl_sync(0xffffffffu, mine, (lane + 5) % 32);
    row[1] = __shfl_sync(0xffffffffu, mine, 1, 8);
    row[2] = __shfl_up_sync(0xffffffffu, mine, 3, 16);
    row[3] = __shfl_down_sync(0xffffffffu, mine, 2, 4);
    if (lane < 8)
        row[4] = __shfl_xor_sync(0xffu, mine, 3);
    else if (lane >= 24)
        row[4] = __shfl_xor_sync(0xff000000u, mine, 4);
    else
        row[4] = mine;
}

template <class T> void shuffles_read_the_named_lane()
{
    constexpr int n = 64;
    T out[n * 5], *device = device_of<T>(nullptr, n * 5);
    cudaLaunchConfig_t config = config_of(1, n);
    CHECK_CUDA(cudaLaunchKernelEx(&config, shuffle_kernel<T>, device));
    host_of(out, device, n * 5);
    for (int i = 0; i < n; i++) {
        int lane = i % 32, first = i - lane;
        int sources[5] = {(lane + 5) % 32, lane / 8 * 8 + 1, lane % 16 >= 3 ? lane - 3 : lane,
                          lane % 4 < 2 ? lane + 2 : lane,
                          lane < 8     ? lane ^ 3
                          : lane >= 24 ? lane ^ 4
                                       : lane};
        for (int j = 0; j < 5; j++) {
            T expected = T(first + sources[j]) + T(0.5) + T(1ull << 20);
            CHECK(out[i * 5 + j] == expected);
        }
    }
}

__global__ void vote_kernel(unsigned *out)
{
    unsigned x = threadIdx.x, *row = out + 6 * (x + blockDim.x * threadIdx.y);
    row[0] = __ballot_sync(0xffffffffu, x % 3 == 0);
    row[1] = unsigned(__any_sync(0xffffffffu, x == 9 && threadIdx.y == 1));
    row[2] = unsigned(__all_sync(0xffffffffu, x < 40 && threadIdx.y == 0));
    row[3] = unsigned(__syncthreads_count(x % 2 == 0));
    row[4] = unsigned(__syncthreads_or(x == 0));
    row[5] = unsigned(__syncthreads_and(x == 0));
}

/* 20 x 4 threads: warps cross rows, and the last one has 16 lanes. */
void votes_count_the_threads_there_are()
{
    unsigned out[80 * 6], *device = device_of<unsigned>(nullptr, 80 * 6);
    cudaLaunchConfig_t config = config_of(1, dim3(20, 4));
    CHECK_CUDA(cudaLaunchKernelEx(&config, vote_kernel, device));
    host_of(out, device, 80 * 6);
    for (int i = 0; i < 80; i++) {
        unsigned ballot = 0;
        for (int j = i / 32 * 32; j < std::min(i / 32 * 32 + 32, 80); j++) {
            if (j % 20 % 3 == 0) ballot |= 1u << j % 32;
        }
        CHECK(out[i * 6] == ballot);
        CHECK(out[i * 6 + 1] == (i < 32)); /* thread (9, 1) is number 29 */
        CHECK(out[i * 6 + 2] == 0);        /* even the first warp has threads of row 1 */
        CHECK(out[i * 6 + 3] == 40 && out[i * 6 + 4] == 1 && out[i * 6 + 5] == 0);
    }
}

__global__ void atomic_kernel(int *sum, unsigned *most, float *floats, unsigned long long *bits,
                              int *order)
{
    CUDA_DYNAMIC_SHARED(int, counter);
    if (threadIdx.x == 0) *counter = 0;
    __syncthreads();
    atomicAdd(counter, 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(sum, *counter);
    atomicMax(most, threadIdx.x);
    atomicAdd(floats, 0.5f);
    atomicOr(bits, 1ull << threadIdx.x);
    int seen = *order, expected;
    do {
        expected = seen;
        seen = atomicCAS(order, expected, expected + 2);
    } while (seen != expected);
}

void atomics_add_up()
{
    int zero = 0, *sum = device_of(&zero, 1), *order = device_of(&zero, 1);
    unsigned most_host = 0, *most = device_of(&most_host, 1);
    float float_host = 0, *floats = device_of(&float_host, 1);
    unsigned long long bits_host = 0, *bits = device_of(&bits_host, 1);
    cudaLaunchConfig_t config = config_of(dim3(2, 3, 2), 64, sizeof(int));
    CHECK_CUDA(cudaLaunchKernelEx(&config, atomic_kernel, sum, most, floats, bits, order));
    int sum_host, order_host;
    host_of(&sum_host, sum, 1);
    host_of(&most_host, most, 1);
    host_of(&float_host, floats, 1);
    host_of(&bits_host, bits, 1);
    host_of(&order_host, order, 1);
    CHECK(sum_host == 12 * 64 && most_host == 63 && float_host == 12 * 32);
    CHECK(bits_host == ~0ull && order_host == 2 * 12 * 64);
}

/* --- Tensor cores and asynchronous copies --- */

uint16_t bf16_of(float x)
{
    return uint16_t(__float_as_uint(x) >> 16);
}

/* A [16][16] and B [8][16] (columns) as bf16, D [16][8]; loads as a real kernel does. */
__global__ void mma_kernel(const uint16_t *a, const uint16_t *b, float *d)
{
    CUDA_DYNAMIC_SHARED(uint16_t, tile);
    unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
    copy_async_16(&tile[lane * 8], &a[lane * 8]);
    copy_async_commit();
    copy_async_16(&tile[256 + lane * 8], &b[lane % 16 * 8], lane < 16);
    copy_async_commit();
    copy_async_wait<0>();
    __syncwarp();
    const uint32_t *a32 = reinterpret_cast<const uint32_t *>(tile), *b32 = a32 + 128;
    uint32_t fragment_a[4] = {a32[g * 8 + t], a32[(g + 8) * 8 + t], a32[g * 8 + t + 4],
                              a32[(g + 8) * 8 + t + 4]};
    uint32_t fragment_b[2] = {b32[g * 8 + t], b32[g * 8 + t + 4]};
    float sums[4];
    for (unsigned i = 0; i < 4; i++)
        sums[i] = d[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    mma_bf16_16x8x16(sums, fragment_a, fragment_b);
    for (unsigned i = 0; i < 4; i++)
        d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
    CHECK(lane < 16 || tile[256 + lane * 8 + 7] == 0);
}

void mma_is_a_plain_product()
{
    uint16_t a[256], b[128];
    float d[128], expected[128];
    for (int i = 0; i < 256; i++)
        a[i] = bf16_of(float(i * 37 % 101) / 64 - 0.7f);
    for (int i = 0; i < 128; i++)
        b[i] = bf16_of(float(i * 53 % 89) / 32 - 1.3f);
    for (int i = 0; i < 128; i++)
        d[i] = expected[i] = float(i) / 3;
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 8; j++) {
            for (int k = 0; k < 16; k++) {
                expected[i * 8 + j] += __uint_as_float(uint32_t(a[i * 16 + k]) << 16) *
                                       __uint_as_float(uint32_t(b[j * 16 + k]) << 16);
            }
        }
    }
    uint16_t *a_device = device_of(a, 256), *b_device = device_of(b, 128);
    float *d_device = device_of(d, 128);
    cudaLaunchConfig_t config = config_of(1, 32, 1024);
    CHECK_CUDA(cudaLaunchKernelEx(&config, mma_kernel, a_device, b_device, d_device));
    host_of(d, d_device, 128);
    CHECK(memcmp(d, expected, sizeof d) == 0);
    CHECK_CUDA(cudaFree(a_device));
    CHECK_CUDA(cudaFree(b_device));
}

__global__ void copy_kernel(const uint32_t *in, uint32_t *out)
{
    CUDA_DYNAMIC_SHARED(uint32_t, words);
    for (int i = 0; i < 3; i++) {
        copy_async_16(&words[4 * i], &in[4 * i]);
        copy_async_commit();
    }
    copy_async_wait<1>();
    for (int i = 0; i < 12; i++)
        out[i] = words[i];
}

void copies_arrive_when_waited_for()
{
    uint32_t words[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, out[12];
    uint32_t *in_device = device_of(words, 12), *out_device = device_of<uint32_t>(nullptr, 12);
    cudaLaunchConfig_t config = config_of(1, 1, 64);
    CHECK_CUDA(cudaLaunchKernelEx(&config, copy_kernel, in_device, out_device));
    host_of(out, out_device, 12);
    for (int i = 0; i < 12; i++)
        CHECK(out[i] == (i < 8 ? words[i] : 0xffffffffu));
    CHECK_CUDA(cudaFree(in_device));
}

/* The last thread of all fills a ring of two stages by bulk copies; the first warp adds up what
 * comes. Phases of both parities are waited for, and stages are used again. */
__global__ void bulk_kernel(const uint32_t *in, uint32_t *out, int n)
{
    CUDA_DYNAMIC_SHARED(uint32_t, ring);
    __shared__ uint64_t full[2], empty[2];
    uint32_t sum = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], 32);
        }
        barriers_are_ready();
    }
    __syncthreads();
    for (int i = 0; i < n; i++) {
        int stage = i % 2, phase = i / 2 % 2;
        if (threadIdx.x == blockDim.x - 1) {
            barrier_wait(&empty[stage], phase ^ 1);
            barrier_expect(&full[stage], 128);
            bulk_copy(&ring[32 * stage], in + 32 * i, 64, &full[stage]);
            bulk_copy(&ring[32 * stage + 16], in + 32 * i + 16, 64, &full[stage]);
        } else if (threadIdx.x < 32) {
            barrier_wait(&full[stage], phase);
            sum += ring[32 * stage + int(threadIdx.x)] << i;
            barrier_arrive(&empty[stage]);
        }
    }
    if (threadIdx.x < 32) out[threadIdx.x] = sum;
}

void bulk_copies_fill_a_ring()
{
    constexpr int n = 5;
    uint32_t words[32 * n], out[32];
    for (unsigned i = 0; i < 32 * n; i++)
        words[i] = i * i;
    uint32_t *in_device = device_of(words, 32 * n), *out_device = device_of<uint32_t>(nullptr, 32);
    cudaLaunchConfig_t config = config_of(2, 96, 256);
    CHECK_CUDA(cudaLaunchKernelEx(&config, bulk_kernel, in_device, out_device, n));
    host_of(out, out_device, 32);
    for (unsigned i = 0; i < 32; i++) {
        uint32_t sum = 0;
        for (unsigned j = 0; j < n; j++)
            sum += words[32 * j + i] << j;
        CHECK(out[i] == sum);
    }
    CHECK_CUDA(cudaFree(in_device));
}

/* A bulk copy arrives when its barrier is waited for, and no sooner. */
__global__ void late_kernel(const uint32_t *in, uint32_t *out)
{
    CUDA_DYNAMIC_SHARED(uint32_t, words);
    __shared__ uint64_t bars[2];
    for (int i = 0; i < 2; i++) {
        barrier_init(&bars[i], 1);
        barrier_expect(&bars[i], 16);
        bulk_copy(&words[4 * i], &in[4 * i], 16, &bars[i]);
    }
    barrier_wait(&bars[1], 0);
    out[0] = words[0];
    out[1] = words[4];
    barrier_wait(&bars[0], 0);
    out[2] = words[0];
}

void bulk_copies_arrive_when_waited_for()
{
    uint32_t words[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[3];
    uint32_t *in_device = device_of(words, 8), *out_device = device_of<uint32_t>(nullptr, 3);
    cudaLaunchConfig_t config = config_of(1, 1, 32);
    CHECK_CUDA(cudaLaunchKernelEx(&config, late_kernel, in_device, out_device));
    host_of(out, out_device, 3);
    CHECK(out[0] == 0xffffffffu && out[1] == 5 && out[2] == 1);
    CHECK_CUDA(cudaFree(in_device));
}

/* Thread i reads what thread i - 1 has written, with no barrier between. */
__global__ void racing_kernel(int *out)
{
    __shared__ int values[64];
    values[threadIdx.x] = -1;
    __syncthreads();
    values[threadIdx.x] = int(threadIdx.x);
    out[threadIdx.x] = values[(threadIdx.x + 63) % 64];
}

/* Thread 0 waits for the last thread, which is in another warp and waits for thread 0's first
 * word. */
__global__ void spinning_kernel(volatile int *words)
{
    if (threadIdx.x == 0) {
        words[0] = 1;
        while (words[1] != 2)
            __nanosleep(100);
        words[0] = 3;
    } else if (threadIdx.x == blockDim.x - 1) {
        while (words[0] != 1)
            __nanosleep(100);
        words[1] = 2;
    }
}

void spinning_threads_give_way()
{
    int words[2] = {0, 0}, *device = device_of(words, 2);
    cudaLaunchConfig_t config = config_of(1, 72);
    CHECK_CUDA(cudaLaunchKernelEx(&config, spinning_kernel, static_cast<volatile int *>(device)));
    host_of(words, device, 2);
    CHECK(words[0] == 3 && words[1] == 2);
}

void one_of_two_orders_shows_a_race()
{
    const char *before = getenv("EMULATED_ORDER"), *orders[] = {"forward", "backward"};
    std::string kept = before ? before : "";
    int out[2][64];
    cudaLaunchConfig_t config = config_of(1, 64);
    for (int i = 0; i < 2; i++) {
        int *device = device_of<int>(nullptr, 64);
        setenv("EMULATED_ORDER", orders[i], 1);
        CHECK_CUDA(cudaLaunchKernelEx(&config, racing_kernel, device));
        host_of(out[i], device, 64);
    }
    setenv("EMULATED_ORDER", kept.c_str(), 1);
    CHECK(out[0][10] == 9 && out[1][10] == -1);
}

/* --- Faults --- */

enum fault_case {
    BARRIER_RETURNED,
    BARRIER_ELSEWHERE,
    LANES_MISSING,
    NOT_IN_MASK,
    SHARED_OVERRUN,
    SHARED_UNDERRUN,
    DEVICE_OVERRUN,
    COPY_UNALIGNED,
    NO_DEPENDENCY_WAIT,
    BULK_UNALIGNED,
    BULK_UNFINISHED,
    BULK_NEVER_ASKED_FOR,
    BARRIER_NOT_MADE,
    BARRIER_TOO_MANY
};

void faulty_bulk(fault_case which, unsigned char *memory, unsigned char *shared)
{
    uint64_t *bar = reinterpret_cast<uint64_t *>(shared + 64);
    if (which != BARRIER_NOT_MADE) barrier_init(bar, 2);
    barrier_expect(bar, 16);
    if (which == BULK_UNALIGNED) bulk_copy(shared, memory, 24, bar);
    if (which == BULK_UNFINISHED) bulk_copy(shared, memory, 16, bar);
    barrier_arrive(bar);
    if (which == BARRIER_TOO_MANY) barrier_arrive(bar);
    if (which == BULK_NEVER_ASKED_FOR) barrier_wait(bar, 0);
}

__global__ void faulty_kernel(fault_case which, unsigned char *memory)
{
    CUDA_DYNAMIC_SHARED(unsigned char, shared);
    unsigned x = threadIdx.x;
    if (which == BARRIER_RETURNED && x == 40) return;
    if (which == BARRIER_ELSEWHERE && x < 32) __syncthreads();
    if (which == LANES_MISSING && x % 32 != 7) __shfl_sync(0xffffffffu, x, 0);
    if (which == NOT_IN_MASK) __syncwarp(0xffff);
    if (which == SHARED_OVERRUN && x == 5) shared[100] = 0;
    if (which == SHARED_UNDERRUN && x == 5) shared[-1] = 0;
    if (which == DEVICE_OVERRUN && blockIdx.x == 1) memory[64 + x] = 0;
    if (which == COPY_UNALIGNED) copy_async_16(shared + 8, memory);
    if (which >= BULK_UNALIGNED && x == 0) faulty_bulk(which, memory, shared);
    __syncthreads();
}

/* Runs the case in a child process, which must abort with the text on stderr. */
void fault_is_reported(fault_case which, const char *text)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(ends[1], 2);
        unsigned char *memory = device_of<unsigned char>(nullptr, 64);
        cudaLaunchConfig_t config = config_of(2, 64, 100);
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = which == NO_DEPENDENCY_WAIT;
        config.attrs = &early;
        config.numAttrs = 1;
        cudaLaunchKernelEx(&config, faulty_kernel, which, memory);
        cudaDeviceSynchronize();
        _exit(0);
    }
    close(ends[1]);
    std::string report;
    char buf[4096];
    for (ssize_t n; (n = read(ends[0], buf, sizeof buf)) > 0;)
        report.append(buf, size_t(n));
    close(ends[0]);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    bool is_found = WIFSIGNALED(status) && report.find(text) != std::string::npos;
    if (!is_found) fprintf(stderr, "case %d, wanted \"%s\":\n%s", which, text, report.c_str());
    CHECK(is_found);
}

/* --- Host threads and speed --- */

void host_threads_take_turns()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back(sums_of_blocks_are_right);
    for (std::thread &t : threads)
        t.join();
}

__global__ void exchange_kernel(float *out, int n)
{
    float x = float(threadIdx.x);
    for (int i = 0; i < n; i++)
        x += __shfl_xor_sync(0xffffffffu, x, 1 + i % 31);
    out[threadIdx.x] = x;
}

/* Only printed, because machines differ. */
void exchanges_are_fast()
{
    constexpr int n = 20000;
    float *out = device_of<float>(nullptr, 256);
    cudaLaunchConfig_t config = config_of(1, 256);
    auto start = std::chrono::steady_clock::now();
    CHECK_CUDA(cudaLaunchKernelEx(&config, exchange_kernel, out, n));
    CHECK_CUDA(cudaDeviceSynchronize());
    double ns =
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    printf("%.0f ns for an exchange of a warp\n", ns / n / 8);
    CHECK_CUDA(cudaFree(out));
}

} // namespace

int main()
{
    sums_of_blocks_are_right();
    shuffles_read_the_named_lane<int>();
    shuffles_read_the_named_lane<unsigned>();
    shuffles_read_the_named_lane<float>();
    shuffles_read_the_named_lane<double>();
    shuffles_read_the_named_lane<uint64_t>();
    votes_count_the_threads_there_are();
    atomics_add_up();
    mma_is_a_plain_product();
    copies_arrive_when_waited_for();
    bulk_copies_fill_a_ring();
    bulk_copies_arrive_when_waited_for();
    one_of_two_orders_shows_a_race();
    spinning_threads_give_way();
    fault_is_reported(BARRIER_RETURNED, "thread (40, 0, 0) has returned");
    fault_is_reported(BARRIER_ELSEWHERE, "different barriers");
    fault_is_reported(LANES_MISSING, "waits in a shuffle at");
    fault_is_reported(NOT_IN_MASK, "a lane is not in its own mask");
    fault_is_reported(SHARED_OVERRUN, "outside of its dynamic shared memory");
    fault_is_reported(SHARED_UNDERRUN, "outside of its dynamic shared memory");
    fault_is_reported(DEVICE_OVERRUN, "past the 64 bytes of device memory");
    fault_is_reported(COPY_UNALIGNED, "not a multiple of 16");
    fault_is_reported(NO_DEPENDENCY_WAIT, "no thread has called grid_dependency_wait");
    fault_is_reported(BULK_UNALIGNED, "bulk_copy of bytes or addresses");
    fault_is_reported(BULK_UNFINISHED, "the block has ended before its bulk copies");
    fault_is_reported(BULK_NEVER_ASKED_FOR, "waits for a barrier in shared memory at");
    fault_is_reported(BARRIER_NOT_MADE, "a barrier that was never initialised");
    fault_is_reported(BARRIER_TOO_MANY, "more threads arrive than a barrier was made for");
    host_threads_take_turns();
    test_host();
    exchanges_are_fast();
    return 0;
}
