// Turns the text of one instruction into an Instruction: the part that all families of opcodes share.
#ifndef POLYHEAD_INSTRUMENTS_CUDA_DRIVER_DECODER_H
#define POLYHEAD_INSTRUMENTS_CUDA_DRIVER_DECODER_H

#include "program.h"
#include "statements.h"

#include <map>
#include <string>
#include <vector>

namespace polyhead::cuda_driver {

// The modifiers of an opcode. A family takes its own modifiers; with any other one the opcode is unknown.
class Modifiers {
public:
    explicit Modifiers(const std::string &opcode) : words_(split_at(opcode, '.')) {}
    const std::string &base() const { return words_.front(); }
    bool take(const char *word);
    bool take_type(Type &type); // the first word that is a type
    // Index of the one of these that is there; -1 for none.
    int take_one_of(std::initializer_list<const char *> words);
    bool finished() const { return words_.size() == 1; }

private:
    std::vector<std::string> words_;
};

struct Name { // of something with an address: a variable of the kernel or of the module, a parameter
    Space space = Space::shared;
    uint64_t address = 0;
    size_t bytes = 0;
};

// What is known while the instructions of one kernel are decoded.
class Decoder {
public:
    explicit Decoder(Kernel &kernel) : kernel_(kernel) { scopes_.emplace_back(); }

    void open_scope() { scopes_.emplace_back(); }
    void close_scope() { scopes_.pop_back(); }
    bool declare_registers(const std::string &declaration); // ".reg .b32 %r<20>"
    void declare(const std::string &name, const Name &what) { names_[name] = what; }

    // False with a sentence in problem().
    bool decode(const Statement &statement, Instruction &instruction);
    bool finish_labels(const std::map<std::string, int32_t> &labels);
    const std::string &problem() const { return problem_; }

    // For the families. A mistake sets problem() and gives an operand that does no harm.
    const std::vector<std::string> &operands() const { return operands_; }
    bool expect(size_t count);
    // widths: bytes of the value; wider: a register may be larger than the value (loads, stores, conversions).
    void input(size_t index, Type type, bool wider = false);
    void output(size_t index, Type type, bool wider = false);
    void input_text(const std::string &text, Type type, bool wider = false);
    void output_text(const std::string &text, Type type, bool wider = false);
    // Of the displacement, an instruction with two addresses gives the place of the second.
    void address(size_t index, bool parameter, int64_t *displacement = nullptr);
    // {%r1, %r2}: so many registers.
    bool list(size_t index, Type type, size_t count, bool is_output);
    void set(Execute execute) { instruction_->execute = execute; }
    Instruction &instruction() { return *instruction_; }
    Kernel &kernel() { return kernel_; }
    void refuse(const std::string &why) {
        if (problem_.empty()) {
            problem_ = why;
        }
    }
    const Name *name(const std::string &text) const;

private:
    Operand add_register(int width);
    Operand constant(uint64_t bits, int width);
    bool find_register(const std::string &text, Operand &operand);
    bool literal(const std::string &text, Type type, uint64_t &bits);
    bool special(const std::string &text, Operand &operand);
    Operand resolve(std::string text, Type type, bool wider);

    Kernel &kernel_;
    Instruction *instruction_ = nullptr;
    std::vector<std::string> operands_;
    std::vector<std::map<std::string, Operand>> scopes_;
    std::map<std::pair<uint64_t, int>, Operand> constants_;
    std::map<std::string, Operand> specials_;
    std::map<std::string, Name> names_;
    std::vector<std::pair<int32_t, std::string>> jumps_; // instruction, label
    std::string problem_;
};

// The families. False: the base of the opcode is none of theirs.
bool decode_integer(Decoder &decoder, Modifiers &modifiers);
bool decode_bits(Decoder &decoder, Modifiers &modifiers);
bool decode_float(Decoder &decoder, Modifiers &modifiers);
bool decode_half(Decoder &decoder, Modifiers &modifiers);
bool decode_compare(Decoder &decoder, Modifiers &modifiers);
bool decode_convert(Decoder &decoder, Modifiers &modifiers);
bool decode_move(Decoder &decoder, Modifiers &modifiers);
bool decode_memory(Decoder &decoder, Modifiers &modifiers);
bool decode_async(Decoder &decoder, Modifiers &modifiers);
bool decode_matrix(Decoder &decoder, Modifiers &modifiers);
bool decode_memory_barrier(Decoder &decoder, Modifiers &modifiers);
bool decode_warpgroup(Decoder &decoder, Modifiers &modifiers);
bool decode_warp(Decoder &decoder, Modifiers &modifiers);

} // namespace polyhead::cuda_driver
#endif
