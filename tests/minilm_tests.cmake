# Tests of the examples: hostile model files, the whole encoder against stored hidden states, the smallest consumer.
# Included by tests/CMakeLists.txt; adds the targets its tests run to POLYHEAD_EXAMPLE_TEST_TARGETS.
find_package(nlohmann_json REQUIRED)

add_executable(
    test_minilm
    minilm_safetensors.cpp
    ../examples/common/npy.cpp
    ../examples/common/safetensors.cpp
)
polyhead_target_defaults(test_minilm)
target_link_libraries(test_minilm PRIVATE polyhead_catch2_main nlohmann_json::nlohmann_json)
add_test(NAME minilm_safetensors COMMAND test_minilm)
set(POLYHEAD_EXAMPLE_TEST_TARGETS test_minilm)
set(_polyhead_example_tests minilm_safetensors)

if(TARGET example_minilm)
    # The Python of ./polyhead setup has NumPy and the model's weights.
    find_program(POLYHEAD_PYTHON python3 PATHS "${PROJECT_SOURCE_DIR}/.venv/bin" NO_DEFAULT_PATH)
    if(NOT POLYHEAD_PYTHON)
        find_program(POLYHEAD_PYTHON python3 REQUIRED)
    endif()
    add_test(
        NAME minilm_encoder
        COMMAND
            "${POLYHEAD_PYTHON}" "${PROJECT_SOURCE_DIR}/examples/010_minilm/run.py" --build
            "$<TARGET_FILE_DIR:example_minilm>" --check
            "${CMAKE_CURRENT_SOURCE_DIR}/data/minilm_reference.npz"
    )
    add_test(NAME example_sdpa COMMAND example_sdpa)
    list(APPEND POLYHEAD_EXAMPLE_TEST_TARGETS example_minilm example_sdpa)
    list(APPEND _polyhead_example_tests minilm_encoder example_sdpa)
endif()
set_tests_properties(${_polyhead_example_tests} PROPERTIES LABELS examples TIMEOUT 120)
