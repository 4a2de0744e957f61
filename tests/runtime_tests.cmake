# Tests of the runtime library with stand-ins for kernels, and of its C ABI from C.
polyhead_test(
    test_runtime
    LABEL runtime
    TIMEOUT 120
    SOURCES
        failing_system.cpp
        runtime_aliases.cpp
        runtime_arguments.cpp
        runtime_cache.cpp
        runtime_changing.cpp
        runtime_cpu_features.cpp
        runtime_device_rules.cpp
        runtime_dispatch.cpp
        runtime_edges.cpp
        runtime_executor.cpp
        runtime_extents.cpp
        runtime_features.cpp
        runtime_head_norm.cpp
        runtime_int8_cache.cpp
        runtime_features_on_device.cpp
        runtime_failures.cpp
        runtime_floating_point.cpp
        runtime_fetch.cpp
        runtime_fork.cpp
        runtime_gates_norms.cpp
        runtime_packed_append.cpp
        runtime_page_pool.cpp
        runtime_pages.cpp
        runtime_parts.cpp
        runtime_plan.cpp
        runtime_process.cpp
        runtime_ragged.cpp
        runtime_registry.cpp
        runtime_sections.cpp
        runtime_sizes.cpp
        runtime_stack.cpp
        runtime_states.cpp
        runtime_threads.cpp
        runtime_validation.cpp
        runtime_validation_cache.cpp
        runtime_validation_features.cpp
        runtime_validation_layer.cpp
        runtime_weights.cpp
        runtime_workspace.cpp
        sanitizer_options.cpp
)
# Some have names of their own that others have, too.
set_source_files_properties(
    failing_system.cpp
    runtime_cache.cpp
    runtime_changing.cpp
    runtime_features_on_device.cpp
    runtime_sections.cpp
    runtime_states.cpp
    runtime_validation_cache.cpp
    PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
)
if(POLYHEAD_BUILD_GENERATOR)
    # What kernels and runtime share, compared with Halide's header.
    file(
        STRINGS
        "${POLYHEAD_HALIDE_INCLUDE_DIR}/HalideRuntime.h"
        assertions
        REGEX "^extern int halide_error_"
    )
    # Without those that only Halide's runtime calls, or a kernel that was compiled to print.
    list(
        FILTER assertions
        EXCLUDE
        REGEX
            "_(buffer_is_null|debug_to_file_failed|device_crop_failed|device_interface_no_device|host_and_device_dirty|no_device_interface)\\("
    )
    string(
        REGEX REPLACE
        "extern int (halide_error_[a-z0-9_]+)[^;]*;?"
        "X(\\1);"
        assertions
        "${assertions}"
    )
    list(JOIN assertions " " assertions)
    target_sources(test_runtime PRIVATE runtime_interface.cpp)
    set_source_files_properties(
        runtime_interface.cpp
        PROPERTIES
            SKIP_UNITY_BUILD_INCLUSION ON
            INCLUDE_DIRECTORIES "${POLYHEAD_HALIDE_INCLUDE_DIR}"
            COMPILE_OPTIONS "-DPOLYHEAD_ASSERTIONS(X)=${assertions}"
    )
endif()

add_executable(test_runtime_c_abi runtime_c_abi.c)
target_compile_options(test_runtime_c_abi PRIVATE -Wall -Wextra -Wpedantic)
set_target_properties(
    test_runtime_c_abi
    PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF LINKER_LANGUAGE CXX
)
target_link_libraries(test_runtime_c_abi PRIVATE polyhead::polyhead)
polyhead_tests_need(runtime test_runtime_c_abi)
add_test(NAME "runtime: the C ABI from C" COMMAND test_runtime_c_abi)
set_tests_properties("runtime: the C ABI from C" PROPERTIES LABELS runtime TIMEOUT 60)

if(NOT POLYHEAD_BUILD_GENERATOR)
    return()
endif()
# What POLYHEAD_CPU_FEATURES makes of a process; Python's part runs where the package is built.
add_executable(test_cpu_features_told runtime_cpu_features_told.c)
target_compile_options(test_cpu_features_told PRIVATE -Wall -Wextra -Wpedantic)
set_target_properties(
    test_cpu_features_told
    PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF LINKER_LANGUAGE CXX
)
target_link_libraries(test_cpu_features_told PRIVATE polyhead::polyhead)
set(python "")
if(TARGET polyhead_python)
    set(python polyhead_python)
endif()
polyhead_script_test(
    "the limit of CPU features"
    LABEL runtime
    TIMEOUT 300
    DEPENDS test_cpu_features_told polyhead-generate ${python}
    COMMAND
        "${CMAKE_CURRENT_SOURCE_DIR}/cpu_features.py"
        --generate
        $<TARGET_FILE:polyhead-generate>
        --told
        $<TARGET_FILE:test_cpu_features_told>
        $<$<BOOL:${python}>:--python>
)
set_tests_properties(
    "runtime: the limit of CPU features"
    PROPERTIES ENVIRONMENT "${POLYHEAD_PYTHON_ENVIRONMENT}"
)
