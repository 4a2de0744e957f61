// Messages about what several knobs take together.
#include "limits.h"

#include <cstdarg>
#include <cstdio>

namespace polyhead::gen {

std::string at_most(const std::string &what, int64_t found, int64_t most, const std::string &unit) {
    return found <= most ? ""
                         : "tiling: " + what + " take " + std::to_string(found) + " " + unit + ", expected at most " + std::to_string(most);
}

std::string needs_registers(const char *what, int accumulators, int others, const Machine &machine) {
    return accumulators + others <= machine.registers
               ? ""
               : "tiling: " + std::string(what) + " take " + std::to_string(accumulators) + " + " + std::to_string(others) +
                     " registers, expected at most " + std::to_string(machine.registers);
}

std::string sentence(const char *format, ...) {
    char text[300];
    va_list values;
    va_start(values, format);
    std::vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return text;
}

std::string first_of(std::initializer_list<std::string> sentences) {
    for (const std::string &sentence : sentences) {
        if (!sentence.empty()) {
            return sentence;
        }
    }
    return "";
}

std::string groups_refusal(const Problem &p, const Tiling &t) {
    return p.dropout != 0 && t.kv_tile % dropout_group != 0
               ? sentence("tiling: kv_tile %d is not a multiple of the %d keys whose dropout is decided together", t.kv_tile, dropout_group)
               : "";
}

} // namespace polyhead::gen
