// Makes a polyhead_status: a code and one sentence.
#ifndef POLYHEAD_RUNTIME_STATUS_H
#define POLYHEAD_RUNTIME_STATUS_H

#include <cstddef>

#include <polyhead/c_api.h>

#include "contract.h"

// Lets the compiler check the arguments of a printf-like function.
#if defined(__GNUC__)
#define POLYHEAD_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define POLYHEAD_PRINTF(text, first)
#endif

namespace polyhead::runtime {

polyhead_status success() noexcept;

POLYHEAD_PRINTF(2, 3) polyhead_status failure(polyhead_code code, const char *format, ...) noexcept;

// Fills *status and returns false. Checks return true and touch no status when all is well: a call makes dozens of them.
POLYHEAD_PRINTF(3, 4) bool refuse(polyhead_status *status, polyhead_code code, const char *format, ...) noexcept;

// Of a device that a parent process opened.
polyhead_status device_of_parent(const char *name) noexcept;

// A number for a sentence, with a point in every locale.
struct NumberText {
    explicit NumberText(double value) noexcept;
    char text[32];
};

// Appends to a fixed buffer that always ends with 0; what does not fit is dropped.
class Text {
public:
    Text(char *text, size_t bytes) noexcept;
    POLYHEAD_PRINTF(2, 3) void append(const char *format, ...) noexcept;

private:
    char *text_;
    size_t bytes_, used_ = 0;
};

} // namespace polyhead::runtime
#endif
