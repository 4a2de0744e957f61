// The instructions of AMX on machines that do not have them: the kernel's code runs as it is, and each instruction that faults is done
// here.
#ifndef POLYHEAD_INSTRUMENTS_AMX_EMULATOR_H
#define POLYHEAD_INSTRUMENTS_AMX_EMULATOR_H

#include <cstdint>
#include <memory>

namespace polyhead::test {

// While one exists, dispatch finds the feature amx. Where the CPU has it the instructions run themselves.
class AmxEmulator {
public:
    AmxEmulator();
    ~AmxEmulator();
    AmxEmulator(const AmxEmulator &) = delete;
    AmxEmulator &operator=(const AmxEmulator &) = delete;

    // False: neither the CPU nor this emulator, which is for Linux on x86-64 and for CPUs without AMX.
    static bool possible();
    // Products of tiles that were emulated so far, in all threads; what is wrong with an instruction is a failure of the process.
    static int64_t products();
    // Whether the CPU has AMX, so that nothing is emulated.
    static bool native();

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace polyhead::test
#endif
