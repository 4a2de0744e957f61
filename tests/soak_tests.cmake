# The soaks: many threads work for POLYHEAD_SOAK_SECONDS (10), and nothing may grow. Included by tests/CMakeLists.txt.
add_executable(test_soak soak/cases.cpp soak/gauges.cpp soak/soak.cpp)
polyhead_target_defaults(test_soak NO_CONVERSION)
target_include_directories(test_soak PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(test_soak PRIVATE polyhead_test_support polyhead_kernel_table_tested)
polyhead_tests_need(soak test_soak)
add_test(NAME "soak: kernels from 8 threads" COMMAND test_soak)
set_tests_properties("soak: kernels from 8 threads" PROPERTIES LABELS soak TIMEOUT 900)

if(TARGET polyhead_python)
    polyhead_script_test(
        "the Python package from 4 threads"
        LABEL soak
        TIMEOUT 900
        DEPENDS polyhead_python
        COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/soak/soak.py"
    )
    set_tests_properties(
        "soak: the Python package from 4 threads"
        PROPERTIES ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1"
    )
endif()
