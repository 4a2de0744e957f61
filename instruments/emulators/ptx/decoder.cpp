// Decoding of guards, operands, registers and labels.
#include "decoder.h"

#include <algorithm>
#include <cstring>

namespace polyhead::cuda_driver {

namespace {

const std::pair<const char *, Type> type_words[] = {
    {"pred", Type::pred}, {"b8", Type::b8},   {"u8", Type::u8},   {"s8", Type::s8},       {"b16", Type::b16},
    {"u16", Type::u16},   {"s16", Type::s16}, {"f16", Type::f16}, {"bf16", Type::bf16},   {"b32", Type::b32},
    {"u32", Type::u32},   {"s32", Type::s32}, {"f32", Type::f32}, {"f16x2", Type::f16x2}, {"bf16x2", Type::bf16x2},
    {"b64", Type::b64},   {"u64", Type::u64}, {"s64", Type::s64}, {"f64", Type::f64},     {"tf32", Type::tf32},
};

const char *const special_names[] = {"%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
                                     "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "%warpid"};

} // namespace

bool Modifiers::take(const char *word) {
    const auto found = std::find(words_.begin() + 1, words_.end(), word);
    if (found == words_.end()) {
        return false;
    }
    words_.erase(found);
    return true;
}

bool Modifiers::take_type(Type &type) {
    for (size_t at = 1; at < words_.size(); at++) {
        for (const auto &[word, value] : type_words) {
            if (words_[at] == word) {
                type = value;
                words_.erase(words_.begin() + static_cast<std::ptrdiff_t>(at));
                return true;
            }
        }
    }
    return false;
}

int Modifiers::take_one_of(std::initializer_list<const char *> words) {
    int index = 0;
    for (const char *word : words) {
        if (take(word)) {
            return index;
        }
        index++;
    }
    return -1;
}

Operand Decoder::add_register(int width) {
    Operand operand;
    operand.offset = static_cast<uint32_t>(kernel_.register_bytes);
    operand.register_id = kernel_.registers++;
    operand.width = static_cast<uint8_t>(width);
    kernel_.register_bytes += width == 1 ? 64 : static_cast<size_t>(width) * lanes; // a predicate is one word; 64 keeps alignment
    return operand;
}

bool Decoder::declare_registers(const std::string &declaration) {
    const size_t space = declaration.find(' ', 5);
    Modifiers words("reg" + declaration.substr(5, space - 5));
    Type type;
    if (space == std::string::npos || !words.take_type(type) || !words.finished()) {
        return false;
    }
    for (const std::string &part : split_operands(declaration.substr(space))) {
        const size_t bracket = part.find('<');
        const int count = bracket == std::string::npos ? -1 : std::atoi(part.c_str() + bracket + 1);
        if (count < 0) {
            scopes_.back()[part] = add_register(bytes_of(type));
        }
        for (int number = 0; number < count; number++) {
            scopes_.back()[part.substr(0, bracket) + std::to_string(number)] = add_register(bytes_of(type));
        }
    }
    return true;
}

bool Decoder::find_register(const std::string &text, Operand &operand) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
        const auto found = scope->find(text);
        if (found != scope->end()) {
            operand = found->second;
            return true;
        }
    }
    return false;
}

Operand Decoder::constant(uint64_t bits, int width) {
    Operand &operand = constants_[{bits, width}];
    if (operand.width == 0) {
        operand.width = static_cast<uint8_t>(width);
        operand.offset = static_cast<uint32_t>(kernel_.constants.size());
        const uint32_t predicate_bits = bits ? ~0u : 0u;
        for (int lane = 0; lane < (width == 1 ? 16 : lanes); lane++) { // a predicate is filled up to 64 bytes
            const char *from = width == 1 ? reinterpret_cast<const char *>(&predicate_bits) : reinterpret_cast<const char *>(&bits);
            kernel_.constants.insert(kernel_.constants.end(), from, from + (width == 1 ? 4 : width));
        }
    }
    return operand;
}

