// Driver API: streams that are captured, and graphs. A graph is a list of work in the order in which a stream got it.
#include "state.h"

using namespace polyhead::cuda_driver;

namespace {

// CUstreamCaptureStatus
constexpr int not_captured = 0, captured = 1, invalidated = 2;

} // namespace

CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
    CUDA_DRIVER_ENTER_CONTEXT
    const auto found = s.streams.find(stream);
    if (found == s.streams.end() || found->second->capture) {
        return s.fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamBeginCapture: the default stream, or one that is captured already");
    }
    found->second->capture = std::make_unique<CUgraph_st>();
    found->second->spoiled = false;
    return s.check_stream(stream);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    CUDA_DRIVER_ENTER
    const auto found = s.streams.find(stream);
    if (found == s.streams.end() || !found->second->capture) {
        return s.fail(CUDA_ERROR_INVALID_VALUE, "cuStreamEndCapture: the stream is not captured");
    }
    std::unique_ptr<CUgraph_st> made = std::move(found->second->capture);
    *graph = made.get();
    s.graphs[*graph] = std::move(made);
    if (found->second->spoiled) {
        s.drop_graph(*graph);
        *graph = nullptr;
        return s.fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "cuStreamEndCapture: a call was not allowed while the stream was captured");
    }
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    CUDA_DRIVER_ENTER
    const auto found = s.streams.find(stream);
    const bool any = found != s.streams.end() && found->second->capture;
    *status = !any ? not_captured : found->second->spoiled ? invalidated : captured;
    return any || s.check_stream(stream) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (!s.graphs.count(graph)) {
        return s.fail(CUDA_ERROR_INVALID_VALUE, "cuGraphInstantiate: there is no such graph");
    }
    auto made = std::make_unique<CUgraphExec_st>();
    made->work = graph->work;
    *executable = made.get();
    s.executables[*executable] = std::move(made);
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    CUDA_DRIVER_ENTER_CONTEXT
    if (!s.executables.count(executable)) {
        return s.fail(CUDA_ERROR_INVALID_VALUE, "cuGraphLaunch: there is no such graph");
    }
    CUresult result = s.check_stream(stream);
    for (const auto &work : executable->work) {
        result = result == CUDA_SUCCESS ? work() : result;
    }
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
    CUDA_DRIVER_ENTER
    return s.executables.erase(executable) ? CUDA_SUCCESS : s.fail(CUDA_ERROR_INVALID_VALUE, "cuGraphExecDestroy: there is no such graph");
}

CUresult cuGraphDestroy(CUgraph graph) {
    CUDA_DRIVER_ENTER
    if (!s.graphs.count(graph)) {
        return s.fail(CUDA_ERROR_INVALID_VALUE, "cuGraphDestroy: there is no such graph");
    }
    s.drop_graph(graph);
    return CUDA_SUCCESS;
}
