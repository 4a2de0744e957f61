# The code that plans Variants (plan/, without Halide), and the code that builds them: what a kernel computes (generators/), how a machine
# runs it (schedules/), and objects of both (compile/).
foreach(package CLI11 nlohmann_json)
    find_package(${package} QUIET)
    if(NOT ${package}_FOUND)
        message(
            FATAL_ERROR
            "polyhead: ${package} was not found, and the generator needs it: install it (Debian: libcli11-dev nlohmann-json3-dev), or build the runtime alone with -DPOLYHEAD_BUILD_GENERATOR=OFF"
        )
    endif()
endforeach()

# The records of plan/tuning/records/ are compiled into the program as text.
file(
    GLOB _polyhead_records
    CONFIGURE_DEPENDS
    RELATIVE "${PROJECT_SOURCE_DIR}/plan/tuning/records"
    "${PROJECT_SOURCE_DIR}/plan/tuning/records/*.json"
)
set(_polyhead_shipped "")
foreach(name IN LISTS _polyhead_records)
    set(path "${PROJECT_SOURCE_DIR}/plan/tuning/records/${name}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
    file(READ "${path}" json)
    string(APPEND _polyhead_shipped "        {\"${name}\", R\"records(${json})records\"},\n")
endforeach()
set(_polyhead_shipped_records "${CMAKE_BINARY_DIR}/polyhead_shipped_records.cpp")
file(
    CONFIGURE
    OUTPUT "${_polyhead_shipped_records}"
    CONTENT
        "// The files of plan/tuning/records/, written by cmake/polyhead_generators.cmake.
#include \"plan/tuning/shipped_records.h\"

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

# Every file of a folder belongs to its library, so that a new frame or schedule needs no line here.
file(GLOB_RECURSE _polyhead_plan_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/plan/*.cpp")
add_library(polyhead_plan STATIC ${_polyhead_plan_sources} "${_polyhead_shipped_records}")
polyhead_target_defaults(polyhead_plan NO_CONVERSION NO_SANITIZE)
polyhead_quickly_compiled(polyhead_plan)
set_target_properties(polyhead_plan PROPERTIES POSITION_INDEPENDENT_CODE ON) # for the Python module
target_compile_definitions(
    polyhead_plan
    PRIVATE POLYHEAD_HALIDE_VERSION="${POLYHEAD_HALIDE_VERSION}"
)
target_include_directories(
    polyhead_plan
    PUBLIC "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/runtime/include"
)
target_link_libraries(polyhead_plan PRIVATE nlohmann_json::nlohmann_json)

file(
    GLOB_RECURSE _polyhead_sources
    CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/generators/*.cpp"
    "${PROJECT_SOURCE_DIR}/schedules/*.cpp"
    "${PROJECT_SOURCE_DIR}/compile/*.cpp"
)
list(REMOVE_ITEM _polyhead_sources "${PROJECT_SOURCE_DIR}/compile/serve_job.cpp") # of the program alone
add_library(polyhead_generators STATIC ${_polyhead_sources})
# Many Exprs are made from plain ints and floats. Casts against conversion warnings would hide the formulas. Halide is not sanitized.
polyhead_target_defaults(polyhead_generators NO_CONVERSION NO_SANITIZE)
polyhead_quickly_compiled(polyhead_generators)
target_precompile_headers(polyhead_generators PRIVATE <Halide.h>)
target_include_directories(polyhead_generators PUBLIC "${PROJECT_SOURCE_DIR}/generators/include")
target_link_libraries(polyhead_generators PUBLIC polyhead_plan Halide::Halide ${CMAKE_DL_LIBS})

# The include folder of <polyhead/expression_source.h>, for EXPRESSION_SOURCE of polyhead_add_kernel().
set(POLYHEAD_EXPRESSION_INCLUDE_DIR "${PROJECT_SOURCE_DIR}/generators/include" CACHE INTERNAL "")
