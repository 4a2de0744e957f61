// The lowered statement of a kernel, taken while Halide makes a module of it.
#pragma once

#include <Halide.h>

namespace polyhead::gen {

// While one exists, it keeps the statement of the pipeline that is lowered on this thread: with the loops of devices and of threads in it,
// which become functions of their own afterwards.
class Lowering {
public:
    Lowering();
    ~Lowering();
    Lowering(const Lowering &) = delete;
    Lowering &operator=(const Lowering &) = delete;

    // Undefined until a pipeline was lowered.
    const Halide::Internal::Stmt &statement() const { return statement_; }

private:
    friend void keep_lowered(Halide::Pipeline pipeline);
    Halide::Internal::Stmt statement_;
};

// Has a Lowering keep the statement of this pipeline, as it is after all passes that were added before.
void keep_lowered(Halide::Pipeline pipeline);

} // namespace polyhead::gen
