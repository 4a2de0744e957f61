// User expressions written in C++: a text names a source that this process knows as `source NAME`.
#pragma once

#include <memory>
#include <string>

#include "program.h"

namespace polyhead::gen {

// The functions that a source defines; null: it does not.
struct KnownSource {
    std::shared_ptr<const language::SourceFunction> score, mask;
};

// From now on texts of this process may say `source NAME`. Threads may read texts meanwhile.
void know_source(const std::string &name, const KnownSource &source);

namespace language {

// Adds the nodes of a source; false when none of this name is known.
bool add_source(const std::string &name, Program *program);

} // namespace language
} // namespace polyhead::gen
