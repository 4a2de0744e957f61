// AMX by the signal of an unknown instruction: ldtilecfg, tilerelease, tilezero, tileloadd, tilestored, tdpbf16ps.
#include "amx_emulator.h"

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <polyhead/c_api.h>

#include "../../../runtime/cpu_features.h"
#include "../../../runtime/helpers/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <ucontext.h>
#include <unistd.h>
#endif

namespace polyhead::test {

namespace {

std::atomic<int64_t> emulated_products{0};

#if defined(__x86_64__) && defined(__linux__)

constexpr int tiles = 8, most_rows = 16, row_bytes = 64;

struct TileState {
    uint8_t rows[tiles], data[tiles][most_rows][row_bytes];
    uint16_t bytes[tiles];
    bool configured;
};

thread_local TileState state;

[[noreturn]] void fail(const char *what) {
    const ssize_t ignored = write(2, what, std::strlen(what));
    (void)ignored;
    std::abort();
}

// An instruction with the prefix VEX.128 and the opcode map 0F38.
struct Instruction {
    int opcode, prefix, vector_register; // prefix: 0 none, 2 F3, 3 F2
    int mode, reg, rm;
    int length;
    uint8_t *address;   // of an operand in memory: base + displacement
    int64_t row_stride; // index * scale of such an operand
};

int64_t general_register(const ucontext_t *context, int number) {
    constexpr int names[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                             REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return context->uc_mcontext.gregs[names[number]];
}

template <class Number> Number read(const uint8_t *at) {
    Number value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

bool decode(const ucontext_t *context, Instruction *i) {
    const auto *code = reinterpret_cast<const uint8_t *>(context->uc_mcontext.gregs[REG_RIP]);
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || (code[2] & 0x84) != 0) {
        return false; // not VEX in three bytes, map 0F38, W0, 128 bits
    }
    const int r = (~code[1] >> 7) & 1, x = (~code[1] >> 6) & 1, b = (~code[1] >> 5) & 1;
    i->prefix = code[2] & 3;
    i->vector_register = (~code[2] >> 3) & 15;
    i->opcode = code[3];
    i->mode = code[4] >> 6;
    i->reg = ((code[4] >> 3) & 7) | r << 3;
    i->rm = code[4] & 7;
    i->length = 5;
    i->row_stride = 0;
    if (i->mode == 3) {
        i->rm |= b << 3;
        return true;
    }
    int base = i->rm | b << 3;
    if (i->rm == 4) {
        const int sib = code[i->length++], index = ((sib >> 3) & 7) | x << 3;
        base = (sib & 7) | b << 3;
        i->row_stride = index == 4 ? 0 : general_register(context, index) << (sib >> 6);
    }
    int64_t displacement = 0;
    if ((base & 7) == 5 && i->mode == 0) {
        return false; // relative to the instruction or without a base: never for these
    }
    if (i->mode == 1) {
        displacement = read<int8_t>(code + i->length);
        i->length += 1;
    } else if (i->mode == 2) {
        displacement = read<int32_t>(code + i->length);
        i->length += 4;
    }
    i->address = reinterpret_cast<uint8_t *>(general_register(context, base) + displacement);
    return true;
}

void configure(const uint8_t *from) {
    if (from[0] != 1) {
        fail("amx: ldtilecfg of another palette than 1\n");
    }
    std::memset(&state, 0, sizeof state);
    for (int t = 0; t < tiles; t++) {
        state.bytes[t] = read<uint16_t>(from + 16 + 2 * t);
        state.rows[t] = from[48 + t];
        if (state.rows[t] > most_rows || state.bytes[t] > row_bytes || (state.rows[t] == 0) != (state.bytes[t] == 0)) {
            fail("amx: ldtilecfg of a shape that faults\n");
        }
    }
    state.configured = true;
}

int tile_of(int number) {
    if (!state.configured || number >= tiles || state.rows[number] == 0) {
        fail("amx: a tile without a shape\n");
    }
    return number;
}

float f32_of_bf16(const uint8_t *at) {
    const uint32_t bits = uint32_t(read<uint16_t>(at)) << 16;
    const float value = read<float>(reinterpret_cast<const uint8_t *>(&bits));
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

void multiply_tiles(int to, int a, int b) {
    if (state.rows[to] != state.rows[a] || state.bytes[to] != state.bytes[b] || state.bytes[a] != 4 * state.rows[b]) {
        fail("amx: tdpbf16ps of shapes that fault\n");
    }
    emulated_products++;
    for (int m = 0; m < state.rows[to]; m++) {
        for (int n = 0; n < state.bytes[to] / 4; n++) {
            float even = 0, odd = 0; // two chains, joined at the end
            for (int k = 0; k < state.bytes[a] / 4; k++) {
                even = std::fma(f32_of_bf16(&state.data[a][m][4 * k]), f32_of_bf16(&state.data[b][k][4 * n]), even);
                odd = std::fma(f32_of_bf16(&state.data[a][m][4 * k + 2]), f32_of_bf16(&state.data[b][k][4 * n + 2]), odd);
            }
            uint8_t *const sum = &state.data[to][m][4 * n];
            const float value = read<float>(sum) + (even + odd);
            std::memcpy(sum, &value, sizeof value);
        }
    }
}

bool execute(const Instruction &i) {
    if (i.opcode == 0x49 && i.prefix == 0 && i.mode != 3 && i.reg == 0) {
        configure(i.address);
    } else if (i.opcode == 0x49 && i.prefix == 0 && i.mode == 3) {
        state.configured = false;
    } else if (i.opcode == 0x49 && i.prefix == 3 && i.mode == 3) {
        std::memset(state.data[tile_of(i.reg)], 0, sizeof state.data[0]);
    } else if (i.opcode == 0x4b && (i.prefix == 3 || i.prefix == 2) && i.mode != 3) {
        const int t = tile_of(i.reg);
        for (int row = 0; row < state.rows[t]; row++) {
            uint8_t *const memory = i.address + row * i.row_stride, *const kept = state.data[t][row];
            std::memcpy(i.prefix == 3 ? kept : memory, i.prefix == 3 ? memory : kept, state.bytes[t]);
        }
    } else if (i.opcode == 0x5c && i.prefix == 2 && i.mode == 3) {
        multiply_tiles(tile_of(i.reg), tile_of(i.rm), tile_of(i.vector_register));
    } else {
        return false;
    }
    return true;
}

void on_unknown_instruction(int, siginfo_t *, void *given) {
    auto *context = static_cast<ucontext_t *>(given);
    Instruction instruction{};
    if (!decode(context, &instruction) || !execute(instruction)) {
        fail("amx: an instruction that is neither the CPU's nor the emulator's\n");
    }
    context->uc_mcontext.gregs[REG_RIP] += instruction.length;
}

#endif

} // namespace

#if defined(__x86_64__) && defined(__linux__)

struct AmxEmulator::State {
    struct sigaction before;
    uint64_t pretended;
};

bool AmxEmulator::possible() {
#ifdef POLYHEAD_HAS_AMX
    // Under a limit on CPU features, a CPU with AMX does some of its instructions and refuses the others.
    return native() || !__builtin_cpu_supports("amx-tile");
#else
    return false;
#endif
}

AmxEmulator::AmxEmulator() {
    if (native() || !possible()) {
        return;
    }
    state_ = std::make_unique<State>();
    struct sigaction action = {};
    action.sa_sigaction = on_unknown_instruction;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, &state_->before);
    state_->pretended = runtime::pretend_cpu_features(POLYHEAD_CPU_AMX);
}

AmxEmulator::~AmxEmulator() {
    if (state_) {
        runtime::pretend_cpu_features(state_->pretended);
        sigaction(SIGILL, &state_->before, nullptr);
    }
}

#else

struct AmxEmulator::State {};

bool AmxEmulator::possible() {
    return native();
}
AmxEmulator::AmxEmulator() {}
AmxEmulator::~AmxEmulator() {}

#endif

bool AmxEmulator::native() {
    static const bool has = (polyhead_cpu_features() & POLYHEAD_CPU_AMX) != 0; // asked before anything is pretended
    return has;
}

int64_t AmxEmulator::products() {
    return emulated_products.load();
}

} // namespace polyhead::test
