# test_runtime once more under sanitizers, in builds that have none: programs of their own, from the sources of the runtime and of the test.
# Included by tests/CMakeLists.txt after runtime_tests.cmake. The presets asan and tsan have the sanitizer in everything.
#
# Kept cheap, since every run of the tests builds it: the runtime is one file for the compiler, and so are most sources of the test, which are
# not optimised and have no UBSan (twice the time).
if(POLYHEAD_SANITIZE)
    return()
endif()
include(CheckCXXSourceCompiles)
find_package(Threads REQUIRED)

get_target_property(_sanitized_runtime polyhead SOURCES)
list(FILTER _sanitized_runtime INCLUDE REGEX "\\.cpp$")
list(TRANSFORM _sanitized_runtime PREPEND "${PROJECT_SOURCE_DIR}/runtime/")
get_target_property(_sanitized_test test_runtime SOURCES)
# Arithmetic of a header, and what the compiler makes of it without a sanitizer.
list(REMOVE_ITEM _sanitized_test runtime_fetch.cpp runtime_interface.cpp)
set(_sanitized_support
    ../instruments/calls/guard.cpp
    ../instruments/calls/layouts.cpp
    ../instruments/calls/not_run.cpp
    ../instruments/calls/problems.cpp
    support/changing_memory.cpp
)

# The sources of a target with sanitizers, at a level of optimisation.
function(_sanitized target level sanitizers)
    target_compile_features(${target} PRIVATE cxx_std_17)
    target_compile_options(
        ${target}
        PRIVATE ${level} -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer
    )
    target_include_directories(
        ${target}
        PRIVATE
            "${PROJECT_SOURCE_DIR}"
            "${PROJECT_SOURCE_DIR}/tests"
            "${PROJECT_SOURCE_DIR}/runtime/include"
    )
    # Tools that read the compile commands see each source once, as it is compiled for users.
    set_target_properties(
        ${target}
        PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0 EXPORT_COMPILE_COMMANDS OFF
    )
endfunction()

# GCC 12's ThreadSanitizer needs addresses that are less random than those of new kernels. A program gets them where the system lets it.
set(_sanitized_launcher "")
find_program(POLYHEAD_SETARCH setarch)
if(POLYHEAD_SETARCH)
    execute_process(
        COMMAND "${POLYHEAD_SETARCH}" -R "${CMAKE_COMMAND}" -E true
        RESULT_VARIABLE _sanitized_result
        ERROR_QUIET
    )
    if(_sanitized_result EQUAL 0)
        set(_sanitized_launcher "${POLYHEAD_SETARCH}" -R)
    endif()
endif()

# _sanitized_test(SUFFIX NAME sanitizers sanitizers_of_test sources filter...): the program test_runtime_SUFFIX as the test
# "runtime: with NAME".
function(
    _sanitized_test
    suffix
    name
    sanitizers
    sanitizers_of_test
    sources
)
    set(test "runtime: with ${name}")
    set(CMAKE_REQUIRED_FLAGS -fsanitize=${sanitizers})
    set(CMAKE_REQUIRED_LINK_OPTIONS -fsanitize=${sanitizers})
    check_cxx_source_compiles("int main() { return 0; }" POLYHEAD_HAS_${suffix})
    if(NOT POLYHEAD_HAS_${suffix})
        add_test(
            NAME "${test}"
            COMMAND
                "${CMAKE_COMMAND}" -E echo
                "NOT RUN: the whole test: this compiler links no program with ${name}"
        )
        set_tests_properties("${test}" PROPERTIES LABELS runtime)
        return()
    endif()
    add_library(polyhead_runtime_${suffix} OBJECT ${_sanitized_runtime})
    _sanitized(polyhead_runtime_${suffix} -Og ${sanitizers})
    target_compile_definitions(
        polyhead_runtime_${suffix}
        PRIVATE POLYHEAD_VERSION="${PROJECT_VERSION}"
    )
    add_executable(test_runtime_${suffix} ${sources} ${_sanitized_support} one_program.cpp)
    _sanitized(test_runtime_${suffix} -O0 ${sanitizers_of_test})
    target_link_options(test_runtime_${suffix} PRIVATE -fsanitize=${sanitizers})
    target_link_libraries(
        test_runtime_${suffix}
        PRIVATE polyhead_runtime_${suffix} polyhead_catch2_main Threads::Threads ${CMAKE_DL_LIBS}
    )
    polyhead_tests_need(runtime test_runtime_${suffix})
    add_test(
        NAME "${test}"
        COMMAND ${_sanitized_launcher} $<TARGET_FILE:test_runtime_${suffix}> ~[.] ${ARGN}
    )
    set_tests_properties("${test}" PROPERTIES LABELS runtime TIMEOUT 300)
endfunction()

_sanitized_test(asan "AddressSanitizer and UBSan" address,undefined address "${_sanitized_test}")
# What is left out here runs on one thread: sources without a word of threads, and of the others two thirds of the time.
set(_sanitized_threads "")
foreach(source IN LISTS _sanitized_test)
    file(STRINGS ${source} lines REGEX "[Tt]hread")
    if(lines)
        list(APPEND _sanitized_threads ${source})
    endif()
endforeach()
_sanitized_test(
    tsan
    ThreadSanitizer
    thread
    thread
    "${_sanitized_threads}"
    "~packed tokens: every batch*"
    "~large calls: *"
)
