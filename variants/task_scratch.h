// What a task of a kernel takes from the allocator, read off the lowered code.
#pragma once

#include <cstdint>

#include <Halide.h>

namespace polyhead::gen {

// While one exists, it records the memory of the tasks of pipelines that are lowered on this thread.
class TaskScratch {
public:
    TaskScratch();
    ~TaskScratch();

    // The most bytes that one task of a parallel loop holds at once.
    int64_t bytes() const { return bytes_; }

private:
    friend void measure_task_scratch(Halide::Pipeline pipeline);
    int64_t bytes_ = 0;
};

// Has a pipeline measured when it is lowered. Its code stays as it is.
void measure_task_scratch(Halide::Pipeline pipeline);

} // namespace polyhead::gen
