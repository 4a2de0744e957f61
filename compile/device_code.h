// Passes over the code of a device, between Halide's module and the object: for instructions that Halide does not write.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <Halide.h>

#include "../machines/machine.h"

namespace polyhead::gen {

// The text that Halide made for a device (PTX, OpenCL C), changed. May throw, which refuses the variant with that sentence.
using DeviceText = std::function<std::string(const std::string &text)>;

// One pass: the module after it, whose lowered statement and machine are given.
struct DevicePass {
    const char *name;
    Halide::Module (*run)(const Halide::Module &module, const Halide::Internal::Stmt &lowered, const Machine &machine);
};

// The bytes of a device code, without the zeros behind it.
std::string device_bytes(const Halide::Buffer<> &code);

// In the order in which they run.
const std::vector<DevicePass> &device_passes();

// The module with another text in the place of each of its device codes that are text.
Halide::Module with_device_text(const Halide::Module &module, const DeviceText &change);

// The module after all passes.
Halide::Module after_device_passes(const Halide::Module &module, const Halide::Internal::Stmt &lowered, const Machine &machine);

} // namespace polyhead::gen
