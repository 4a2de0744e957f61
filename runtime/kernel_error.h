// The text of an error that a running kernel reported.
#ifndef POLYHEAD_RUNTIME_KERNEL_ERROR_H
#define POLYHEAD_RUNTIME_KERNEL_ERROR_H

#include <polyhead/c_api.h>

#include "device.h"

namespace polyhead::runtime {

// Fills the status of a kernel that returned this code, which is not 0.
void kernel_failure(const char *kernel_name, int code, polyhead_status *status) noexcept;
// The same for a call on a device, whose context collected the text.
void device_failure(const char *kernel_name, int code, const CallContext &context, polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif
