# Tests of GPU kernels without a GPU: OpenCL on PoCL, CUDA on a driver that executes PTX. Included by tests/CMakeLists.txt.

# polyhead_device_tests(PROGRAM LABEL label TIMEOUT seconds ENVIRONMENT name=value...)
# Registers the cases of a program once more, with a label and an environment of their own. Catch2 2 has no DISCOVERY_MODE: after
# EXTRA_ARGS it would become part of the arguments, which then name no test, and a run of no test passes.
function(polyhead_device_tests program)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT" "ENVIRONMENT")
    polyhead_tests_need(${arg_LABEL} ${program})
    catch_discover_tests(
        ${program}
        TEST_PREFIX "${arg_LABEL}: "
        TEST_LIST ${program}_${arg_LABEL}
        DISCOVERY_MODE PRE_TEST
        EXTRA_ARGS --name ${arg_LABEL}
        PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT}
    )
    # Catch2's script cannot pass a list as a property.
    set(file "${CMAKE_CURRENT_BINARY_DIR}/${program}_${arg_LABEL}_environment.cmake")
    file(
        CONFIGURE
        OUTPUT "${file}"
        CONTENT
            "foreach(test IN LISTS @program@_@arg_LABEL@)
    set_tests_properties(\"\${test}\" PROPERTIES ENVIRONMENT \"@arg_ENVIRONMENT@\")
endforeach()
"
        @ONLY
    )
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${file}")
endfunction()

# polyhead_gpu_test(NAME SOURCES file... [LINK library...] [OPENCL_ONLY])
# A program over devices: on PoCL with the label opencl, on the driver that executes PTX with the label cuda.
function(polyhead_gpu_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "OPENCL_ONLY" "" "SOURCES;LINK")
    add_executable(${name} ${arg_SOURCES} support/device.cpp)
    polyhead_target_defaults(${name} NO_CONVERSION APART)
    polyhead_quickly_compiled(${name})
    target_link_libraries(
        ${name}
        PRIVATE polyhead_test_support polyhead_catch2_main ${arg_LINK} polyhead::gpu
    )
    polyhead_device_tests(
        ${name}
        LABEL opencl
        TIMEOUT 2400
        ENVIRONMENT
            POLYHEAD_TEST_DEVICE=opencl
            POLYHEAD_TEST_TURNS=1
            ${POLYHEAD_POCL_ENVIRONMENT}
    )
    if(NOT arg_OPENCL_ONLY)
        # The budget is what the interpreter of PTX does in seconds.
        polyhead_device_tests(
            ${name}
            LABEL cuda
            TIMEOUT 2400
            ENVIRONMENT
                POLYHEAD_TEST_DEVICE=cuda
                POLYHEAD_TEST_TURNS=1
                POLYHEAD_TEST_BUDGET=2e6
                "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
        )
        add_dependencies(${name} polyhead_cuda_driver)
    endif()
endfunction()

# What these compile runs in PoCL or in the interpreter, neither of which a sanitizer sees.
if(TARGET polyhead::gpu AND NOT POLYHEAD_SANITIZE)
    polyhead_gpu_test(test_gpu_traps SOURCES gpu_traps.cpp LINK polyhead_load_in_program polyhead_generators OPENCL_ONLY)
    polyhead_gpu_test(
        test_gpu_sweep
        SOURCES gpu_sweep.cpp gpu_splits.cpp gpu_warp_tiles.cpp gpu_float_tiles.cpp gpu_linear_products.cpp
        LINK polyhead_load_in_program
    )
endif()
# Devices of several capabilities, one after the other.
if(TARGET polyhead::gpu AND TARGET polyhead_cuda_driver AND NOT POLYHEAD_SANITIZE)
    add_executable(test_gpu_capabilities gpu_capabilities.cpp)
    polyhead_target_defaults(test_gpu_capabilities NO_CONVERSION)
    polyhead_quickly_compiled(test_gpu_capabilities)
    target_link_libraries(
        test_gpu_capabilities
        PRIVATE polyhead_test_support polyhead_catch2_main polyhead_load_in_program polyhead::gpu
    )
    polyhead_device_tests(
        test_gpu_capabilities
        LABEL cuda
        TIMEOUT 600
        ENVIRONMENT POLYHEAD_CUDA_DRIVER_QUIET=1 "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
    )
    add_dependencies(test_gpu_capabilities polyhead_cuda_driver)
endif()
# Products that only one capability has.
if(TARGET polyhead::gpu AND TARGET polyhead_cuda_driver AND NOT POLYHEAD_SANITIZE)
    add_executable(test_gpu_groups gpu_group_layers.cpp gpu_group_tiles.cpp support/device.cpp)
    polyhead_target_defaults(test_gpu_groups NO_CONVERSION)
    polyhead_quickly_compiled(test_gpu_groups)
    target_link_libraries(
        test_gpu_groups
        PRIVATE polyhead_test_support polyhead_catch2_main polyhead_load_in_program polyhead::gpu
    )
    polyhead_device_tests(
        test_gpu_groups
        LABEL cuda
        TIMEOUT 2400
        ENVIRONMENT
            POLYHEAD_TEST_DEVICE=cuda
            POLYHEAD_CUDA_DRIVER_CAPABILITY=90
            POLYHEAD_CUDA_DRIVER_QUIET=1
            POLYHEAD_TEST_BUDGET=2e6
            "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
    )
    add_dependencies(test_gpu_groups polyhead_cuda_driver)
endif()
# The GPU kernels of the tier: in the fast one those that are always tested, and others with each commit.
if(TARGET polyhead_kernel_table_gpu_tested)
    polyhead_gpu_test(
        test_kernels_gpu
        SOURCES
            counted_allocations.cpp
            gpu_answers_table.cpp
            gpu_calls_table.cpp
            gpu_mirrors.cpp
            gpu_same_bits_table.cpp
            gpu_scratch_table.cpp
        LINK polyhead_kernel_table_gpu_tested
    )
    # gpu_scratch_table.cpp counts what kernels take.
    target_link_libraries(test_kernels_gpu PRIVATE Halide::Runtime)
    target_link_options(
        test_kernels_gpu
        PRIVATE LINKER:--wrap=polyhead_halide_device_malloc,--wrap=polyhead_halide_device_free
    )
endif()
