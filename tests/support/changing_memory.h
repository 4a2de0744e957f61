// Memory of index tensors that another writer changes in the middle of a call, at any of its reads.
#ifndef POLYHEAD_TESTS_CHANGING_MEMORY_H
#define POLYHEAD_TESTS_CHANGING_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace polyhead::test {

// int32 elements in pages of their own, before a page that is not mapped. While a call is watched, each instruction that reads them is
// stopped first (x86-64 Linux: the pages are not accessible, and instructions run one at a time). So a test can change the elements between
// any two reads. One call is watched at a time, on one thread.
class ChangingMemory {
public:
    explicit ChangingMemory(const std::vector<int32_t> &elements);
    ~ChangingMemory();
    ChangingMemory(const ChangingMemory &) = delete;
    ChangingMemory &operator=(const ChangingMemory &) = delete;

    static bool supported();
    int32_t *data() const { return watched_; }
    size_t size() const { return original_.size(); }

    // Runs the call; before read number `read` (from 0) all elements, or every second one, become `value`. Returns the number of reads. The
    // elements are as they were afterwards.
    int change_at(int read, int32_t value, bool all, const std::function<void()> &call);
    // Runs the call with the change before each read in turn: of many reads the first ones, and some of the others.
    void change_at_each(int32_t value, const std::function<void()> &call);

private:
    std::vector<int32_t> original_;
    size_t bytes_ = 0, page_ = 0;                   // of whole pages, of one
    char *pages_ = nullptr, *writable_ = nullptr;   // two mappings of the same pages
    int32_t *watched_ = nullptr, *other_ = nullptr; // the elements in both
};

} // namespace polyhead::test
#endif
