// Driver API: streams and events. Work is done when it is given, so everything asked for is always complete.
#include "state.h"

#include <thread>

using namespace polyhead::cuda_driver;

CUresult cuStreamCreate(CUstream *stream, unsigned) {
    CUDA_DRIVER_ENTER_CONTEXT
    auto made = std::make_unique<CUstream_st>();
    made->context = context;
    *stream = made.get();
    s.streams[*stream] = std::move(made);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    CUDA_DRIVER_ENTER
    const auto found = s.streams.find(stream);
    if (found == s.streams.end()) {
        return s.fail(CUDA_ERROR_INVALID_HANDLE, "cuStreamDestroy: there is no such stream");
    }
    found->second->context->launches.erase(stream); // another stream may get the same handle
    s.streams.erase(found);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    const Called called(__func__);
    const CUresult valid = cuStreamQuery(stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(state().wait_ms)); // others may call meanwhile
    return valid;
}

CUresult cuStreamQuery(CUstream stream) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (s.capture_of(stream)) {
        s.streams[stream]->spoiled = true;
        return s.fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stream is captured, and cannot be waited for");
    }
    return s.check_stream(stream);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (!s.events.count(event)) {
        return s.fail(CUDA_ERROR_INVALID_HANDLE, "cuStreamWaitEvent: there is no such event");
    }
    return s.check_stream(stream);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *owner) {
    CUDA_DRIVER_ENTER
    const auto found = s.streams.find(stream);
    *owner = found == s.streams.end() ? current_context() : found->second->context;
    return found != s.streams.end() || s.check_stream(stream) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventCreate(CUevent *event, unsigned) {
    CUDA_DRIVER_ENTER_CONTEXT
    auto made = std::make_unique<CUevent_st>();
    made->context = context;
    *event = made.get();
    s.events[*event] = std::move(made);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    CUDA_DRIVER_ENTER
    return s.events.erase(event) ? CUDA_SUCCESS : s.fail(CUDA_ERROR_INVALID_HANDLE, "cuEventDestroy: there is no such event");
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    CUDA_DRIVER_ENTER_CONTEXT
    const auto found = s.events.find(event);
    if (found == s.events.end() || found->second->context != context) {
        return s.fail(CUDA_ERROR_INVALID_HANDLE, "cuEventRecord: there is no such event in the current context");
    }
    found->second->recorded = true;
    found->second->time = std::chrono::steady_clock::now();
    return s.check_stream(stream);
}

CUresult cuEventSynchronize(CUevent event) {
    CUDA_DRIVER_ENTER
    return s.events.count(event) ? CUDA_SUCCESS : s.fail(CUDA_ERROR_INVALID_HANDLE, "cuEventSynchronize: there is no such event");
}

CUresult cuEventQuery(CUevent event) {
    const Called called(__func__);
    return cuEventSynchronize(event);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
    CUDA_DRIVER_ENTER
    if (!s.events.count(from) || !s.events.count(to) || !from->recorded || !to->recorded) {
        return s.fail(CUDA_ERROR_INVALID_HANDLE, "cuEventElapsedTime: an event does not exist or was never recorded");
    }
    *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
    return CUDA_SUCCESS;
}
