# Tests of polyhead.prune, its command and its example; included by tests/CMakeLists.txt where the Python package is built.
foreach(
    test
    IN
    ITEMS
        "python_prune.py;pruned layers, importance and refusals"
        "python_prune_command.py;the prune command"
        "python_prune_minilm.py;MiniLM with heads removed"
)
    list(GET test 0 script)
    list(GET test 1 title)
    polyhead_script_test(
        "${title}"
        LABEL python
        TIMEOUT 600
        DEPENDS polyhead_python
        COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/${script}"
    )
    set_tests_properties("python: ${title}" PROPERTIES ENVIRONMENT "${POLYHEAD_PYTHON_ENVIRONMENT}")
endforeach()
