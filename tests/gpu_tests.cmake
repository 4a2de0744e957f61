# Tests of GPU kernels without a GPU: OpenCL on PoCL, CUDA on a driver that executes PTX. Included by tests/CMakeLists.txt.

# polyhead_device_tests(PROGRAM LABEL label TIMEOUT seconds ENVIRONMENT name=value...)
# Registers the cases of a program once more, with a label and an environment of their own. Catch2 2 knows no DISCOVERY_MODE: behind
# EXTRA_ARGS it would become part of the arguments, which then name no test, and a run of no test passes.
function(polyhead_device_tests program)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT" "ENVIRONMENT")
    catch_discover_tests(
        ${program}
        TEST_PREFIX "${arg_LABEL}: "
        TEST_LIST ${program}_${arg_LABEL}
        DISCOVERY_MODE PRE_TEST
        EXTRA_ARGS --name ${arg_LABEL}
        PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT} SKIP_REGULAR_EXPRESSION "SKIPPED: "
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

if(TARGET polyhead::gpu)
    # Kernels compiled in process: the traps of Halide, and random problems.
    foreach(program IN ITEMS traps sweep)
        add_executable(test_gpu_${program} gpu_${program}.cpp support/device.cpp)
        polyhead_target_defaults(test_gpu_${program} NO_CONVERSION)
        target_link_libraries(
            test_gpu_${program}
            PRIVATE polyhead_test_support polyhead_catch2_main polyhead_in_process polyhead::gpu
        )
        add_dependencies(polyhead_tests test_gpu_${program})
        polyhead_device_tests(
            test_gpu_${program}
            LABEL opencl
            TIMEOUT 2400
            ENVIRONMENT POLYHEAD_TEST_DEVICE=opencl "POCL_CACHE_DIR=${PROJECT_BINARY_DIR}/pocl_cache"
        )
    endforeach()
endif()

if(TARGET polyhead_kernel_table_gpu_tested)
    add_executable(
        test_kernels_gpu
        gpu_answers_table.cpp
        gpu_same_bits_table.cpp
        support/device.cpp
    )
    polyhead_target_defaults(test_kernels_gpu NO_CONVERSION)
    target_link_libraries(
        test_kernels_gpu
        PRIVATE
            polyhead_test_support
            polyhead_catch2_main
            polyhead_kernel_table_gpu_tested
            polyhead::gpu
    )
    add_dependencies(polyhead_tests test_kernels_gpu)
    polyhead_device_tests(
        test_kernels_gpu
        LABEL opencl
        TIMEOUT 1800
        ENVIRONMENT POLYHEAD_TEST_DEVICE=opencl "POCL_CACHE_DIR=${PROJECT_BINARY_DIR}/pocl_cache"
    )
    if(TARGET polyhead_cuda_driver)
        # The budget is what the interpreter of PTX does in seconds.
        polyhead_device_tests(
            test_kernels_gpu
            LABEL cuda
            TIMEOUT 1800
            ENVIRONMENT
                POLYHEAD_TEST_DEVICE=cuda
                POLYHEAD_TEST_BUDGET=2e6
                "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
        )
        add_dependencies(test_kernels_gpu polyhead_cuda_driver)
    endif()
endif()
