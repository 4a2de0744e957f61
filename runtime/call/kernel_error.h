// The text of an error that a running kernel reported.
#ifndef POLYHEAD_RUNTIME_KERNEL_ERROR_H
#define POLYHEAD_RUNTIME_KERNEL_ERROR_H

#include <polyhead/c_api.h>

#include "call_context.h"

namespace polyhead::runtime {

// Fills the status of a kernel that returned this code, which is not 0; the context of the call collected the text.
void kernel_failure(const char *kernel_name, int code, const CallContext &context, polyhead_status *status) noexcept;

} // namespace polyhead::runtime
#endif
