// Products of matrices by the four warps of a group (wgmma). Warp w of the group has rows 16 w to 16 w + 15 of A and of the sums, in the
// registers that mma.m16n8k16 would give them for each 8 columns. B, and A where it is not in registers, lies in shared memory as a
// descriptor says.
//
// Such a product is under way until its group is waited for. Here its sums are NaN until then, and no instruction may name its registers;
// the memory that it reads must not change.
#include "access.h"
#include "decoder.h"
#include "matrices.h"
#include "numbers.h"

#include <algorithm>

namespace polyhead::cuda_driver {

namespace {

constexpr int widest_product = 256, words_of_group = 4, bytes_of_piece = 16, elements_of_piece = 8, pattern_row_bytes = 128,
              rows_of_pattern = 8;
constexpr uint32_t nan_bits = 0xffffffffu;

// PTX ISA, "Matrix Descriptor Format": bits 0-13 address, 16-29 leading dimension, 32-45 stride (all in units of 16 bytes), 49-51 base
// offset, 62-63 swizzle (1: 128 bytes).
struct Descriptor {
    uint64_t address, leading, stride;
};

bool read_descriptor(Warp &warp, const Instruction &instruction, const Operand &operand, Descriptor *descriptor) {
    const uint64_t *const of_lanes = values<uint64_t>(warp, operand);
    const uint64_t bits = of_lanes[0];
    if (std::any_of(of_lanes, of_lanes + lanes, [&](uint64_t of_lane) { return of_lane != bits; })) {
        return warp.fail(FaultKind::launch, instruction, "the threads of the warp have different descriptors");
    }
    constexpr uint64_t field = 0x3fff, fields = field | field << 16 | field << 32 | 3ull << 62, swizzle_128 = 1;
    if ((bits & ~fields) != 0 || bits >> 62 != swizzle_128) {
        return warp.fail(FaultKind::launch, instruction, "the descriptor has another swizzle than that of 128 bytes, or an offset");
    }
    *descriptor = {(bits & field) * bytes_of_piece, (bits >> 16 & field) * bytes_of_piece, (bits >> 32 & field) * bytes_of_piece};
    warp.flight.order = warp.flight.order * 31 + bits;
    return true;
}

// 8 neighbours along the rows of shared memory, from element `along` of row `across` on. Along K (K-major): patterns of 8 rows lie `stride`
// apart, and a product reads 32 bytes of a row. Along M or N: a pattern has 64 of them, the next 64 lie `leading` apart, and the next 8
// rows `stride`. The 16-byte pieces of a row of 128 bytes are exchanged: bits 4 to 6 of the address by bits 7 to 9.
uint64_t piece_address(const Descriptor &d, bool along_k, int along, int across) {
    const uint64_t column = static_cast<uint64_t>(along) * 2, row = static_cast<uint64_t>(across);
    const uint64_t patterns = along_k ? 0 : column / pattern_row_bytes * d.leading;
    const uint64_t at =
        d.address + patterns + row / rows_of_pattern * d.stride + row % rows_of_pattern * pattern_row_bytes + column % pattern_row_bytes;
    return at ^ ((at >> 7 & 7) << 4);
}

struct ProductReader {
    Warp &warp;
    const Instruction &instruction;

    // The bytes of a piece; null after Warp::fail.
    const char *piece(uint64_t address) const {
        Access access;
        access.bytes = bytes_of_piece;
        access.address[0] = address;
        int other = 0;
        bool unfenced = false;
        if (!lookup_shared(warp, instruction, access, 0, address)) {
            return nullptr;
        }
        if (!warp.block->shared.note_product(address, bytes_of_piece, warp.index, other, unfenced)) {
            unfenced ? warp.fail(FaultKind::launch, instruction,
                                 "thread number " + std::to_string(other) + " wrote what the product reads, and there is no fence of the " +
                                     "proxy between (fence.proxy.async)")
                     : race_in_shared(warp, instruction, access, 0, other);
            return nullptr;
        }
        warp.flight.groups.back().reads.push_back({static_cast<size_t>(address), bytes_of_piece});
        return access.host[0];
    }

