// Jobs and answers between the asking process and the compiler, as JSON.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "../plan/variant_facts.h"

namespace polyhead::tools {

using Json = nlohmann::json;

Json facts_json(const gen::VariantFacts &facts);
// Throws Json's exceptions where one is missing.
void read_facts(const Json &j, gen::VariantFacts *facts);
// As CBOR, whose strings may hold the bytes of any path.
std::string text_of(const Json &j);
// Neither an object nor an answer where the text is something else.
Json json_of(const std::string &text);
// Both processes are of the same build.
std::string build_of_jobs();

} // namespace polyhead::tools
