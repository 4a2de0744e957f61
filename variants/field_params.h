// The fields of a problem as parameters of a Halide generator.
#pragma once

#include <array>
#include <optional>

#include <Halide.h>

#include "../contract/problem_fields.h"
#include "../generators/problem.h"

namespace polyhead::gen {

// A parameter for each field. Halide finds those that lie inside of a generator.
struct FieldParams {
    std::array<std::optional<Halide::GeneratorParam<int>>, contract::num_problem_fields> params;

    FieldParams() {
        for (size_t i = 0; i < params.size(); i++) {
            params[i].emplace(contract::problem_fields[i].name, 0);
        }
    }
    Problem problem() const {
        Problem p{};
        for (size_t i = 0; i < params.size(); i++) {
            p.*contract::problem_fields[i].value = *params[i];
        }
        return p;
    }
};

} // namespace polyhead::gen