    // 16 of k by `count` from `first` on. to: [k][count].
    bool matrix(const Descriptor &d, bool along_k, int first, int count, float (*widen)(uint16_t), float *to) const {
        const int rows = along_k ? count : depth_of_product, length = along_k ? depth_of_product : count;
        for (int row = 0; row < rows; row++) {
            for (int along = 0; along < length; along += elements_of_piece) {
                const char *const from = piece(piece_address(d, along_k, along_k ? along : first + along, along_k ? first + row : row));
                if (!from) {
                    return false;
                }
                uint16_t elements[elements_of_piece];
                std::memcpy(elements, from, bytes_of_piece);
                for (int i = 0; i < elements_of_piece; i++) {
                    const int k = along_k ? along + i : row, x = along_k ? row : along + i;
                    to[k * count + x] = widen(elements[i]);
                }
            }
        }
        return true;
    }
};

// Modes of an instruction: bits.
enum : int32_t { is_bf16 = 1, a_in_registers = 2, a_along_m = 4, b_along_n = 8 };

// Every register of the product may be named, and its value is there.
bool check_registers(Warp &warp, const Instruction &instruction, bool adds) {
    Flight &flight = warp.flight;
    const auto id = [](const Operand &operand) { return static_cast<size_t>(operand.register_id); };
    const auto all = [&](const Operand &operand) { return operand.register_id < 0 || warp.written[id(operand)] == ~0u; };
    const bool in_flight = flight.sums[id(instruction.outputs[0])] != 0;
    for (const Operand &sum : instruction.outputs) {
        if (flight.operands[id(sum)] != 0 || (flight.sums[id(sum)] != 0) != in_flight) {
            return warp.fail(FaultKind::launch, instruction, "other products in flight have some of these registers");
        }
        if (!in_flight && flight.touched[id(sum)]) {
            return warp.fail(FaultKind::launch, instruction, "a sum was touched after the last fence (wgmma.fence)");
        }
        if (!in_flight && adds && !all(sum)) {
            return warp.fail(FaultKind::launch, instruction, "a sum comes from a register that was never written");
        }
    }
    for (const Operand &input : instruction.inputs) {
        if (!all(input)) {
            return warp.fail(FaultKind::launch, instruction, "an input comes from a register that was never written");
        }
        if (input.register_id >= 0 && input.width == 4 && (flight.sums[id(input)] != 0 || flight.touched[id(input)])) {
            return warp.fail(FaultKind::launch, instruction,
                             "an operand was touched after the last fence (wgmma.fence), or is a sum of a product in flight");
        }
    }
    return true;
}

// Rows of this warp: a[16][16].
bool rows_of_a(Warp &warp, const Instruction &instruction, float (*widen)(uint16_t), float *a) {
    const int first = warp.index % warps_of_group * rows_of_warp;
    if ((instruction.mode & a_in_registers) != 0) {
        for (int word = 0; word < words_of_group; word++) {
            for (int lane = 0; lane < lanes; lane++) {
                const uint32_t bits = values<uint32_t>(warp, instruction.inputs[static_cast<size_t>(word)])[lane];
                float *to = a + (lane / 4 + 8 * (word % 2)) * depth_of_product + 2 * (lane % 4) + 8 * (word / 2);
                to[0] = widen(static_cast<uint16_t>(bits));
                to[1] = widen(static_cast<uint16_t>(bits >> 16));
            }
        }
        return true;
    }
    Descriptor descriptor{};
    float turned[depth_of_product * rows_of_warp];
    if (!read_descriptor(warp, instruction, instruction.inputs[0], &descriptor) ||
        !ProductReader{warp, instruction}.matrix(descriptor, (instruction.mode & a_along_m) == 0, first, rows_of_warp, widen, turned)) {
        return false;
    }
    for (int i = 0; i < depth_of_product * rows_of_warp; i++) {
        a[i % rows_of_warp * depth_of_product + i / rows_of_warp] = turned[i];
    }
    return true;
}

// Sum i of a lane, from the registers as they will be, or 0.
void add_group_product(Warp &warp, const Instruction &instruction, bool adds, const float *a, const float *b) {
    Flight &flight = warp.flight;
    const int sums = static_cast<int>(instruction.outputs.size()), columns = 2 * sums;
    float c[rows_of_warp * widest_product] = {};
    const auto place = [&](int i, int lane) { return c + (lane / 4 + 8 * (i / 2 % 2)) * columns + i / 4 * 8 + 2 * (lane % 4) + i % 2; };
    for (int i = 0; adds && i < sums; i++) {
        const Operand &sum = instruction.outputs[static_cast<size_t>(i)];
        const bool in_flight = flight.sums[static_cast<size_t>(sum.register_id)] != 0;
        const auto *from = reinterpret_cast<const float *>((in_flight ? flight.results.data() : warp.registers) + sum.offset);
        for (int lane = 0; lane < lanes; lane++) {
            *place(i, lane) = from[lane];
        }
    }
    const WarpMatrices all{a, b, c, columns};
    warp.launch->truncates ? add_truncated(all) : add_in_order(all);
    for (int i = 0; i < sums; i++) {
        const Operand &sum = instruction.outputs[static_cast<size_t>(i)];
        auto *to = reinterpret_cast<float *>(flight.results.data() + sum.offset);
        for (int lane = 0; lane < lanes; lane++) {
            to[lane] = *place(i, lane);
        }
        std::fill_n(target<uint32_t>(warp, sum), lanes, nan_bits);
    }
}

bool multiply_by_group(Warp &warp, const Instruction &instruction) {
    Flight &flight = warp.flight;
    const uint32_t *block = warp.launch->block;
    if (!warp.whole(instruction)) {
        return false;
    }
    if (block[0] * block[1] * block[2] % (warps_of_group * lanes) != 0) {
        return warp.fail(FaultKind::launch, instruction, "the block has a warp that belongs to no group of four");
    }
    if (flight.groups.empty()) {
        return warp.fail(FaultKind::launch, instruction, "there is no fence before it (wgmma.fence)");
    }
    const Operand &scale = instruction.inputs[instruction.inputs.size() - 1];
    const uint32_t adds = predicate(warp, scale);
    if (adds != 0 && adds != ~0u) {
        return warp.fail(FaultKind::launch, instruction, "the threads of the warp disagree on whether the product is added");
    }
    flight.order = flight.order * 31 + static_cast<uint64_t>(instruction.index) * 2 + (adds & 1u);
    const bool bf16 = (instruction.mode & is_bf16) != 0;
    float (*const widen)(uint16_t) = bf16 ? bfloat_to_float : half_to_float;
    const int columns = 2 * static_cast<int>(instruction.outputs.size());
    float a[rows_of_warp * depth_of_product], b[depth_of_product * widest_product];
    Descriptor descriptor{};
    if (!check_registers(warp, instruction, adds != 0) || !rows_of_a(warp, instruction, widen, a) ||
        !read_descriptor(warp, instruction, instruction.inputs[instruction.inputs.size() - 2], &descriptor) ||
        !ProductReader{warp, instruction}.matrix(descriptor, (instruction.mode & b_along_n) == 0, 0, columns, widen, b)) {
        return false;
    }
    add_group_product(warp, instruction, adds != 0, a, b);
    Flight::Group &group = flight.groups.back();
    for (const Operand &sum : instruction.outputs) {
        flight.sums[static_cast<size_t>(sum.register_id)] = flight.open();
        group.registers.push_back(sum);
    }
    for (size_t word = 0; (instruction.mode & a_in_registers) != 0 && word < words_of_group; word++) {
        flight.operands[static_cast<size_t>(instruction.inputs[word].register_id)] = flight.open();
        group.registers.push_back(instruction.inputs[word]);
    }
    return true;
}

bool fence_group(Warp &warp, const Instruction &instruction) {
    Flight &flight = warp.flight;
    if (!warp.whole(instruction)) {
        return false;
    }
    const auto registers = static_cast<size_t>(warp.launch->kernel->registers);
    if (flight.groups.empty()) {
        flight.groups.resize(1);
        flight.sums.assign(registers, 0);
        flight.operands.assign(registers, 0);
        flight.results.assign(warp.launch->kernel->register_bytes, 0);
    }
    flight.touched.assign(registers, false);
    flight.order = flight.order * 31 + static_cast<uint64_t>(instruction.index);
    return true;
}

bool commit_products(Warp &warp, const Instruction &instruction) {
    if (!warp.whole(instruction)) {
        return false;
    }
    if (!warp.flight.groups.empty()) {
        warp.flight.groups.emplace_back();
    }
    return true;
}

// The sums of the oldest group are there, unless a later one adds to them.
bool finish_products(Warp &warp, const Instruction &instruction) {
    Flight &flight = warp.flight;
    const uint64_t number = flight.finished + 1;
    const Flight::Group group = std::move(flight.groups.front());
    flight.groups.erase(flight.groups.begin());
    flight.finished = number;
    for (const Flight::Read &read : group.reads) { // nobody has written there meanwhile
        Access access;
        access.bytes = read.bytes;
        access.address[0] = read.offset;
        access.host[0] = warp.block->shared.data() + read.offset;
        int other = 0;
        bool unfenced = false;
        if (!warp.block->shared.note_product(read.offset, read.bytes, warp.index, other, unfenced)) {
            return unfenced ? warp.fail(FaultKind::launch, instruction,
                                        "thread number " + std::to_string(other) + " wrote what a product in flight reads")
                            : race_in_shared(warp, instruction, access, 0, other);
        }
    }
    for (const Operand &operand : group.registers) {
        const auto at = static_cast<size_t>(operand.register_id);
        flight.operands[at] = flight.operands[at] == number ? 0 : flight.operands[at];
        if (flight.sums[at] == number) {
            flight.sums[at] = 0;
            warp.written[at] = ~0u;
            std::memcpy(warp.registers + operand.offset, flight.results.data() + operand.offset, lanes * sizeof(float));
        }
    }
    return true;
}

// So many groups may be under way afterwards: the displacement of the instruction.
bool wait_for_products(Warp &warp, const Instruction &instruction) {
    if (!warp.whole(instruction)) {
        return false;
    }
    while (warp.flight.groups.size() > static_cast<size_t>(instruction.displacement) + 1) {
        if (!finish_products(warp, instruction)) {
            return false;
        }
    }
    return true;
}

// {sums}, {words of A} or descriptor of A, descriptor of B, adds, 1, 1, (A along M,) B along N;
void decode_group_operands(Decoder &decoder, size_t columns) {
    Instruction &instruction = decoder.instruction();
    const std::vector<std::string> &operands = decoder.operands();
    const bool in_registers = operands.size() > 1 && !operands[1].empty() && operands[1][0] == '{';
    if (!decoder.expect(in_registers ? 7 : 8)) {
        return;
    }
    const auto flag = [&](size_t index) { // 0 or 1
        int64_t value = 0;
        if (!parse_integer(operands[index], value) || value < 0 || value > 1) {
            decoder.refuse("operand " + operands[index] + " is not 0 or 1");
        }
        return value != 0;
    };
    if (!flag(4) || !flag(5)) {
        decoder.refuse("operands that are negated are not known here");
    }
    instruction.mode |= (in_registers ? a_in_registers : flag(6) ? a_along_m : 0) | (flag(in_registers ? 6 : 7) ? b_along_n : 0);
    decoder.list(0, Type::f32, columns / 2, true);
    in_registers ? void(decoder.list(1, Type::b32, words_of_group, false)) : decoder.input(1, Type::b64);
    decoder.input(2, Type::b64);
    decoder.input(3, Type::pred);
}

bool decode_group_product(Decoder &decoder, Modifiers &modifiers) {
    Type sum, a, b;
    int columns = 0;
    for (int n = 8; n <= widest_product; n += 8) {
        columns = modifiers.take(("m64n" + std::to_string(n) + "k16").c_str()) ? n : columns;
    }
    const bool known = columns > 0 && modifiers.take("sync") && modifiers.take("aligned") && modifiers.take_type(sum) &&
                       modifiers.take_type(a) && modifiers.take_type(b);
    if (!known || sum != Type::f32 || a != b || (a != Type::f16 && a != Type::bf16)) {
        return false;
    }
    decoder.instruction().mode = a == Type::bf16 ? is_bf16 : 0;
    decode_group_operands(decoder, static_cast<size_t>(columns));
    decoder.set(multiply_by_group);
    return true;
}

} // namespace

bool decode_warpgroup(Decoder &decoder, Modifiers &modifiers) {
    if (modifiers.base() != "wgmma") {
        return false;
    }
    Instruction &instruction = decoder.instruction();
    decoder.kernel().asynchronous = true;
    decoder.kernel().needs.at_least({90, true, 8.0});
    instruction.reading = Reading::own;
    if (modifiers.take("mma_async")) {
        return decode_group_product(decoder, modifiers);
    }
    const int kind = modifiers.take_one_of({"fence", "commit_group", "wait_group"});
    if (kind < 0 || !modifiers.take("sync") || !modifiers.take("aligned")) {
        return false;
    }
    if (decoder.expect(kind == 2 ? 1 : 0) && kind == 2 &&
        (!parse_integer(decoder.operands()[0], instruction.displacement) || instruction.displacement < 0)) {
        decoder.refuse("the number of groups is not a constant");
    }
    decoder.set(kind == 0 ? fence_group : kind == 1 ? commit_products : wait_for_products);
    return true;
}

} // namespace polyhead::cuda_driver
