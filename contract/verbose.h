// Whether a process tells on standard error what it calls and compiles: POLYHEAD_VERBOSE=1, read once. Header only: runtime and loader ask
// here.
#ifndef POLYHEAD_CONTRACT_VERBOSE_H
#define POLYHEAD_CONTRACT_VERBOSE_H

#include <cstdlib>
#include <cstring>

namespace polyhead::contract {

inline bool read_verbose() noexcept {
    const char *const text = std::getenv("POLYHEAD_VERBOSE");
    return text && std::strcmp(text, "1") == 0;
}

// Set before the first call: a call only looks.
inline const bool is_verbose = read_verbose();

} // namespace polyhead::contract
#endif
