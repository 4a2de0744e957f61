# Tests of the examples: hostile model files, the whole encoder against stored hidden states, the smallest consumer.
# Included by tests/CMakeLists.txt; sets POLYHEAD_EXAMPLE_TEST_TARGETS to what the tests need besides.
find_package(nlohmann_json REQUIRED)

if(NOT TARGET example_common)
    add_subdirectory(../examples/common common)
endif()
polyhead_test(
    test_minilm
    LABEL examples
    TIMEOUT 120
    SOURCES minilm_safetensors.cpp
    LINK example_common nlohmann_json::nlohmann_json
)
set(POLYHEAD_EXAMPLE_TEST_TARGETS test_minilm)

if(TARGET example_minilm)
    polyhead_script_test(
        "the encoder against stored hidden states"
        LABEL examples
        TIMEOUT 300
        DEPENDS example_minilm
        COMMAND
            "${PROJECT_SOURCE_DIR}/examples/010_minilm/run.py"
            --build
            $<TARGET_FILE_DIR:example_minilm>
            --check
            "${CMAKE_CURRENT_SOURCE_DIR}/data/minilm_reference.npz"
    )
    polyhead_script_test(
        "the encoder in bf16 against stored hidden states"
        LABEL examples
        TIMEOUT 300
        DEPENDS example_minilm_bf16
        COMMAND
            "${PROJECT_SOURCE_DIR}/examples/010_minilm/run.py"
            --build
            $<TARGET_FILE_DIR:example_minilm_bf16>
            --dtype
            bf16
            --check
            "${CMAKE_CURRENT_SOURCE_DIR}/data/minilm_reference.npz"
    )
    if(TARGET minilm_layer_gpu)
        foreach(api IN ITEMS opencl cuda)
            polyhead_script_test(
                "the encoder on a device against stored hidden states"
                LABEL ${api}
                TIMEOUT 600
                DEPENDS example_minilm polyhead_cuda_driver
                COMMAND
                    "${PROJECT_SOURCE_DIR}/examples/010_minilm/run.py"
                    --build
                    $<TARGET_FILE_DIR:example_minilm>
                    --device
                    ${api}
                    --check
                    "${CMAKE_CURRENT_SOURCE_DIR}/data/minilm_reference.npz"
            )
            set_tests_properties(
                "${api}: the encoder on a device against stored hidden states"
                PROPERTIES
                    ENVIRONMENT
                        "${POLYHEAD_POCL_ENVIRONMENT};LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
            )
        endforeach()
    endif()
    add_test(
        NAME "examples: generation, every step against float64"
        COMMAND example_generate --steps 16
    )
    set_tests_properties(
        "examples: generation, every step against float64"
        PROPERTIES LABELS examples TIMEOUT 300
    )
    add_test(NAME "examples: training, gradients against float64" COMMAND example_train --check)
    set_tests_properties(
        "examples: training, gradients against float64"
        PROPERTIES LABELS examples TIMEOUT 300
    )
    add_test(NAME "examples: the smallest consumer" COMMAND example_sdpa)
    set_tests_properties("examples: the smallest consumer" PROPERTIES LABELS examples TIMEOUT 60)
    foreach(features avx512_skylake none)
        foreach(program decode kernels)
            set(name "examples: in C, ${program} with CPU features ${features}")
            add_test(NAME "${name}" COMMAND example_c_${program})
            set_tests_properties(
                "${name}"
                PROPERTIES
                    LABELS examples
                    TIMEOUT 60
                    ENVIRONMENT "POLYHEAD_CPU_FEATURES=${features}"
            )
        endforeach()
    endforeach()
    list(
        APPEND
        POLYHEAD_EXAMPLE_TEST_TARGETS
        example_c_decode
        example_c_kernels
        example_generate
        example_sdpa
        example_train
    )
endif()
