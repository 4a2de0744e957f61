// Limits of the compiler as text.
#include "limits.h"

#include <cstdlib>
#include <cstring>

#include "../plan/text.h"

namespace polyhead::tools {

bool read_limit(const std::string &text, double *value) {
    return gen::read_number(text, value) && *value >= 0 && *value <= 1e9;
}

std::string read_limits(Limits *limits) {
    for (const char *name : {"POLYHEAD_LIMIT_SECONDS", "POLYHEAD_LIMIT_MEGABYTES"}) {
        const char *text = std::getenv(name);
        double value = 0;
        if (!text || !*text) {
            continue;
        }
        if (!read_limit(text, &value)) {
            return std::string(name) + ": found '" + text + "', expected a number from 0 (0: no limit)";
        }
        if (std::strcmp(name, "POLYHEAD_LIMIT_SECONDS") == 0) {
            limits->seconds = value;
        } else {
            limits->megabytes = int64_t(value);
        }
    }
    return "";
}

} // namespace polyhead::tools
