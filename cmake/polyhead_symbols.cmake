# The program that edits the symbols of archives (tools/edit_symbols.cpp): POLYHEAD_SYMBOLS is its path, polyhead_symbols its target. It needs
# nothing of Halide. It runs while this project is built, so a build for another machine compiles it for the machine of the build.
set(_polyhead_symbols_sources
    "${PROJECT_SOURCE_DIR}/tools/edit_symbols.cpp"
    "${PROJECT_SOURCE_DIR}/tools/elf_symbols.cpp"
)
if(CMAKE_CROSSCOMPILING)
    find_program(
        POLYHEAD_NATIVE_CXX
        NAMES c++ g++ clang++
        DOC "A C++17 compiler for programs that run on this machine while polyhead is built"
        NO_CMAKE_FIND_ROOT_PATH
        REQUIRED
    )
    set(POLYHEAD_SYMBOLS "${CMAKE_BINARY_DIR}/polyhead-symbols")
    add_custom_command(
        OUTPUT "${POLYHEAD_SYMBOLS}"
        COMMAND
            "${POLYHEAD_NATIVE_CXX}" -std=c++17 -O1 ${_polyhead_symbols_sources} -o
            "${POLYHEAD_SYMBOLS}"
        DEPENDS ${_polyhead_symbols_sources} "${PROJECT_SOURCE_DIR}/tools/elf_symbols.h"
        COMMENT "The program that edits symbols, for this machine"
        VERBATIM
    )
    add_custom_target(polyhead_symbols DEPENDS "${POLYHEAD_SYMBOLS}")
else()
    add_executable(polyhead_symbols ${_polyhead_symbols_sources})
    set_target_properties(polyhead_symbols PROPERTIES OUTPUT_NAME polyhead-symbols)
    polyhead_target_defaults(polyhead_symbols NO_SANITIZE)
    polyhead_quickly_compiled(polyhead_symbols)
    set(POLYHEAD_SYMBOLS "$<TARGET_FILE:polyhead_symbols>")
endif()
