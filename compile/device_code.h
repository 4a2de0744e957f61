// Passes over the code of a device, between Halide's module and the object: for instructions that Halide does not write.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <Halide.h>

#include "../plan/plan.h"

namespace polyhead::gen {

// The text that Halide made for a device (PTX, OpenCL C), changed. May throw, which refuses the variant with that sentence.
using DeviceText = std::function<std::string(const std::string &text)>;

// One pass: which variants have it, and what it does.
struct DevicePass {
    const char *name;
    std::function<bool(const Problem &, const VariantPlan &)> wanted;
    DeviceText change;
};

// The bytes of a device code, without the zeros behind it.
std::string device_bytes(const Halide::Buffer<> &code);

// In the order in which they run.
const std::vector<DevicePass> &device_passes();

// The module with another text in the place of each of its device codes that are text.
Halide::Module with_device_text(const Halide::Module &module, const DeviceText &change);

// The module after the passes that the variant has.
Halide::Module after_device_passes(const Halide::Module &module, const Problem &problem, const VariantPlan &plan);

} // namespace polyhead::gen
