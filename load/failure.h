// How making or loading a kernel fails: as a value with a sentence.
#pragma once

#include <cstdint>
#include <string>

#include <polyhead/c_api.h>

namespace polyhead::load {

struct Failure {
    int32_t code = POLYHEAD_OK;
    std::string sentence; // empty: nothing failed

    explicit operator bool() const { return !sentence.empty(); }
};

// An internal failure, or none where the sentence is empty.
inline Failure internal(const std::string &sentence) {
    return {sentence.empty() ? POLYHEAD_OK : POLYHEAD_INTERNAL, sentence};
}

} // namespace polyhead::load
