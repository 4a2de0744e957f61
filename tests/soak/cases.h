// Calls of the kernel table with the bytes that they gave first, to be repeated from many threads.
#ifndef POLYHEAD_TESTS_SOAK_CASES_H
#define POLYHEAD_TESTS_SOAK_CASES_H

#include <memory>
#include <string>
#include <vector>

#include "instruments/calls/subject.h"

namespace polyhead::soak {

// One call. Any number of threads may repeat it at once: inputs are shared, outputs are each caller's own.
class Case {
public:
    Case(const test::KernelSubject &subject, const test::Shape &shape);
    // Runs once and keeps the answer; "" or why it cannot be used.
    std::string record();

    struct Outcome {
        polyhead_status status;
        bool right;   // the recorded bytes
        bool written; // the outputs are not what they were before
    };
    Outcome run() const;
    polyhead_status run(const polyhead_args &args) const { return subject_.subject().run(args); }
    // The arguments, with outputs in memory that nothing else uses as long as it exists.
    using Memory = std::vector<std::vector<unsigned char>>;
    polyhead_args args(Memory *memory) const;
    std::string name() const { return subject_.subject().name + ", " + test::describe(subject_.subject().problem, inputs_.shape()); }
    const Problem &problem() const { return subject_.subject().problem; }

private:
    const test::KernelSubject &subject_;
    test::Inputs inputs_;
    Memory expected_;
};

// A few shapes of every kernel that this machine runs, small enough to be repeated thousands of times.
std::vector<std::unique_ptr<Case>> recorded_cases(std::vector<std::unique_ptr<test::KernelSubject>> *subjects);

} // namespace polyhead::soak
#endif
