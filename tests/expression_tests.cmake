# Tests of user expressions: the language by itself, and the examples that use it.
polyhead_test(
    test_expressions
    LABEL algorithm
    TIMEOUT 300
    SOURCES
        expression_bounds.cpp
        expression_errors.cpp
        expression_values.cpp
        support/expression_probe.cpp
    LINK polyhead_generators
)

polyhead_test(
    test_expression_kernels
    LABEL algorithm
    TIMEOUT 600
    SOURCES expression_kernels.cpp
    LINK polyhead_load_in_program
)

# C++ of Halide Exprs as an expression, held against the same as text; and what is refused.
set(expression_problem
    OP
    sdpa
    NUM_HEADS
    3
    HEAD_DIM
    16
)
set(expression_folder "${CMAKE_CURRENT_SOURCE_DIR}/expression_source")
polyhead_add_kernel(expression_as_cpp ${expression_problem} EXPRESSION_SOURCE "${expression_folder}/capped_bias.cpp")
polyhead_add_kernel(
    expression_as_text
    ${expression_problem}
    EXPRESSION
        [[
            tensor bias: f32[h, 17]; tensor last: i32[b]; tensor gain: f32
            score = tanh(score * gain) + (bias[h, clamp(kv - p, -8, 8) + 8] + uniform(last[b], b, h, q, kv))
            mask = kv <= last[b] + q and kv < kv_length
        ]]
)
polyhead_add_kernel(expression_half_cpp ${expression_problem} EXPRESSION_SOURCE "${expression_folder}/only_mask.cpp")
polyhead_add_kernel(expression_half_text ${expression_problem} EXPRESSION "score = score * 2; mask = kv <= p")
polyhead_test(
    test_expression_source
    LABEL algorithm
    TIMEOUT 120
    SOURCES expression_source/test.cpp
    LINK expression_as_cpp expression_as_text expression_half_cpp expression_half_text
)
foreach(refused IN ITEMS does_not_compile wrong_type unknown_tensor)
    polyhead_add_kernel(
        expression_${refused}
        ${expression_problem}
        EXPRESSION_SOURCE "${expression_folder}/${refused}.cpp"
    )
endforeach()
polyhead_script_test(
    "expressions in C++ that are refused"
    LABEL tools
    TIMEOUT 300
    DEPENDS polyhead-generate expression_wrong_type_expression expression_unknown_tensor_expression
    COMMAND
        "${expression_folder}/drive.py"
        --cmake
        "${CMAKE_COMMAND}"
        --build
        "${PROJECT_BINARY_DIR}"
        --kernels
        "${CMAKE_CURRENT_BINARY_DIR}/polyhead_kernels"
)

if(TARGET example_document_mask)
    foreach(example IN ITEMS relative_position_bias document_mask soft_threshold)
        add_test(NAME "examples: ${example}" COMMAND example_${example})
        set_tests_properties("examples: ${example}" PROPERTIES LABELS examples TIMEOUT 60)
        polyhead_tests_need(examples example_${example})
    endforeach()
endif()
