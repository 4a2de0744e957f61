// A PTX module after decoding: kernels as arrays of instructions whose operands are offsets into register memory.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_PROGRAM_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_PROGRAM_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace polyhead::cuda_driver {

constexpr int lanes = 32; // of a warp
constexpr int warps_of_group = 4;

struct Warp;
struct Instruction;

// Does the work of one instruction for the active lanes of a warp; false after Warp::fail.
using Execute = bool (*)(Warp &warp, const Instruction &instruction);

enum class Type : uint8_t { pred, b8, u8, s8, b16, u16, s16, f16, bf16, b32, u32, s32, f32, f16x2, bf16x2, tf32, b64, u64, s64, f64 };
enum class Space : uint8_t { generic, global, constant, shared, local, param };

// 32 values, one per lane, in the registers of the warp or among the constants of the kernel. A predicate is one uint32_t, a bit per lane.
struct Operand {
    uint32_t offset = 0;      // bytes
    int32_t register_id = -1; // -1: a constant, which is always written
    uint8_t width = 0;        // bytes of one value
    bool negated = false;     // predicates only
};

// The first operands lie inside of their instruction: the warp loop reads them all the time. A list that is longer has all of them once
// more on the heap, so that it is one array.
template <size_t capacity> class OperandList {
public:
    void push_back(const Operand &operand) {
        if (count_ < capacity) {
            items_[count_] = operand;
        } else {
            all_.insert(all_.end(), all_.empty() ? items_ : items_ + capacity, items_ + capacity);
            all_.push_back(operand);
        }
        count_++;
    }
    size_t size() const { return count_; }
    const Operand *begin() const { return all_.empty() ? items_ : all_.data(); }
    const Operand *end() const { return begin() + count_; }
    const Operand &operator[](size_t index) const { return index < capacity ? items_[index] : all_[index]; }

private:
    Operand items_[capacity];
    std::vector<Operand> all_;
    size_t count_ = 0;
};

// What the warp loop does itself; everything else is `plain`.
enum class Flow : uint8_t { plain, branch, leave, barrier, trap };

// What a barrier makes of a predicate: Instruction::mode.
enum BarrierResult { barrier_popc, barrier_and, barrier_or };

// What happens to a register that was never written. Compilers let arithmetic read it where the result is not used, so it spreads;
// memory and decisions must not see it. A selection spreads only what it takes, a shuffle what comes from the other lane, and a part that
// is unpacked what was packed there. own: the instruction looks itself.
enum class Reading : uint8_t { spread, select, shuffle, pack, unpack, strict, own };

struct Instruction {
    Execute execute = nullptr;
    OperandList<4> outputs;
    OperandList<6> inputs;
    Operand guard; // width 0: always executed
    Flow flow = Flow::plain;
    Reading reading = Reading::spread;
    bool uniform = false; // bra.uni
    Space space = Space::generic;
    Type type = Type::b32;           // of memory: what one element is
    int64_t displacement = 0;        // of an address; of a barrier, its number
    int64_t second_displacement = 0; // of the second address
    int32_t mode = 0;                // which of its kind a shuffle, a comparison or a vote is; of a product, its row of the table
    int32_t target = -1;             // index of the instruction that a branch goes to
    int32_t reconverge = -1;         // where the two sides of a branch meet again; -1: nowhere before the end
    int32_t index = 0;               // its own place in the kernel
    int32_t line = 0;                // of the PTX text
    std::string opcode, text;        // "ld.global.b32", the whole statement
};

struct Parameter {
    size_t offset = 0, bytes = 0;
};

// A variable of a module (.global, .const) before it has an address.
struct Variable {
    Space space = Space::global;
    std::vector<char> bytes;
    uint64_t address = 0; // on the device; a kernel that names it reads it from here at load time
};

// What the target and the version of a module must be for some instructions (PTX ISA, "Target ISA Notes").
struct Needs {
    int capability = 0;
    bool exact = false; // sm_90a
    double version = 0;

    void at_least(const Needs &other) {
        capability = capability < other.capability ? other.capability : capability;
        exact = exact || other.exact;
        version = version < other.version ? other.version : version;
    }
};

struct Kernel {
    std::string name;
    std::vector<Instruction> code;
    std::vector<Parameter> parameters;
    size_t parameter_bytes = 0;
    size_t register_bytes = 0;
    std::vector<char> constants;                   // 32 copies of each immediate value
    std::vector<std::pair<int, Operand>> specials; // %tid.x and its like: which, and the register that holds it
    int registers = 0;                             // how many register ids
    size_t shared_base = 0;                        // shared memory below is the system's
    std::string dynamic_name;                      // of the shared memory whose size a launch gives
    size_t static_shared = 0, local_bytes = 0;
    int shared_granule = 4;                                          // the smallest access to shared memory, in bytes
    bool asynchronous = false;                                       // barriers in memory, or products of a warpgroup
    int required_block[3] = {0, 0, 0}, largest_block[3] = {0, 0, 0}; // .reqntid, .maxntid; 0: not given
    Needs needs;
    std::string unknown; // the sentence about the first instruction that this interpreter does not know
};

struct Module {
    int capability = 0; // 80 for .target sm_80
    bool exact = false; // .target sm_90a: no other capability runs it
    double version = 0;
    std::map<std::string, Kernel> kernels;
    std::map<std::string, Variable> variables;
};

inline int bytes_of(Type type) {
    switch (type) {
    case Type::pred:
    case Type::b8:
    case Type::u8:
    case Type::s8:
        return 1;
    case Type::b16:
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
        return 2;
    case Type::b64:
    case Type::u64:
    case Type::s64:
    case Type::f64:
        return 8;
    default:
        return 4;
    }
}

} // namespace polyhead::cuda_driver
#endif
