# The code that knows what a kernel computes (generators/), how a machine runs it (schedules/), and makes Variants of both (variants/).
find_package(nlohmann_json REQUIRED)

# Records of variants/tuning/records/ go into the program as text.
file(
    GLOB _polyhead_records
    CONFIGURE_DEPENDS
    RELATIVE "${PROJECT_SOURCE_DIR}/variants/tuning/records"
    "${PROJECT_SOURCE_DIR}/variants/tuning/records/*.json"
)
set(_polyhead_shipped "")
foreach(name IN LISTS _polyhead_records)
    set(path "${PROJECT_SOURCE_DIR}/variants/tuning/records/${name}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
    file(READ "${path}" json)
    string(APPEND _polyhead_shipped "        {\"${name}\", R\"records(${json})records\"},\n")
endforeach()
set(_polyhead_shipped_records "${CMAKE_BINARY_DIR}/polyhead_shipped_records.cpp")
file(
    CONFIGURE
    OUTPUT "${_polyhead_shipped_records}"
    CONTENT
        "// The files of variants/tuning/records/, written by cmake/polyhead_generators.cmake.
#include \"variants/tuning/shipped_records.h\"

namespace polyhead::gen {

const std::vector<ShippedRecordsFile> &shipped_records_files() {
    static const auto *const files = new std::vector<ShippedRecordsFile>{
@_polyhead_shipped@    };
    return *files;
}

} // namespace polyhead::gen
"
    @ONLY
)

add_library(
    polyhead_generators_code
    STATIC
    generators/expressions/bounds.cpp
    generators/expressions/expression.cpp
    generators/expressions/parser.cpp
    generators/expressions/program.cpp
    generators/expressions/source.cpp
    generators/expressions/tokens.cpp
    generators/expressions/types.cpp
    generators/expressions/values.cpp
    generators/formulas.cpp
    generators/frames/attention_stages.cpp
    generators/frames/head_lanes.cpp
    generators/frames/plain.cpp
    generators/frames/query_lanes.cpp
    generators/frames/rows.cpp
    generators/frames/seen_keys.cpp
    generators/frames/transposed.cpp
    generators/layer.cpp
    generators/linear.cpp
    generators/numerics.cpp
    generators/problem.cpp
    generators/score_output.cpp
    schedules/autoschedule.cpp
    schedules/device_asserts.cpp
    schedules/head_lanes_cpu.cpp
    schedules/linear_cpu.cpp
    schedules/linear_gpu.cpp
    schedules/machine.cpp
    schedules/query_lanes_cpu.cpp
    schedules/rows_gpu.cpp
    schedules/score_output_cpu.cpp
    schedules/score_output_gpu.cpp
    schedules/tiling.cpp
    variants/compile.cpp
    variants/compiler_warnings.cpp
    variants/frames/frames.cpp
    variants/frames/head_lanes.cpp
    variants/frames/limits.cpp
    variants/frames/plain.cpp
    variants/frames/query_lanes.cpp
    variants/frames/rows.cpp
    variants/kernel_generator.cpp
    variants/knob_rules.cpp
    variants/plan.cpp
    variants/schedule_kernel.cpp
    variants/scratch_terms.cpp
    variants/target.cpp
    variants/task_scratch.cpp
    variants/tuning/plan_records.cpp
    variants/tuning/tiling_space.cpp
    variants/tuning/tuned_records.cpp
    "${_polyhead_shipped_records}"
)
# Exprs are built from plain ints and floats all over: conversion warnings would bury the formulas. Halide itself is not sanitized.
polyhead_target_defaults(polyhead_generators_code NO_CONVERSION NO_SANITIZE)
target_include_directories(
    polyhead_generators_code
    PUBLIC
        "${PROJECT_SOURCE_DIR}"
        "${PROJECT_SOURCE_DIR}/runtime/include"
        "${PROJECT_SOURCE_DIR}/generators/include"
)
target_link_libraries(
    polyhead_generators_code
    PUBLIC Halide::Halide ${CMAKE_DL_LIBS}
    PRIVATE nlohmann_json::nlohmann_json
)

# What others link: the whole archive, because the generator registers itself and nothing refers to it by name.
add_library(polyhead_generators INTERFACE)
target_link_libraries(
    polyhead_generators
    INTERFACE $<LINK_LIBRARY:WHOLE_ARCHIVE,polyhead_generators_code>
)

# Where <polyhead/expression_source.h> lies, for EXPRESSION_SOURCE of polyhead_add_kernel().
set(POLYHEAD_EXPRESSION_INCLUDE_DIR "${PROJECT_SOURCE_DIR}/generators/include" CACHE INTERNAL "")
