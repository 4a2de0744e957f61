# The code that defines what a kernel computes (generators/), how a machine runs it (schedules/), and makes Variants of both (variants/).
find_package(nlohmann_json REQUIRED)

# The records of variants/tuning/records/ are compiled into the program as text.
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

# Every file of the three folders belongs to the library, so that a new frame or schedule needs no line here.
file(
    GLOB_RECURSE _polyhead_sources
    CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/generators/*.cpp"
    "${PROJECT_SOURCE_DIR}/schedules/*.cpp"
    "${PROJECT_SOURCE_DIR}/variants/*.cpp"
)
add_library(polyhead_generators_code STATIC ${_polyhead_sources} "${_polyhead_shipped_records}")
# Many Exprs are made from plain ints and floats. Casts against conversion warnings would hide the formulas. Halide is not sanitized.
polyhead_target_defaults(polyhead_generators_code NO_CONVERSION NO_SANITIZE)
polyhead_quickly_compiled(polyhead_generators_code)
# Also for the Python module, whether this build makes it or a later one: it would compile everything again.
set_target_properties(polyhead_generators_code PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_precompile_headers(polyhead_generators_code PRIVATE <Halide.h>)
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

# The library that others link: the whole archive, because the generator registers itself and nothing refers to it by name.
add_library(polyhead_generators INTERFACE)
target_link_libraries(
    polyhead_generators
    INTERFACE $<LINK_LIBRARY:WHOLE_ARCHIVE,polyhead_generators_code>
)

# The include folder of <polyhead/expression_source.h>, for EXPRESSION_SOURCE of polyhead_add_kernel().
set(POLYHEAD_EXPRESSION_INCLUDE_DIR "${PROJECT_SOURCE_DIR}/generators/include" CACHE INTERNAL "")
