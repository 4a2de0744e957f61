// What is known of a variant once it is compiled.
#pragma once

#include <string>

#include <polyhead/c_api.h>

#include "../contract/requirements.h"

namespace polyhead::gen {

// Facts of a compiled variant, for polyhead_variant.
struct VariantFacts : contract::Requirements {
    polyhead_scratch scratch{};
};

struct CompiledVariant : VariantFacts {
    std::string symbol, object_path;
};

} // namespace polyhead::gen
