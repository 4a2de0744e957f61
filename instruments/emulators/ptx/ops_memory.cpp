// Loads and stores: every address is looked up, aligned and, in shared memory, checked for races.
#include "access.h"
#include "decoder.h"
#include "traffic.h"

#include <algorithm>
#include <type_traits>

namespace polyhead::cuda_driver {

namespace {

Space space_of(Space space, uint64_t address, uint64_t &offset) {
    offset = address;
    if (space != Space::generic) {
        return space;
    }
    if (address >= shared_window && address - shared_window < window_bytes) {
        offset = address - shared_window;
        return Space::shared;
    }
    if (address >= local_window && address - local_window < window_bytes) {
        offset = address - local_window;
        return Space::local;
    }
    return Space::global;
}

// One lane. `value` is what a store is going to write.
bool resolve_lane(Warp &warp, const Instruction &instruction, Access &access, int lane, const void *value) {
    uint64_t offset = 0;
    const Space space = space_of(instruction.space, access.address[lane], offset);
    if (offset % static_cast<uint64_t>(access.bytes) != 0) {
        return misaligned(warp, instruction, access, lane);
    }
    if (space == Space::local) {
        return lookup_local(warp, instruction, access, lane, offset);
    }
    if (space != Space::shared) {
        return lookup_global(warp, instruction, access, lane, value);
    }
    if (!lookup_shared(warp, instruction, access, lane, offset)) {
        return false;
    }
    int other = 0;
    SharedMemory &shared = warp.block->shared;
    const bool alone = value ? shared.note_write(offset, access.bytes, warp.thread(lane), value, other)
                             : shared.note_read(offset, access.bytes, warp.thread(lane), other);
    return alone || race_in_shared(warp, instruction, access, lane, other);
}

void start_access(Warp &warp, const Instruction &instruction, Access &access, size_t elements, bool write) {
    access.bytes = bytes_of(instruction.type) * static_cast<int>(elements);
    access.write = write;
    find_addresses(warp, instruction.inputs[0], instruction.displacement, access);
    const bool global = instruction.space == Space::global;
    if (warp.launch->count_traffic && (global || instruction.space == Space::shared)) {
        warp.launch->traffic[static_cast<size_t>(instruction.index)] +=
            global ? sectors(access.address, warp.active) : bank_passes(access.address, warp.active, access.bytes);
    }
}

// All active lanes read the same allocation as last time, and no lane writes it: the usual case, without a decision per lane.
bool resolve_together(Warp &warp, const Instruction &instruction, Access &access) {
    const Allocation *known = warp.launch->found[static_cast<size_t>(instruction.index)];
    if (instruction.space != Space::global || !known || known->writers_launch == warp.launch->id) {
        return false;
    }
    const uint64_t size = known->end - known->begin, bytes = static_cast<uint64_t>(access.bytes);
    if (size < bytes) {
        return false;
    }
    uint32_t bad = 0;
    for (int lane = 0; lane < lanes; lane++) {
        const uint64_t offset = access.address[lane] - known->begin;
        bad |= (offset > size - bytes || (access.address[lane] & (bytes - 1)) != 0 ? 1u : 0u) & warp.active_lanes[lane];
    }
    if (bad) {
        return false;
    }
    for (int lane = 0; lane < lanes; lane++) {
        if (warp.active_lanes[lane]) {
            access.host[lane] = known->host.get() + (access.address[lane] - known->begin);
        }
    }
    return true;
}

// What is narrower than its register fills it up with zeros or its sign.
template <class Register, class Memory> Register widened(Memory value) {
    using Same = std::conditional_t<std::is_signed<Memory>::value, std::make_signed_t<Register>, Register>;
    return static_cast<Register>(static_cast<Same>(value));
}

template <class Register, class Memory> bool load(Warp &warp, const Instruction &instruction) {
    Access access;
    start_access(warp, instruction, access, instruction.outputs.size(), false);
    if (!resolve_together(warp, instruction, access)) {
        for (int lane = 0; lane < lanes; lane++) {
            if (warp.active_lanes[lane] && !resolve_lane(warp, instruction, access, lane, nullptr)) {
                return false;
            }
        }
    }
    for (size_t element = 0; element < instruction.outputs.size(); element++) {
        alignas(64) Register results[lanes];
        for (int lane = 0; lane < lanes; lane++) {
            Memory value;
            std::memcpy(&value, access.host[lane] + element * sizeof(Memory), sizeof(Memory));
            results[lane] = widened<Register>(value);
        }
        write_lanes(warp, instruction.outputs[element], results);
    }
    return true;
}

template <class Register, class Memory> bool store(Warp &warp, const Instruction &instruction) {
    Access access;
    const size_t elements = instruction.inputs.size() - 1;
    start_access(warp, instruction, access, elements, true);
    for (int lane = 0; lane < lanes; lane++) {
        if (!warp.active_lanes[lane]) {
            continue;
        }
        Memory value[8];
        for (size_t element = 0; element < elements; element++) {
            value[element] = static_cast<Memory>(values<Register>(warp, instruction.inputs[element + 1])[lane]);
        }
        if (!resolve_lane(warp, instruction, access, lane, value)) {
            return false;
        }
        std::memcpy(access.host[lane], value, static_cast<size_t>(access.bytes));
    }
    return true;
}

template <class Register> bool load_parameter(Warp &warp, const Instruction &instruction) {
    const size_t bytes = static_cast<size_t>(bytes_of(instruction.type));
    for (size_t element = 0; element < instruction.outputs.size(); element++) {
        Register value = 0;
        std::memcpy(&value, warp.launch->parameters.data() + instruction.displacement + element * bytes, bytes);
        Register results[lanes];
        for (Register &lane : results) {
            lane = value;
        }
        write_lanes(warp, instruction.outputs[element], results);
    }
    return true;
}

template <class Register> Execute find(bool is_store, Type type) {
    switch (type) {
    case Type::s8:
        return is_store ? store<Register, int8_t> : load<Register, int8_t>;
    case Type::s16:
        return is_store ? store<Register, int16_t> : load<Register, int16_t>;
    case Type::s32:
        return is_store ? store<Register, int32_t> : load<Register, int32_t>;
    default:
        break;
    }
    switch (bytes_of(type)) {
    case 1:
        return is_store ? store<Register, uint8_t> : load<Register, uint8_t>;
    case 2:
        return is_store ? store<Register, uint16_t> : load<Register, uint16_t>;
    case 4:
        return is_store ? store<Register, uint32_t> : load<Register, uint32_t>;
    default:
        return is_store ? store<Register, uint64_t> : load<Register, uint64_t>;
    }
}

Space take_space(Modifiers &modifiers) {
    const int index = modifiers.take_one_of({"global", "const", "shared", "local", "param"});
    const Space spaces[] = {Space::global, Space::constant, Space::shared, Space::local, Space::param};
    return index < 0 ? Space::generic : spaces[index];
}

// Hints for caches change no value.
void take_hints(Modifiers &modifiers) {
    for (const char *word : {"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "weak", "volatile", "cta", "L1::evict_last", "L1::evict_first",
                             "L1::no_allocate", "L1::evict_normal", "L1::evict_unchanged"}) {
        modifiers.take(word);
    }
}

bool add_values(Decoder &decoder, bool is_store, size_t elements) {
    const std::string text = decoder.operands()[is_store ? 1 : 0];
    const bool vector = text.front() == '{';
    const std::vector<std::string> parts = vector ? split_operands(text.substr(1, text.size() - 2)) : std::vector<std::string>{text};
    const Type type = bytes_of(decoder.instruction().type) == 1 ? Type::b16 : decoder.instruction().type; // no register is narrower
    if (parts.size() != elements || vector != (elements > 1)) {
        decoder.refuse(text + " are " + std::to_string(parts.size()) + " values, expected " + std::to_string(elements));
        return false;
    }
    for (const std::string &part : parts) {
        is_store ? decoder.input_text(part, type, true) : decoder.output_text(part, type, true);
    }
    return true;
}

} // namespace

bool decode_memory(Decoder &decoder, Modifiers &modifiers) {
    const bool is_store = modifiers.base() == "st";
    Type type;
    if ((!is_store && modifiers.base() != "ld") || !modifiers.take_type(type) || type == Type::pred) {
        return false;
    }
    Instruction &instruction = decoder.instruction();
    instruction.space = take_space(modifiers);
    instruction.type = type;
    instruction.reading = Reading::strict;
    take_hints(modifiers);
    const int vector = modifiers.take_one_of({"v2", "v4"});
    const bool parameter = instruction.space == Space::param;
    if (!decoder.expect(2) || (parameter && is_store)) {
        return false;
    }
    decoder.address(is_store ? 0 : 1, parameter);
    if (!add_values(decoder, is_store, vector < 0 ? 1 : vector == 0 ? 2 : 4)) {
        return true;
    }
    if (!decoder.problem().empty()) {
        return true;
    }
    const Operand &value = is_store ? instruction.inputs[1] : instruction.outputs[0]; // before them a store has its address
    for (const Operand *operand = &value; operand != (is_store ? instruction.inputs.end() : instruction.outputs.end()); operand++) {
        if (operand->width != value.width) {
            decoder.refuse("the values of a vector are registers of different width");
        }
    }
    if (parameter) {
        decoder.set(value.width == 2 ? load_parameter<uint16_t> : value.width == 4 ? load_parameter<uint32_t> : load_parameter<uint64_t>);
    } else {
        decoder.set(value.width == 2   ? find<uint16_t>(is_store, type)
                    : value.width == 4 ? find<uint32_t>(is_store, type)
                                       : find<uint64_t>(is_store, type));
    }
    if (instruction.space == Space::shared || instruction.space == Space::generic) {
        decoder.kernel().shared_granule = std::min(decoder.kernel().shared_granule, bytes_of(type));
    }
    return true;
}

} // namespace polyhead::cuda_driver
