/* Streams, events, graphs. Work that is given to a stream waits there and runs as late as CUDA
 * allows: when some thread synchronises with it. Host code that forgets to wait then reads wrong
 * data every time, and host code that reuses a pinned buffer too early sends the wrong bytes.
 * EMULATED_STREAMS=eager runs everything at once instead. The thread that synchronises does all the
 * work, with the lock held, so work must not wait for another host thread.
 *
 * A capture keeps the work of its streams in the order of the calls, which is one order that the
 * dependencies allow. Arguments are copied when the call is made, as CUDA does. While
 * EMULATED_GRAPHS is "refused" there is no memory for a graph that could be launched. */
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "internal.h"

struct capture {
    CUstream_st *origin;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool is_lost;
    std::vector<emulate_work> nodes;
};

struct CUstream_st {
    bool is_blocking; /* waits for the legacy stream, which waits for it in turn */
    std::deque<emulate_work> queue;
    capture *captured_by;
    uint64_t n_given;  /* while capturing: work and joins */
    uint64_t n_joined; /* of these, what the origin has waited for */
};

struct event_record { /* one call of cudaEventRecord; work may keep it after the event */
    CUstream_st *stream;
    bool is_done;
    capture *captured_by;
    uint64_t n_given;
    std::chrono::steady_clock::time_point time;
};

struct CUevent_st {
    unsigned flags;
    std::shared_ptr<event_record> record;
};

struct CUgraph_st {
    std::vector<emulate_work> nodes;
};

struct CUgraphExec_st {
    std::vector<emulate_work> nodes;
};

namespace
{

typedef std::lock_guard<std::recursive_mutex> guard;

CUstream_st legacy = {true, {}, nullptr, 0, 0};
std::set<CUstream_st *> streams = {&legacy};
std::vector<capture *> captures;

CUstream_st *stream_of(cudaStream_t stream)
{
    return stream ? stream : &legacy;
}

bool is_eager()
{
    static const bool is = [] {
        const char *text = getenv("EMULATED_STREAMS");
        return text && strcmp(text, "eager") == 0;
    }();
    return is;
}

void drain(CUstream_st *stream)
{
    while (!stream->queue.empty()) {
        emulate_work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        work();
    }
}

/* A capture that is active on a blocking stream, or NULL. */
capture *blocking_capture()
{
    for (CUstream_st *s : streams) {
        if (s->is_blocking && s->captured_by) return s->captured_by;
    }
    return nullptr;
}

cudaError_t lose(capture *c, cudaError_t error)
{
    c->is_lost = true;
    return emulate_error(error);
}

} // namespace

cudaError_t emulate_give(cudaStream_t given, emulate_work work)
{
    CUstream_st *stream = stream_of(given);
    if (!streams.count(stream)) return emulate_error(cudaErrorInvalidResourceHandle);
    if (capture *c = stream->captured_by) {
        if (c->is_lost) return emulate_error(cudaErrorStreamCaptureInvalidated);
        c->nodes.push_back(std::move(work));
        stream->n_given++;
        return cudaSuccess;
    }
    if (stream == &legacy) {
        cudaError_t error = emulate_drain_legacy();
        if (error != cudaSuccess) return error;
    } else if (stream->is_blocking) {
        drain(&legacy);
    }
    stream->queue.push_back(std::move(work));
    if (is_eager()) drain(stream);
    return cudaSuccess;
}

void emulate_drain_all()
{
    for (CUstream_st *s : streams)
        drain(s);
}

cudaError_t emulate_drain_legacy()
{
    if (capture *c = blocking_capture()) return lose(c, cudaErrorStreamCaptureImplicit);
    for (CUstream_st *s : streams) {
        if (s->is_blocking) drain(s);
    }
    return cudaSuccess;
}

