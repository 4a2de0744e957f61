// Makes a polyhead_status: a code and one sentence.
#include "status.h"

#include <cstdarg>
#include <cstdio>

namespace polyhead::runtime {

polyhead_status success() noexcept {
    polyhead_status status;
    status.code = POLYHEAD_OK;
    status.message[0] = 0;
    return status;
}

namespace {

void fill(polyhead_status *status, polyhead_code code, const char *format, va_list arguments) noexcept {
    status->code = code;
    std::vsnprintf(status->message, sizeof status->message, format, arguments);
}

} // namespace

polyhead_status failure(polyhead_code code, const char *format, ...) noexcept {
    polyhead_status status;
    va_list arguments;
    va_start(arguments, format);
    fill(&status, code, format, arguments);
    va_end(arguments);
    return status;
}

bool refuse(polyhead_status *status, polyhead_code code, const char *format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    fill(status, code, format, arguments);
    va_end(arguments);
    return false;
}

polyhead_status device_of_parent(const char *name) noexcept {
    return failure(POLYHEAD_NO_DEVICE,
                   "device %.120s: was opened before fork, expected one that this process opened; drivers do not survive a fork", name);
}

NumberText::NumberText(double value) noexcept : text{} {
    char printed[sizeof text];
    std::snprintf(printed, sizeof printed, "%g", value);
    size_t used = 0;
    for (const char *at = printed; *at != 0; at++) {
        const bool known = (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') || *at == '-' || *at == '+';
        if (known || text[used - (used > 0)] != '.') { // the point of a locale may have several bytes
            text[used++] = known ? *at : '.';
        }
    }
}

Text::Text(char *text, size_t bytes) noexcept : text_(text), bytes_(text ? bytes : 0) {
    if (bytes_ > 0) {
        text_[0] = 0;
    }
}

void Text::append(const char *format, ...) noexcept {
    if (used_ + 1 >= bytes_) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    const int length = std::vsnprintf(text_ + used_, bytes_ - used_, format, arguments);
    va_end(arguments);
    if (length <= 0) {
        return;
    }
    used_ += static_cast<size_t>(length);
    if (used_ >= bytes_) {
        used_ = bytes_ - 1;
    }
}

} // namespace polyhead::runtime
