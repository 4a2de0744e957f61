// The text of a device: calls are found, and instructions written in their place.
#include "device_calls.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "../machines/device_calls.h"

namespace polyhead::gen {

namespace {

using Lines = std::vector<std::string>;

[[noreturn]] void refuse(const std::string &why) {
    throw std::runtime_error("device code: " + why);
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool begins(const std::string &text, const std::string &with) {
    return text.compare(0, with.size(), with) == 0;
}

// The words of a line of PTX: registers, names, numbers.
Lines words_of(const std::string &line) {
    Lines words;
    std::string word;
    for (const char c : line + " ") {
        const bool of_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '%' ||
                             c == '.' || c == '-' || c == '$';
        if (of_word) {
            word += c;
        } else if (!word.empty()) {
            words.push_back(word);
            word.clear();
        }
    }
    return words;
}

// A call as LLVM writes it: a block of lines from "{ // callseq 3, 0" to "} // callseq 3".
struct CallSite {
    size_t first = 0, last = 0; // its lines
    std::string name;           // without the prefix
    Lines arguments;
    std::string result; // empty where nothing reads it
};

// What is written in the place of a call.
struct Instruction {
    std::string arguments;
    Result result;
    std::string text, each, after;
};

std::string list(const std::string &registers, int count) {
    return "$" + registers + ":" + std::to_string(count);
}

// {sums}, a, b, what is added to. part_of_a, part_of_b: the upper part, 0, or the lower, 1, whose words lie behind it.
std::string multiplied(const Product &product, int part_of_a, int part_of_b, bool may_begin) {
    const int words_a = product.stored_words_of_a(), words_b = product.stored_words_of_b(), sums = product.sums_of_lane();
    const auto part = [](const char *argument, int first, int count) {
        return list(argument + (first > 0 ? "+" + std::to_string(first) : ""), count);
    };
    return std::string(product.name) + " " + list("0", sums) + ", " + part("1", part_of_a * words_a, words_a) + ", " +
           part("2", part_of_b * words_b, words_b) + ", " + (may_begin ? "$!" + std::to_string(sums) : list("0", sums)) + ";";
}

// The small products first.
std::string multiplied_in_parts(const Product &product) {
    return multiplied(product, 1, 0, true) + "\n" + multiplied(product, 0, 1, false) + "\n" + multiplied(product, 0, 0, false);
}

// A product of four warps: {sums}, a, b, whether it adds, 1, 1, (rows of a along m,) rows of b along n
Instruction group_instruction(const Product &product, bool a_in_memory) {
    const std::string a = a_in_memory ? "%matrix_a" : list("2", product.words_of_a());
    return {a_in_memory ? group_arguments_of_memory : group_arguments, Result::none,
            std::string(group_product_text) + (a_in_memory ? matrix_a_text : "") + product.name + " $*, " + a + ", %matrix_b, %plus, 1, 1" +
                (a_in_memory ? ", 0" : "") + ", $4;\n}",
            "", ""};
}

Instruction instruction_of(const std::string &name) {
    const CalledProduct called = product_called(name);
    if (const Product *product = called.product) {
        if (product->held_by == Holder::group) {
            return group_instruction(*product, called.of_memory);
        }
        return {product_arguments, Result::none, product->parts() == 1 ? multiplied(*product, 0, 0, true) : multiplied_in_parts(*product),
                "", ""};
    }
    const DeviceCall *call = device_call_named(name);
    if (!call) {
        refuse("the call " + name + " is not known");
    }
    return {call->arguments, call->result, call->text, call->each, call->after};
}

// One kernel: the lines from ".entry" to the closing brace of its body.
class Kernel {
public:
    Kernel(Lines *lines, size_t entry, size_t end, int *calls_before) : lines_(*lines), entry_(entry), end_(end), calls_(*calls_before) {}

    void run(CallCounts *counts, WrittenCode *code, const std::map<std::string, int> &threads) {
        find();
        if (sites_.empty()) {
            return;
        }
        for (const CallSite &site : sites_) {
            (*counts)[site.name]++;
            write(site);
        }
        drop_loads();
        const std::string name = words_of(lines_[entry_]).at(2);
        const auto known = threads.find(name);
        declare(known == threads.end() ? 0 : known->second);
        code->shared_bytes[name] = shared_bytes_;
    }

private:
    // What a register holds: found by the instructions that write it.
    struct Register {
        int written = 0, named = 0; // lines that write it; how often any line names it
        std::string literal;        // of the last that writes it
        size_t load = 0;            // the line that loads it; 0: none
        int addresses = 0;          // calls that take the address of that load
    };

    Lines &lines_;
    size_t entry_, end_, body_ = 0;
    int &calls_;
    std::vector<CallSite> sites_;
    std::map<std::string, Register> registers_;
    int floats_ = 0, words_ = 0, shared_bytes_ = 0;
    bool unread_ = false;
    std::map<std::string, std::string> addresses_; // of loads, by the register that they load

    void find() {
        for (size_t at = entry_; at < end_; at++) {
            body_ = body_ == 0 && lines_[at] == "{" ? at : body_;
            const bool call = lines_[at].find("{ // callseq ") != std::string::npos;
            call ? find_call(&at) : note(at);
        }
    }

    void find_call(size_t *at) {
        CallSite site;
        site.first = *at;
        bool ours = false;
        for (; *at < end_ && lines_[*at].find("} // callseq ") == std::string::npos; ++*at) {
            const std::string &line = lines_[*at];
            const Lines words = words_of(line);
            for (const std::string &word : words) {
                registers_[word].named += word[0] == '%' ? 1 : 0;
            }
            if (words.empty()) {
                continue;
            }
            if (begins(words[0], "st.param.") && words.size() == 3) {
                site.arguments.push_back(words[2]);
            } else if (begins(words[0], "ld.param.") && words.size() == 3) {
                site.result = words[1];
                registers_[words[1]].written++;
            } else if (begins(words[0], "call.")) {
                const auto name =
                    std::find_if(words.begin(), words.end(), [](const std::string &w) { return begins(w, device_call_prefix); });
                ours = name != words.end();
                site.name = ours ? name->substr(std::string(device_call_prefix).size()) : "";
            }
        }
        site.last = *at;
        if (ours) {
            sites_.push_back(site);
        }
    }

    void note(size_t at) {
        const Lines words = words_of(lines_[at]);
        for (size_t i = 0; i < words.size(); i++) {
            registers_[words[i]].named += words[i][0] == '%' ? 1 : 0;
        }
        if (words.size() < 2 || words[1][0] != '%' || lines_[at].find('[') < lines_[at].find(words[1])) {
            return;
        }
        Register &written = registers_[words[1]];
        written.written++;
        written.literal = begins(words[0], "mov.b") && words.size() == 3 ? words[2] : "";
        written.load = begins(words[0], "ld.global.") && words[0].find(".v") == std::string::npos ? at : 0; // of one element
    }

    int literal(const CallSite &site, size_t argument) const {
        std::string text = site.arguments[argument];
        if (text[0] == '%') {
            const auto found = registers_.find(text);
            text = found->second.written == 1 ? found->second.literal : "";
        }
        int value = 0;
        const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
        if (text.empty() || read.ec != std::errc() || *read.ptr != 0 || value < 0 || value > most_literal) {
            refuse(site.name + ": argument " + std::to_string(argument) + " is " + site.arguments[argument] +
                   ", expected a number of the program from 0 to " + std::to_string(most_literal));
        }
        return value;
    }
    static constexpr int most_literal = 1 << 20;

    std::string slot(char kind, int number) {
        int &most = kind == 'f' ? floats_ : words_;
        most = std::max(most, number + 1);
        return std::string(kind == 'f' ? "%polyhead_f" : "%polyhead_w") + std::to_string(number);
    }
    std::string slots(char kind, int first, int count) {
        std::string text;
        for (int i = 0; i < count; i++) {
            text += (i ? ", " : "{") + slot(kind, first + i);
        }
        return text + "}";
    }

    // The address of the load of an element, in a register of its own: the registers of the load may be written again before the call.
    std::string address(const CallSite &site, size_t argument) {
        const std::string &loaded = site.arguments[argument];
        const auto found = registers_.find(loaded);
        if (loaded[0] != '%' || found == registers_.end() || found->second.written != 1 || found->second.load == 0) {
            refuse(site.name + ": argument " + std::to_string(argument) + " is " + loaded + ", expected an element of a tensor");
        }
        found->second.addresses++;
        std::string &known = addresses_[loaded];
        if (known.empty()) {
            const std::string &line = lines_[found->second.load];
            const size_t open = line.find('['), close = line.find(']');
            const std::string inner = line.substr(open + 1, close - open - 1);
            const size_t plus = inner.find('+');
            known = "%polyhead_a" + std::to_string(addresses_.size() - 1);
            lines_[found->second.load] += "\n\tadd.s64 " + known + ", " + inner.substr(0, plus) + ", " +
                                          (plus == std::string::npos ? "0" : inner.substr(plus + 1)) + ";";
        }
        return known;
    }

    void write(const CallSite &site) {
        const Instruction instruction = instruction_of(site.name);
        if (site.arguments.size() != instruction.arguments.size()) {
            refuse(site.name + " has " + std::to_string(site.arguments.size()) + " arguments, expected " +
                   std::to_string(instruction.arguments.size()));
        }
        calls_++;
        if (site.name == "shared_memory") {
            shared_bytes_ = std::max(shared_bytes_, literal(site, 0));
        }
        std::string text = filled(site, instruction, instruction.text, 0);
        const auto add = [&text](const std::string &more) { text += (text.empty() || more.empty() ? "" : "\n") + more; };
        const int count = instruction.each.empty() ? 0 : literal(site, 1);
        if (count % 4 != 0) {
            refuse(site.name + ": argument 1 is " + std::to_string(count) + ", expected a multiple of 4");
        }
        for (int further = 0; further < count; further += 4) {
            add(filled(site, instruction, instruction.each, further));
        }
        add(filled(site, instruction, instruction.after, 0));
        if (instruction.result == Result::none && !site.result.empty()) {
            add("mov.b32 " + site.result + ", 0;");
        }
        for (size_t at = site.first; at <= site.last; at++) {
            lines_[at].clear();
        }
        lines_[site.first] = text;
    }

    std::string filled(const CallSite &site, const Instruction &instruction, const std::string &from, int further) {
        std::string text;
        for (size_t at = 0; at < from.size(); at++) {
            const char next = from[at] == '$' && at + 1 < from.size() ? from[at + 1] : ' ';
            if (next == '=') {
                unread_ = unread_ || site.result.empty();
                text += site.result.empty() ? "%polyhead_unread" : site.result;
                at++;
            } else if (next == '#') {
                text += std::to_string(calls_);
                at++;
            } else if (next == '+' || next == '>') {
                text += std::to_string(further * (next == '+' ? 4 : 8));
                at++;
            } else if (next == '[') {
                text += slot('f', literal(site, 0) + further + (from[at + 2] - '0'));
                at += 3;
            } else if (next == '*') { // sums of two rows of each 4 columns
                text += slots('f', literal(site, 0), columns(site) / 2);
                at++;
            } else if (next == '!') { // sums of a product, or as many zeros
                const int count = from[at + 2] - '0';
                text += literal(site, 3) == 0 ? slots('f', literal(site, 0), count) : zeros(count);
                at += 2;
            } else if (is_digit(next)) {
                const auto argument = static_cast<size_t>(next - '0');
                const bool later = at + 3 < from.size() && from[at + 2] == '+' && is_digit(from[at + 3]); // "$1+4", "$1+4:4"
                const size_t end = at + (later ? 4 : 2);
                const bool many = end + 1 < from.size() && from[end] == ':';
                text += operand(site, instruction.arguments[argument], argument, many ? from[end + 1] - '0' : 0,
                                later ? from[at + 3] - '0' : 0);
                at = end - 1 + (many ? 2 : 0);
            } else {
                text += from[at];
            }
        }
        return text;
    }

    int columns(const CallSite &site) const {
        const int count = literal(site, 1);
        if (count % 8 != 0 || count == 0 || count > widest_group_product) {
            refuse(site.name + ": argument 1 is " + std::to_string(count) + ", expected a multiple of 8 up to " +
                   std::to_string(widest_group_product));
        }
        return count;
    }

    static std::string zeros(int count) {
        std::string text;
        for (int i = 0; i < count; i++) {
            text += i ? ", %polyhead_zero" : "{%polyhead_zero";
        }
        return text + "}";
    }

    // many: how many registers from the `later`th on, as a list; 0: the operand alone.
    std::string operand(const CallSite &site, char kind, size_t argument, int many, int later) {
        if (kind == 'f' || kind == 'w') {
            const int first = literal(site, argument) + later;
            return many == 0 ? slot(kind, first) : slots(kind, first, many);
        }
        return kind == 'n' || kind == 'c' ? std::to_string(literal(site, argument))
               : kind == 'e'              ? address(site, argument)
                                          : site.arguments[argument];
    }

    // What is loaded for its address is not loaded: it need not exist where a copy reads 0 bytes of it.
    void drop_loads() {
        for (const auto &[name, found] : registers_) {
            if (found.addresses > 0) {
                if (found.named != 1 + found.addresses) {
                    refuse("the element in " + name + ", of which a call takes the address, is read besides");
                }
                std::string &line = lines_[found.load];
                line = line.substr(line.find('\n') + 1);
            }
        }
    }

    void declare(int threads) {
        if (threads > 0) {
            lines_[body_ - 1] += "\n.maxntid " + std::to_string(threads);
        }
        std::string &text = lines_[body_];
        text += "\n\t.reg .b32 %polyhead_zero;\n\tmov.b32 %polyhead_zero, 0;";
        const auto add = [&text](const char *type, const char *name, int count) {
            text += count > 0 ? std::string("\n\t.reg .") + type + " %polyhead_" + name + "<" + std::to_string(count) + ">;" : "";
        };
        add("f32", "f", floats_);
        add("b32", "w", words_);
        add("b64", "a", static_cast<int>(addresses_.size()));
        text += unread_ ? "\n\t.reg .b32 %polyhead_unread;" : "";
    }
};

Lines lines_of(const std::string &text) {
    Lines lines(1);
    for (const char c : text) {
        if (c == '\n') {
            lines.emplace_back();
        } else {
            lines.back() += c;
        }
    }
    return lines;
}

// LLVM declares what a module calls: ".extern .func (...) NAME", its parameters, ";".
void drop_declarations(Lines *lines) {
    for (size_t at = 0; at < lines->size(); at++) {
        if (begins((*lines)[at], ".extern .func") && (*lines)[at].find(device_call_prefix) != std::string::npos) {
            for (bool last = false; !last && at < lines->size(); at++) {
                last = (*lines)[at] == ";";
                (*lines)[at].clear();
            }
            at--;
        }
    }
}

void compare(const CallCounts &found, const CallCounts &lowered) {
    CallCounts all = found;
    all.insert(lowered.begin(), lowered.end());
    for (const auto &[name, count] : all) {
        const auto of = [name = name](const CallCounts &counts) { return counts.count(name) ? counts.at(name) : 0; };
        if (of(found) != of(lowered)) {
            refuse(name + " is called " + std::to_string(of(found)) + " times, expected " + std::to_string(of(lowered)) +
                   " as in the lowered statement");
        }
    }
}

} // namespace

WrittenCode with_instructions(const std::string &ptx, const CallCounts &lowered, const std::map<std::string, int> &threads) {
    WrittenCode code;
    CallCounts found;
    Lines lines = lines_of(ptx);
    int calls = 0;
    size_t header = 0;
    for (size_t at = 0; at < lines.size(); at++) {
        header = begins(lines[at], ".address_size") ? at : header;
        if (lines[at].find(".entry ") == std::string::npos) {
            continue;
        }
        const size_t end =
            static_cast<size_t>(std::find(lines.begin() + static_cast<std::ptrdiff_t>(at), lines.end(), "}") - lines.begin());
        Kernel(&lines, at, end, &calls).run(&found, &code, threads);
        at = end;
    }
    compare(found, lowered);
    drop_declarations(&lines);
    const bool shares = std::any_of(code.shared_bytes.begin(), code.shared_bytes.end(), [](const auto &k) { return k.second > 0; });
    if (shares) {
        lines[header] +=
            std::string("\n.extern .shared .align ") + std::to_string(device_shared_alignment) + " .b8 " + device_shared_memory + "[];";
    }
    for (const std::string &line : lines) {
        code.text += line.empty() ? "" : line + "\n";
    }
    if (code.text.find(device_call_prefix) != std::string::npos) {
        const std::string rest = code.text.substr(code.text.find(device_call_prefix));
        refuse("the call " + words_of(rest.substr(0, rest.find('\n'))).at(0) + " is left over");
    }
    return code;
}

} // namespace polyhead::gen