cudaError_t emulate_check_capture()
{
    for (capture *c : captures) {
        if (c->mode == cudaStreamCaptureModeRelaxed) continue;
        bool is_mine = c->thread == std::this_thread::get_id();
        if (is_mine || c->mode == cudaStreamCaptureModeGlobal) {
            return lose(c, cudaErrorStreamCaptureUnsupported);
        }
    }
    return cudaSuccess;
}

/* --- Work --- */

/* CUDA copies memory that is not pinned through buffers of its own: it reads the source and writes
 * the target before the call returns. A capture accepts such copies too. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    guard lock(emulate_mutex());
    cudaError_t error = emulate_check_copy(dst, src, bytes, kind);
    if (error != cudaSuccess || bytes == 0) return error;
    bool is_captured = stream_of(stream)->captured_by != nullptr;
    if (!is_captured && !emulate_is_device(src) && !emulate_is_pinned(src)) {
        const unsigned char *first = static_cast<const unsigned char *>(src);
        auto staged = std::make_shared<std::vector<unsigned char>>(first, first + bytes);
        return emulate_give(stream, [=] {
            emulate_memory_access access;
            memcpy(dst, staged->data(), bytes);
        });
    }
    error = emulate_give(stream, [=] {
        emulate_memory_access access;
        memmove(dst, src, bytes);
    });
    bool is_awaited = !is_captured && !emulate_is_device(dst) && !emulate_is_pinned(dst);
    if (error == cudaSuccess && is_awaited) drain(stream_of(stream));
    return error;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    guard lock(emulate_mutex());
    cudaError_t error = emulate_check_copy(dst, dst, bytes, cudaMemcpyDeviceToDevice);
    if (error != cudaSuccess || bytes == 0) return error;
    return emulate_give(stream, [=] {
        emulate_memory_access access;
        memset(dst, value, bytes);
    });
}

/* --- Streams --- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    guard lock(emulate_mutex());
    *stream = new CUstream_st{flags != cudaStreamNonBlocking, {}, nullptr, 0, 0};
    streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    guard lock(emulate_mutex());
    if (!stream || !streams.count(stream)) return emulate_error(cudaErrorInvalidResourceHandle);
    if (stream->captured_by) return lose(stream->captured_by, cudaErrorStreamCaptureUnsupported);
    drain(stream);
    streams.erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t given)
{
    guard lock(emulate_mutex());
    CUstream_st *stream = stream_of(given);
    if (!streams.count(stream)) return emulate_error(cudaErrorInvalidResourceHandle);
    if (stream->captured_by) return lose(stream->captured_by, cudaErrorStreamCaptureUnsupported);
    if (stream == &legacy) return emulate_drain_legacy();
    drain(stream);
    return cudaSuccess;
}

/* A query does the work here, because otherwise a caller that polls would never see it done. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return cudaStreamSynchronize(stream);
}

cudaError_t cudaDeviceSynchronize()
{
    guard lock(emulate_mutex());
    for (capture *c : captures)
        return lose(c, cudaErrorStreamCaptureUnsupported);
    emulate_drain_all();
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t given, cudaEvent_t event, unsigned)
{
    guard lock(emulate_mutex());
    CUstream_st *stream = stream_of(given);
    std::shared_ptr<event_record> record = event->record;
    if (!record) return cudaSuccess; /* never recorded */
    if (record->captured_by) {       /* the stream joins that capture */
        if (std::find(captures.begin(), captures.end(), record->captured_by) == captures.end()) {
            return emulate_error(cudaErrorCapturedEvent); /* it has ended */
        }
        if (stream->captured_by && stream->captured_by != record->captured_by) {
            return lose(stream->captured_by, cudaErrorStreamCaptureMerge);
        }
        stream->captured_by = record->captured_by;
        stream->n_given++;
        record->stream->n_joined = std::max(record->stream->n_joined, record->n_given);
        return cudaSuccess;
    }
    if (stream->captured_by) return lose(stream->captured_by, cudaErrorStreamCaptureIsolation);
    return emulate_give(given, [record] {
        while (!record->is_done && !record->stream->queue.empty()) {
            emulate_work work = std::move(record->stream->queue.front());
            record->stream->queue.pop_front();
            work();
        }
    });
}

