# Tests of devices with a kernel by hand: OpenCL on the driver of this machine, CUDA on the one that executes PTX.
if(NOT TARGET polyhead_gpu)
    return()
endif()

add_library(polyhead_test_sum STATIC runtime_sum.cpp)
polyhead_target_defaults(polyhead_test_sum NO_CONVERSION)
target_include_directories(polyhead_test_sum SYSTEM PRIVATE "${POLYHEAD_HALIDE_INCLUDE_DIR}")
target_link_libraries(
    polyhead_test_sum
    PUBLIC polyhead_test_support polyhead_catch2_main polyhead::gpu
)

polyhead_test(
    test_no_driver
    LABEL runtime
    TIMEOUT 120
    SOURCES runtime_no_driver.cpp
    LINK polyhead_test_sum
)

# polyhead_device_program(NAME file...): a program whose cases polyhead_device_tests() registers.
function(polyhead_device_program name)
    add_executable(${name} ${ARGN})
    polyhead_target_defaults(${name} NO_CONVERSION)
    target_link_libraries(${name} PRIVATE polyhead_test_sum)
endfunction()

polyhead_device_program(test_on_device runtime_on_device.cpp)
polyhead_device_program(test_opencl_devices runtime_opencl.cpp)
foreach(program test_on_device test_opencl_devices)
    polyhead_device_tests(
        ${program}
        LABEL opencl
        TIMEOUT 300
        ENVIRONMENT POLYHEAD_TEST_DEVICE=opencl ${POLYHEAD_POCL_ENVIRONMENT}
    )
endforeach()
if(TARGET polyhead_cuda_driver)
    polyhead_device_program(test_cuda_devices runtime_cuda.cpp runtime_cuda_calls.cpp)
    foreach(program test_on_device test_cuda_devices)
        polyhead_device_tests(
            ${program}
            LABEL cuda
            TIMEOUT 300
            ENVIRONMENT
                POLYHEAD_TEST_DEVICE=cuda
                POLYHEAD_CUDA_DRIVER_QUIET=1
                "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
        )
        add_dependencies(${program} polyhead_cuda_driver)
    endforeach()
endif()

# The example: on OpenCL, on CUDA, and on the CPU where there is no device.
if(TARGET example_device)
    polyhead_tests_need(examples example_device)
    add_test(NAME "examples: no device, so the CPU" COMMAND example_device cuda:99)
    set_tests_properties(
        "examples: no device, so the CPU"
        PROPERTIES
            LABELS examples
            TIMEOUT 60
            PASS_REGULAR_EXPRESSION
                "^cuda: .*\nok: ran on the CPU; largest difference to the CPU 0\n"
    )
    add_test(NAME "opencl: the example on a device" COMMAND example_device opencl)
    set_tests_properties(
        "opencl: the example on a device"
        PROPERTIES
            LABELS opencl
            TIMEOUT 300
            ENVIRONMENT "${POLYHEAD_POCL_ENVIRONMENT}"
            PASS_REGULAR_EXPRESSION "^ok: ran on .*opencl.*; largest difference to the CPU "
    )
    if(TARGET polyhead_cuda_driver)
        add_test(NAME "cuda: the example on a device" COMMAND example_device cuda)
        set_tests_properties(
            "cuda: the example on a device"
            PROPERTIES
                LABELS cuda
                TIMEOUT 300
                ENVIRONMENT "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
                PASS_REGULAR_EXPRESSION "^ok: ran on .*cuda.*; largest difference to the CPU "
        )
    endif()
endif()
