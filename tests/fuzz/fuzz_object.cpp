// Fuzzes the loader of objects: bytes become code in memory or are refused with one sentence, and nothing outside of the bytes is read. The
// code is never called.
#include <cstdint>
#include <cstring>

#include "load/object_code.h"
#include "sentence.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    using namespace polyhead;
    load::ObjectCode code;
    const std::string bytes(reinterpret_cast<const char *>(data), size);
    const std::string refusal = code.load({bytes, bytes}, [](std::string_view name) {
        return name.empty() || name[0] != 'm' ? nullptr : reinterpret_cast<void *>(&std::memset);
    });
    if (!refusal.empty()) {
        fuzz::expect_sentence(refusal);
        return 0;
    }
    uint64_t sum = 0;
    for (const char *byte = code.begin(); byte < code.end(); byte += 64) {
        sum += static_cast<uint8_t>(*byte);
    }
    const auto *const function = static_cast<const char *>(code.function("f"));
    if (function && (function < code.begin() || function > code.end())) {
        fuzz::fail("a function outside of the code", std::to_string(sum));
    }
    return 0;
}