// 0f3F800000, 0d3FF0000000000000, or a whole number.
bool Decoder::literal(const std::string &text, Type type, uint64_t &bits) {
    if (text.size() == 10 && (starts_with(text, "0f") || starts_with(text, "0F"))) {
        bits = std::strtoull(text.c_str() + 2, nullptr, 16);
        if (bytes_of(type) != 4) {
            refuse("the float literal " + text + " is not as wide as the operand");
        }
        return true;
    }
    if (text.size() == 18 && (starts_with(text, "0d") || starts_with(text, "0D"))) {
        bits = std::strtoull(text.c_str() + 2, nullptr, 16);
        if (bytes_of(type) != 8) {
            refuse("the float literal " + text + " is not as wide as the operand");
        }
        return true;
    }
    int64_t value = 0;
    if (!parse_integer(text, value)) {
        return false;
    }
    bits = static_cast<uint64_t>(value);
    if (bytes_of(type) < 8) {
        bits &= (uint64_t{1} << (8 * bytes_of(type))) - 1;
    }
    return true;
}

bool Decoder::special(const std::string &text, Operand &operand) {
    if (text == "WARP_SZ") {
        operand = constant(lanes, 4);
        return true;
    }
    for (int which = 0; which < static_cast<int>(std::size(special_names)); which++) {
        if (text == special_names[which]) {
            Operand &known = specials_[text];
            if (known.width == 0) {
                known = add_register(4);
                kernel_.specials.emplace_back(which, known);
            }
            operand = known;
            return true;
        }
    }
    return false;
}

const Name *Decoder::name(const std::string &text) const {
    const auto found = names_.find(text);
    return found == names_.end() ? nullptr : &found->second;
}

Operand Decoder::resolve(std::string text, Type type, bool wider) {
    Operand operand;
    const bool negated = type == Type::pred && !text.empty() && text[0] == '!';
    if (negated) {
        text = text.substr(1);
    }
    const int width = bytes_of(type);
    if (find_register(text, operand) || special(text, operand)) {
        if (operand.width != width && !(wider && operand.width > width && type != Type::pred)) {
            refuse("operand " + text + " has " + std::to_string(8 * operand.width) + " bits, the instruction wants " +
                   std::to_string(8 * width));
        }
        operand.negated = negated;
        return operand;
    }
    uint64_t bits = 0;
    if (literal(text, type, bits)) {
        operand = constant(bits, width);
    } else if (const Name *known = name(text)) {
        operand = constant(known->address, width);
        if (width < 4 || known->space == Space::param) {
            refuse("the address of " + text + " cannot be taken here");
        }
    } else {
        refuse("operand " + text + " is not known");
    }
    operand.negated = negated;
    return operand;
}

bool Decoder::expect(size_t count) {
    if (operands_.size() != count) {
        refuse(std::to_string(operands_.size()) + " operands, expected " + std::to_string(count));
    }
    return operands_.size() == count;
}

void Decoder::input_text(const std::string &text, Type type, bool wider) {
    instruction_->inputs.push_back(resolve(text, type, wider));
}

void Decoder::output_text(const std::string &text, Type type, bool wider) {
    if (text == "_") {
        instruction_->outputs.push_back(add_register(bytes_of(type)));
        return;
    }
    const Operand operand = resolve(text, type, wider);
    if (operand.register_id < 0 || operand.negated || text.find('.') != std::string::npos) {
        refuse("the result cannot go to " + text);
    }
    instruction_->outputs.push_back(operand);
}

void Decoder::input(size_t index, Type type, bool wider) {
    if (index < operands_.size()) {
        input_text(operands_[index], type, wider);
    }
}

void Decoder::output(size_t index, Type type, bool wider) {
    if (index < operands_.size()) {
        output_text(operands_[index], type, wider);
    }
}

