// A system that refuses: the N-th piece of memory, thread or file that the runtime asks for from now on cannot be had.
#ifndef POLYHEAD_TESTS_FAILING_SYSTEM_H
#define POLYHEAD_TESTS_FAILING_SYSTEM_H

namespace polyhead::test {

enum class Resource { memory, thread, file };

// While it exists, request number n of one resource (counted from 1, of all threads) is refused; with every = true also all later ones.
class Failing {
public:
    Failing(Resource resource, int n, bool every = false);
    ~Failing();
    Failing(const Failing &) = delete;
    Failing &operator=(const Failing &) = delete;
    bool happened() const; // it was asked for n times
};

} // namespace polyhead::test
#endif