/* --- Events --- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    *event = new CUevent_st{flags, nullptr};
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (!event) return emulate_error(cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t given)
{
    guard lock(emulate_mutex());
    CUstream_st *stream = stream_of(given);
    auto record = std::make_shared<event_record>();
    *record = {stream, false, stream->captured_by, stream->n_given, {}};
    event->record = record;
    if (stream->captured_by) return cudaSuccess;
    return emulate_give(given, [record] {
        record->is_done = true;
        record->time = std::chrono::steady_clock::now();
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    guard lock(emulate_mutex());
    if (!event->record) return cudaSuccess;
    if (event->record->captured_by) return emulate_error(cudaErrorCapturedEvent);
    if (!event->record->is_done) drain(event->record->stream);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return cudaEventSynchronize(event);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    guard lock(emulate_mutex());
    if (!start->record || !end->record || ((start->flags | end->flags) & cudaEventDisableTiming)) {
        return emulate_error(cudaErrorInvalidResourceHandle);
    }
    if (!start->record->is_done || !end->record->is_done) return emulate_error(cudaErrorNotReady);
    *ms = std::chrono::duration<float, std::milli>(end->record->time - start->record->time).count();
    return cudaSuccess;
}

/* --- Graphs --- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    guard lock(emulate_mutex());
    if (!stream) return emulate_error(cudaErrorStreamCaptureUnsupported); /* the legacy stream */
    if (!streams.count(stream)) return emulate_error(cudaErrorInvalidResourceHandle);
    if (stream->captured_by) return emulate_error(cudaErrorInvalidValue);
    capture *c = new capture{stream, mode, std::this_thread::get_id(), false, {}};
    stream->captured_by = c;
    captures.push_back(c);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    guard lock(emulate_mutex());
    *graph = nullptr;
    if (!stream || !streams.count(stream) || !stream->captured_by) {
        return emulate_error(cudaErrorInvalidValue);
    }
    capture *c = stream->captured_by;
    if (c->origin != stream) return lose(c, cudaErrorStreamCaptureUnmatched);
    if (c->thread != std::this_thread::get_id() && c->mode != cudaStreamCaptureModeRelaxed) {
        return lose(c, cudaErrorStreamCaptureWrongThread);
    }
    cudaError_t error = c->is_lost ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    for (CUstream_st *s : streams) {
        if (s->captured_by != c) continue;
        if (s != stream && s->n_joined < s->n_given && error == cudaSuccess) {
            error = cudaErrorStreamCaptureUnjoined;
        }
        s->captured_by = nullptr;
        s->n_given = s->n_joined = 0;
    }
    if (error == cudaSuccess) *graph = new CUgraph_st{std::move(c->nodes)};
    captures.erase(std::find(captures.begin(), captures.end(), c));
    delete c;
    return emulate_error(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    guard lock(emulate_mutex());
    const capture *c = stream_of(stream)->captured_by;
    *status = !c           ? cudaStreamCaptureStatusNone
              : c->is_lost ? cudaStreamCaptureStatusInvalidated
                           : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* Only counts, because nodes have no names here. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n_nodes)
{
    if (nodes) return emulate_error(cudaErrorNotSupported);
    *n_nodes = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    const char *mode = getenv("EMULATED_GRAPHS");
    *exec = nullptr;
    if (mode && strcmp(mode, "refused") == 0) return emulate_error(cudaErrorMemoryAllocation);
    *exec = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    guard lock(emulate_mutex());
    auto nodes = std::make_shared<std::vector<emulate_work>>(exec->nodes);
    return emulate_give(stream, [nodes] {
        for (const emulate_work &node : *nodes)
            node();
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}
