# Tests of the tuner and its records: label tune. Included by tests/CMakeLists.txt.
polyhead_test(
    test_tuned_records
    LABEL tune
    TIMEOUT 60
    SOURCES tuned_records.cpp
    LINK polyhead_generators
)
