// Parses a PTX module: directives, variables, kernels and their declarations.
#include "load.h"
#include "decoder.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace polyhead::cuda_driver {

namespace {

// ".shared .align 16 .b8 name[64] = {1, 2}" and ".param .u64 .ptr .align 1 name" in pieces.
struct Declaration {
    Type type = Type::b8;
    size_t alignment = 1, elements = 1;
    std::string name, values;
    bool valid = false;
};

Declaration parse_declaration(const std::string &text) {
    Declaration declaration;
    const size_t equals = text.find('=');
    declaration.values = equals == std::string::npos ? "" : trimmed(text.substr(equals + 1));
    std::vector<std::string> words = split_at(trimmed(text.substr(0, equals)), ' ');
    bool typed = false, aligned = false;
    for (size_t at = 0; at + 1 < words.size(); at++) {
        Modifiers word("declaration" + words[at]);
        if (words[at] == ".align") {
            declaration.alignment = static_cast<size_t>(std::atoi(words[++at].c_str()));
            aligned = true;
        } else if (!typed && word.take_type(declaration.type)) {
            typed = true;
        }
    }
    declaration.name = words.back();
    const size_t bracket = declaration.name.find('[');
    if (bracket != std::string::npos) {
        declaration.elements = static_cast<size_t>(std::atoi(declaration.name.c_str() + bracket + 1));
        declaration.name.resize(bracket);
    }
    if (!aligned || text.find(".ptr") != std::string::npos) { // .align behind .ptr is that of the memory it points to
        declaration.alignment = static_cast<size_t>(bytes_of(declaration.type));
    }
    declaration.valid = typed && declaration.alignment > 0 && !declaration.name.empty();
    return declaration;
}

constexpr int first_with_reserved = 90;
constexpr size_t reserved_shared = 1024;

size_t round_up(size_t value, size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

class Loader {
public:
    Loader(int capability, DeviceMemory &memory, const void *owner, Module &module, std::string &problem)
        : capability_(capability), memory_(memory), owner_(owner), module_(module), problem_(problem) {}

    LoadResult run(const std::string &ptx) {
        statements_ = split_statements(ptx);
        LoadResult result = LoadResult::ok;
        while (at_ < statements_.size() && result == LoadResult::ok) {
            result = one(statements_[at_]);
            at_++;
        }
        if (result == LoadResult::ok && (!versioned_ || module_.capability == 0)) {
            return invalid("the module does not begin with .version and .target");
        }
        return result;
    }

private:
    LoadResult invalid(const std::string &why) {
        const int line = at_ < statements_.size() ? statements_[at_].line : 0;
        problem_ = "PTX line " + std::to_string(line) + ": " + why;
        return LoadResult::invalid;
    }

    LoadResult one(const Statement &statement) {
        const std::string &text = statement.text;
        if (starts_with(text, ".version")) {
            module_.version = std::atof(text.c_str() + 8);
            versioned_ = true;
            return module_.version >= 1.0 && module_.version < 10.0 ? LoadResult::ok : invalid("the version of PTX is not known: " + text);
        }
        if (starts_with(text, ".target")) {
            const size_t number = text.find("sm_");
            module_.capability = number == std::string::npos ? 0 : std::atoi(text.c_str() + number + 3);
            module_.exact = text.back() == 'a';
            if (module_.capability > capability_ || (module_.exact && module_.capability != capability_)) {
                problem_ = "the code is for compute capability " + std::to_string(module_.capability) + (module_.exact ? " alone" : "") +
                           ", the device has " + std::to_string(capability_);
                return LoadResult::too_new;
            }
            return module_.capability > 0 ? LoadResult::ok : invalid("the target is not known: " + text);
        }
        if (starts_with(text, ".address_size")) {
            return text.find("64") != std::string::npos ? LoadResult::ok : invalid("only addresses of 64 bits are known");
        }
        if (text.find(".entry ") != std::string::npos) {
            return kernel(statement);
        }
        if (text.find(".func ") != std::string::npos) {
            return skip_body();
        }
        const bool visible = starts_with(text, ".visible ") || starts_with(text, ".weak ") || starts_with(text, ".extern ");
        const std::string declaration = visible ? trimmed(text.substr(text.find(' '))) : text;
        for (const char *space : {".global ", ".const ", ".shared "}) {
            if (starts_with(declaration, space)) {
                return variable(declaration, space[1] == 'g' ? Space::global : space[1] == 'c' ? Space::constant : Space::shared);
            }
        }
        return starts_with(text, ".file") || starts_with(text, ".loc") ? LoadResult::ok : invalid("not understood: " + text);
    }

    // A function is not known; a kernel that calls it will not start, because `call` is not known either.
    LoadResult skip_body() {
        if (at_ + 1 >= statements_.size() || statements_[at_ + 1].kind != Statement::open) {
            return LoadResult::ok;
        }
        int depth = 0;
        do {
            at_++;
            depth += statements_[at_].kind == Statement::open ? 1 : statements_[at_].kind == Statement::close ? -1 : 0;
        } while (depth > 0 && at_ + 1 < statements_.size());
        return LoadResult::ok;
    }

    LoadResult variable(const std::string &text, Space space) {
        const Declaration declaration = parse_declaration(text);
        const size_t width = static_cast<size_t>(bytes_of(declaration.type));
        if (!declaration.valid) {
            return invalid("not understood: " + text);
        }
        if (space == Space::shared) {
            shared_.push_back(declaration);
            return LoadResult::ok;
        }
        std::vector<char> bytes(width * declaration.elements, 0);
        if (!declaration.values.empty()) {
            const bool list = declaration.values.front() == '{';
            const std::string inner = list ? declaration.values.substr(1, declaration.values.size() - 2) : declaration.values;
            size_t element = 0;
            for (const std::string &value : split_operands(inner)) {
                int64_t number = 0;
                const bool real = starts_with(value, "0f") || starts_with(value, "0d");
                if (real) {
                    number = static_cast<int64_t>(std::strtoull(value.c_str() + 2, nullptr, 16));
                } else if (!parse_integer(value, number)) {
                    return invalid("the value " + value + " is not a number");
                }
                if (element == declaration.elements) {
                    return invalid("more values than elements: " + text.substr(0, 80));
                }
                std::memcpy(bytes.data() + width * element++, &number, width);
            }
        }
        const uint64_t address = memory_.allocate(bytes.size(), owner_);
        if (address == 0) {
            problem_ = "the device has no memory left for " + declaration.name;
            return LoadResult::out_of_memory;
        }
        Allocation *allocation = memory_.find(address, bytes.size());
        std::memcpy(allocation->host.get(), bytes.data(), bytes.size());
        allocation->writable = space == Space::global;
        module_.variables[declaration.name] = {space, bytes, address};
        return LoadResult::ok;
    }

    bool parameters(const std::string &text, Kernel &kernel, Decoder &decoder) {
        const size_t open = text.find('('), close = text.find(')');
        if (open == std::string::npos || close == std::string::npos) {
            return open == close;
        }
        for (const std::string &part : split_operands(text.substr(open + 1, close - open - 1))) {
            const Declaration declaration = parse_declaration(part);
            if (!declaration.valid) {
                return false;
            }
            Parameter parameter;
            parameter.bytes = static_cast<size_t>(bytes_of(declaration.type)) * declaration.elements;
            parameter.offset = round_up(kernel.parameter_bytes, declaration.alignment);
            kernel.parameter_bytes = parameter.offset + parameter.bytes;
            kernel.parameters.push_back(parameter);
            decoder.declare(declaration.name, {Space::param, parameter.offset, parameter.bytes});
        }
        return true;
    }

    static void read_block(const std::string &text, const char *directive, int *block) {
        const size_t found = text.find(directive);
        if (found != std::string::npos) {
            block[0] = block[1] = block[2] = 1;
            std::sscanf(text.c_str() + found + std::strlen(directive), " %d , %d , %d", &block[0], &block[1], &block[2]);
        }
    }

    void place(Kernel &kernel, Decoder &decoder, const Declaration &declaration, Space space) {
        size_t &used = space == Space::shared ? kernel.static_shared : kernel.local_bytes;
        const size_t bytes = static_cast<size_t>(bytes_of(declaration.type)) * declaration.elements;
        const size_t base = space == Space::shared ? kernel.shared_base : 0;
        used = round_up(base + used, std::max<size_t>(declaration.alignment, 1)) - base;
        decoder.declare(declaration.name, {space, base + used, bytes});
        used += bytes;
    }

    // What has no size, `.extern .shared .b8 name[]`, is behind all that has one. From capability 9.0 on the first KB is the system's. A
    // kernel that declares none (Halide's own) counts from 0.
    void place_shared(Kernel &kernel, Decoder &decoder) {
        kernel.shared_base = !shared_.empty() && capability_ >= first_with_reserved ? reserved_shared : 0;
        for (const bool sized : {true, false}) {
            for (const Declaration &declaration : shared_) {
                if ((declaration.elements > 0) == sized) {
                    place(kernel, decoder, declaration, Space::shared);
                    kernel.dynamic_name = sized ? kernel.dynamic_name : declaration.name;
                }
            }
        }
    }

    LoadResult kernel(const Statement &statement) {
        Kernel kernel;
        Decoder decoder(kernel);
        const size_t word = statement.text.find(".entry ") + 7;
        kernel.name = trimmed(statement.text.substr(word, statement.text.find_first_of("( .", word) - word));
        read_block(statement.text, ".reqntid", kernel.required_block);
        read_block(statement.text, ".maxntid", kernel.largest_block);
        for (const auto &[name, variable] : module_.variables) {
            decoder.declare(name, {variable.space, variable.address, variable.bytes.size()});
        }
        place_shared(kernel, decoder);
        if (!parameters(statement.text, kernel, decoder)) {
            return invalid("the parameters of " + kernel.name + " are not understood");
        }
        if (at_ + 1 >= statements_.size() || statements_[at_ + 1].kind != Statement::open) {
            return invalid("the kernel " + kernel.name + " has no body");
        }
        at_++;
        const LoadResult result = body(kernel, decoder);
        const Needs &needs = kernel.needs;
        if (needs.capability > module_.capability || (needs.exact && !module_.exact) || needs.version > module_.version) {
            return invalid("the kernel " + kernel.name + " has instructions of sm_" + std::to_string(needs.capability) +
                           (needs.exact ? "a" : "") + " and PTX " + std::to_string(needs.version).substr(0, 3));
        }
        if (result == LoadResult::ok) {
            kernel.local_bytes = round_up(kernel.local_bytes, 16);
            module_.kernels[kernel.name] = std::move(kernel);
        }
        return result;
    }

    LoadResult body(Kernel &kernel, Decoder &decoder) {
        std::map<std::string, int32_t> labels;
        int depth = 1;
        for (at_++; at_ < statements_.size() && depth > 0; at_++) {
            const Statement &statement = statements_[at_];
            if (statement.kind == Statement::open) {
                depth++;
                decoder.open_scope();
            } else if (statement.kind == Statement::close) {
                depth--;
                decoder.close_scope();
            } else if (statement.kind == Statement::label) {
                labels[statement.text] = static_cast<int32_t>(kernel.code.size());
            } else if (statement.text[0] == '.') {
                const LoadResult result = directive(statement.text, kernel, decoder);
                if (result != LoadResult::ok) {
                    return result;
                }
            } else {
                instruction(statement, kernel, decoder);
            }
        }
        at_--; // on the closing brace
        if (depth != 0) {
            return invalid("the body of " + kernel.name + " does not end");
        }
        if (!decoder.finish_labels(labels)) {
            return invalid(decoder.problem());
        }
        Instruction end; // falling off the end is leaving, and a label may stand there
        end.flow = Flow::leave;
        end.index = static_cast<int32_t>(kernel.code.size());
        end.opcode = "ret";
        kernel.code.push_back(end);
        find_reconvergence(kernel);
        return LoadResult::ok;
    }

    LoadResult directive(const std::string &text, Kernel &kernel, Decoder &decoder) {
        if (starts_with(text, ".reg ")) {
            return decoder.declare_registers(text) ? LoadResult::ok : invalid("not understood: " + text);
        }
        for (const char *space : {".local ", ".shared "}) {
            if (starts_with(text, space)) {
                const Declaration declaration = parse_declaration(text);
                if (space[1] == 's' && !kernel.dynamic_name.empty()) {
                    return invalid("shared memory of a known size is declared behind " + kernel.dynamic_name + ", which has none");
                }
                place(kernel, decoder, declaration, space[1] == 'l' ? Space::local : Space::shared);
                return declaration.valid ? LoadResult::ok : invalid("not understood: " + text);
            }
        }
        const bool harmless = starts_with(text, ".loc") || starts_with(text, ".pragma");
        return harmless ? LoadResult::ok : invalid("not understood: " + text);
    }

    // An instruction that is not known stays in the kernel, which then refuses to start.
    static void instruction(const Statement &statement, Kernel &kernel, Decoder &decoder) {
        Instruction instruction;
        if (!decoder.decode(statement, instruction) && kernel.unknown.empty()) {
            kernel.unknown = "kernel " + kernel.name + ", PTX line " + std::to_string(statement.line) + ": \"" + statement.text +
                             "\": " + decoder.problem();
        }
        kernel.code.push_back(std::move(instruction));
    }

    int capability_;
    DeviceMemory &memory_;
    const void *owner_;
    Module &module_;
    std::string &problem_;
    std::vector<Statement> statements_;
    std::vector<Declaration> shared_;
    size_t at_ = 0;
    bool versioned_ = false;
};

} // namespace

LoadResult load_module(const std::string &ptx, int capability, DeviceMemory &memory, const void *owner, Module &module,
                       std::string &problem) {
    if (ptx.find(".version") == std::string::npos) {
        problem = "the image is not PTX";
        return LoadResult::not_ptx;
    }
    return Loader(capability, memory, owner, module, problem).run(ptx);
}

} // namespace polyhead::cuda_driver
