# Tests of the tuner and its records: label tune. Included by tests/CMakeLists.txt.
polyhead_test(
    test_tuned_records
    LABEL tune
    TIMEOUT 300
    SOURCES tuned_records.cpp
    LINK polyhead_generators
)
if(TARGET polyhead_python)
    polyhead_script_test(
        "strategies, races, ranges, a lost default"
        LABEL tune
        TIMEOUT 300
        DEPENDS polyhead_python
        COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/tuning_parts.py"
    )
    polyhead_script_test(
        "files of records and logs: kills, full disks, several writers, what is not ours"
        LABEL tune
        TIMEOUT 120
        DEPENDS polyhead_python
        COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/tuning_files.py"
    )
    polyhead_script_test(
        "the tuner: a small problem, kills, poisoned candidates, Ctrl-C"
        LABEL tune
        TIMEOUT 300
        DEPENDS polyhead_python polyhead-generate polyhead
        COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/tuning_driver.py"
    )
    set_tests_properties(
        "tune: strategies, races, ranges, a lost default"
        "tune: files of records and logs: kills, full disks, several writers, what is not ours"
        "tune: the tuner: a small problem, kills, poisoned candidates, Ctrl-C"
        PROPERTIES
            ENVIRONMENT
                "${POLYHEAD_PYTHON_ENVIRONMENT};POLYHEAD_TUNE_GENERATE=$<TARGET_FILE:polyhead-generate>;POLYHEAD_TUNE_SOURCE=${PROJECT_SOURCE_DIR}"
    )
endif()
