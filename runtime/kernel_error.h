// The text of an error that a running kernel reported.
#ifndef POLYHEAD_RUNTIME_KERNEL_ERROR_H
#define POLYHEAD_RUNTIME_KERNEL_ERROR_H

#include <polyhead/c_api.h>

namespace polyhead::runtime {

// The status of a kernel that returned this code, success for 0.
polyhead_status kernel_result(const char *kernel_name, int code) noexcept;

} // namespace polyhead::runtime
#endif
