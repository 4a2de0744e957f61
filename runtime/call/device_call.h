// One call on a device.
#ifndef POLYHEAD_RUNTIME_DEVICE_CALL_H
#define POLYHEAD_RUNTIME_DEVICE_CALL_H

#include <polyhead/c_api.h>

#include "../rules/validate.h"
#include "kernel_table.h"

namespace polyhead::runtime {

// Starts a variant of args.device's api with checked arguments that have elements. Returns after the launch when everything lies on
// the device; otherwise waits, because host tensors are copied there and results back. The device is entered (EnteredDevice).
polyhead_status run_on_device(const KernelTable &kernel, const polyhead_variant &variant, const polyhead_args &args,
                              const CallShape &shape) noexcept;

} // namespace polyhead::runtime
#endif
