// Writes the instructions that a kernel asked for by calls (machines/device_calls.h) into the code of a device.
#pragma once

#include <map>
#include <string>

#include <Halide.h>

namespace polyhead::gen {

// How often each is called, by its name.
using CallCounts = std::map<std::string, int>;
CallCounts count_device_calls(const Halide::Internal::Stmt &lowered);

struct WrittenCode {
    std::string text;
    std::map<std::string, int> shared_bytes; // of the kernels that call: what a launch gives to a block
};

// PTX with an instruction in the place of each call. threads: of a block, by kernel, where they are known. Throws a sentence where a call
// is not known, where its arguments are not what the instruction takes, or where there are other calls than in the lowered statement.
WrittenCode with_instructions(const std::string &ptx, const CallCounts &lowered, const std::map<std::string, int> &threads);

// The same of the device code of a module, whose launches get the shared memory. A module without such calls stays as it is.
Halide::Module with_device_instructions(const Halide::Module &module, const Halide::Internal::Stmt &lowered);

// Bytes of shared memory that the calls of a statement ask for; 0: none.
int device_shared_bytes(const Halide::Internal::Stmt &lowered);

} // namespace polyhead::gen
