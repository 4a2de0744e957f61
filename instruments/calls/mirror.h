// Memory on a device that shows what a kernel did around its tensors.
#ifndef POLYHEAD_INSTRUMENTS_MIRROR_H
#define POLYHEAD_INSTRUMENTS_MIRROR_H

#include <cstddef>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

namespace polyhead::test {

// A copy of a host tensor on the device, with everything between its rows. Around it lie canaries, but not on a side where the host
// memory ends too: there the device's memory ends.
class Mirror {
public:
    // An absent tensor stays absent, one without elements gets memory all the same.
    Mirror(polyhead_device *device, const polyhead_tensor &host);
    ~Mirror();
    Mirror(const Mirror &) = delete;
    Mirror &operator=(const Mirror &) = delete;

    const polyhead_status &status() const { return status_; }
    const polyhead_tensor &view() const { return view_; }
    // Copies everything back into the host memory. A sentence when the memory around the tensor was written or the copy failed.
    std::string read_back();
    // For inputs: a sentence when any of it was written or the copy failed.
    std::string find_change() const;

private:
    std::string receive(std::vector<char> *bytes) const;

    polyhead_device *device_;
    polyhead_tensor host_{}, view_{};
    polyhead_status status_{};
    void *memory_ = nullptr;
    char *first_byte_ = nullptr;                // of the tensor, on the host
    size_t before_ = 0, bytes_ = 0, after_ = 0; // canaries, the tensor, canaries
    std::vector<char> sent_;
};

} // namespace polyhead::test
#endif