// [%rd1+16], [%r1], [name], [name+8]: the first input is the base, the rest is the displacement.
void Decoder::address(size_t index, bool parameter, int64_t *displacement) {
    int64_t &added = displacement ? *displacement : instruction_->displacement;
    const std::string text = index < operands_.size() ? operands_[index] : "";
    if (text.size() < 3 || text.front() != '[' || text.back() != ']') {
        refuse("operand " + text + " is not an address");
        return;
    }
    const std::string inner = trimmed(text.substr(1, text.size() - 2));
    const size_t sign = inner.find_first_of("+-", 1);
    const std::string base = trimmed(inner.substr(0, sign));
    if (sign != std::string::npos) {
        std::string digits = inner.substr(sign + (inner[sign] == '+' ? 1 : 0));
        digits.erase(std::remove(digits.begin(), digits.end(), ' '), digits.end());
        if (!parse_integer(digits, added)) {
            refuse("the displacement of " + text + " is not a number");
        }
    }
    const Name *known = name(base);
    if (parameter != (known && known->space == Space::param)) {
        refuse("operand " + text + (parameter ? " is not a parameter" : " is a parameter"));
    } else if (parameter) {
        added += static_cast<int64_t>(known->address);
    } else {
        Operand register_operand;
        const bool narrow = find_register(base, register_operand) && register_operand.width == 4;
        input_text(base, narrow ? Type::b32 : Type::b64);
    }
}

bool Decoder::list(size_t index, Type type, size_t count, bool is_output) {
    const std::string text = index < operands_.size() ? operands_[index] : "";
    const bool braces = text.size() > 1 && text.front() == '{' && text.back() == '}';
    const std::vector<std::string> parts = braces ? split_operands(text.substr(1, text.size() - 2)) : std::vector<std::string>();
    if (parts.size() != count) {
        refuse("operand " + text + " has " + std::to_string(parts.size()) + " registers, expected " + std::to_string(count));
        return false;
    }
    for (const std::string &part : parts) {
        is_output ? output_text(part, type) : input_text(part, type);
    }
    return true;
}

bool Decoder::decode(const Statement &statement, Instruction &instruction) {
    instruction.text = statement.text;
    instruction.line = statement.line;
    instruction.index = static_cast<int32_t>(kernel_.code.size());
    instruction_ = &instruction;
    problem_.clear();
    operands_.clear();
    std::string rest = statement.text;
    if (rest[0] == '@') {
        const size_t space = rest.find(' ');
        instruction.guard = resolve(rest.substr(1, space - 1), Type::pred, false);
        rest = space == std::string::npos ? "" : trimmed(rest.substr(space));
    }
    const size_t space = rest.find(' ');
    instruction.opcode = rest.substr(0, space);
    operands_ = space == std::string::npos ? std::vector<std::string>() : split_operands(rest.substr(space));
    Modifiers modifiers(instruction.opcode);
    if (modifiers.base() == "bra" && expect(1)) {
        instruction.flow = Flow::branch;
        instruction.uniform = modifiers.take("uni");
        jumps_.emplace_back(instruction.index, operands_[0]);
    } else {
        bool known = false;
        for (auto family : {decode_move, decode_memory, decode_float, decode_integer, decode_compare, decode_convert, decode_bits,
                            decode_half, decode_async, decode_matrix, decode_memory_barrier, decode_warpgroup, decode_warp}) {
            Modifiers copy = modifiers;
            if (family(*this, copy)) {
                known = true;
                modifiers = copy;
                break;
            }
        }
        if (!known) {
            refuse("the opcode is not known");
        }
    }
    if (!modifiers.finished()) {
        refuse("a modifier of the opcode is not known here");
    }
    return problem_.empty();
}

bool Decoder::finish_labels(const std::map<std::string, int32_t> &labels) {
    for (const auto &[index, label] : jumps_) {
        const auto found = labels.find(label);
        if (found == labels.end()) {
            problem_ = "line " + std::to_string(kernel_.code[static_cast<size_t>(index)].line) + ": there is no label " + label;
            return false;
        }
        kernel_.code[static_cast<size_t>(index)].target = found->second;
    }
    return true;
}

} // namespace polyhead::cuda_driver
