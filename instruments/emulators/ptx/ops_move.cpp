// mov with packing and unpacking, and cvta between address spaces.
#include "decoder.h"
#include "warp.h"

namespace polyhead::cuda_driver {

namespace {

template <class T> struct Same {
    static T run(T x) { return x; }
};

bool copy_predicate(Warp &warp, const Instruction &instruction) {
    set_predicate(warp, instruction.outputs[0], predicate(warp, instruction.inputs[0]));
    return true;
}

// Whole is as wide as all parts together; the first part is the lowest.
template <class Whole, class Part> bool pack(Warp &warp, const Instruction &instruction) {
    alignas(64) Whole results[lanes] = {};
    for (size_t part = 0; part < instruction.inputs.size(); part++) {
        const Part *from = values<Part>(warp, instruction.inputs[part]);
        for (int lane = 0; lane < lanes; lane++) {
            results[lane] = static_cast<Whole>(results[lane] | static_cast<Whole>(from[lane]) << (8 * sizeof(Part) * part));
        }
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

template <class Whole, class Part> bool unpack(Warp &warp, const Instruction &instruction) {
    Whole from[lanes]; // an output may be the input
    std::memcpy(from, values<Whole>(warp, instruction.inputs[0]), sizeof(from));
    for (size_t part = 0; part < instruction.outputs.size(); part++) {
        alignas(64) Part results[lanes];
        for (int lane = 0; lane < lanes; lane++) {
            results[lane] = static_cast<Part>(from[lane] >> (8 * sizeof(Part) * part));
        }
        write_lanes(warp, instruction.outputs[part], results);
    }
    return true;
}

bool is_vector(const std::string &operand) {
    return !operand.empty() && operand.front() == '{';
}
std::vector<std::string> parts_of(const std::string &operand) {
    return split_operands(operand.substr(1, operand.size() - 2));
}

bool decode_vector_move(Decoder &decoder, Type type) {
    const bool packs = is_vector(decoder.operands()[1]);
    const std::vector<std::string> parts = parts_of(decoder.operands()[packs ? 1 : 0]);
    const int part_bytes = parts.empty() ? 0 : bytes_of(type) / static_cast<int>(parts.size());
    const bool fits = part_bytes * static_cast<int>(parts.size()) == bytes_of(type) && parts.size() > 1;
    Execute execute = nullptr;
    if (fits && type == Type::b64 && part_bytes == 4) {
        execute = packs ? pack<uint64_t, uint32_t> : unpack<uint64_t, uint32_t>;
    } else if (fits && type == Type::b64 && part_bytes == 2) {
        execute = packs ? pack<uint64_t, uint16_t> : unpack<uint64_t, uint16_t>;
    } else if (fits && type == Type::b32 && part_bytes == 2) {
        execute = packs ? pack<uint32_t, uint16_t> : unpack<uint32_t, uint16_t>;
    }
    if (!execute) {
        decoder.refuse("this packing is not known");
        return true;
    }
    const Type part_type = part_bytes == 4 ? Type::b32 : Type::b16;
    packs ? decoder.output(0, type) : decoder.input(1, type);
    for (const std::string &part : parts) {
        packs ? decoder.input_text(part, part_type) : decoder.output_text(part, part_type);
    }
    decoder.set(execute);
    decoder.instruction().reading = packs ? Reading::pack : Reading::unpack;
    return true;
}

// Addresses of global memory and constants are the same in the generic space; shared and local memory have windows in it.
template <int64_t offset> bool move_address(Warp &warp, const Instruction &instruction) {
    const uint64_t *from = values<uint64_t>(warp, instruction.inputs[0]);
    uint64_t results[lanes];
    for (int lane = 0; lane < lanes; lane++) {
        results[lane] = from[lane] + static_cast<uint64_t>(offset);
    }
    write_lanes(warp, instruction.outputs[0], results);
    return true;
}

bool decode_address(Decoder &decoder, Modifiers &modifiers) {
    Type type;
    const bool from_generic = modifiers.take("to");
    const int space = modifiers.take_one_of({"global", "const", "shared", "local"});
    if (space < 0 || !modifiers.take_type(type) || type != Type::u64) {
        return false;
    }
    constexpr int64_t shared = shared_window, local = local_window;
    decoder.output(0, type);
    decoder.input(1, type);
    decoder.expect(2);
    decoder.set(space < 2                    ? unary<uint64_t, Same<uint64_t>>
                : space == 2 && from_generic ? move_address<-shared>
                : space == 2                 ? move_address<shared>
                : from_generic               ? move_address<-local>
                                             : move_address<local>);
    return true;
}

} // namespace

bool decode_move(Decoder &decoder, Modifiers &modifiers) {
    if (modifiers.base() == "cvta") {
        return decode_address(decoder, modifiers);
    }
    Type type;
    if (modifiers.base() != "mov" || !modifiers.take_type(type) || (bytes_of(type) == 1 && type != Type::pred)) {
        return false;
    }
    if (!decoder.expect(2)) {
        return true;
    }
    if (is_vector(decoder.operands()[0]) || is_vector(decoder.operands()[1])) {
        return decode_vector_move(decoder, type);
    }
    decoder.output(0, type);
    decoder.input(1, type);
    decoder.set(type == Type::pred    ? copy_predicate
                : bytes_of(type) == 2 ? unary<uint16_t, Same<uint16_t>>
                : bytes_of(type) == 4 ? unary<uint32_t, Same<uint32_t>>
                                      : unary<uint64_t, Same<uint64_t>>);
    return true;
}

} // namespace polyhead::cuda_driver
