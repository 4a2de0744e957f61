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

if(TARGET example_document_mask)
    foreach(example IN ITEMS relative_position_bias document_mask soft_threshold)
        add_test(NAME "examples: ${example}" COMMAND example_${example})
        set_tests_properties("examples: ${example}" PROPERTIES LABELS examples TIMEOUT 60)
        add_dependencies(polyhead_tests example_${example})
    endforeach()
endif()

polyhead_test(
    test_expression_kernels
    LABEL algorithm
    TIMEOUT 600
    SOURCES expression_kernels.cpp
    LINK polyhead_in_process
)
