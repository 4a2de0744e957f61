# POLYHEAD_PYTHON_ENVIRONMENT: what a script needs that imports this build's package. Included by tests/CMakeLists.txt.
set(POLYHEAD_PYTHON_ENVIRONMENT
    "PYTHONPATH=${PROJECT_BINARY_DIR}/python"
    PYTHONDONTWRITEBYTECODE=1
    "POLYHEAD_SYMBOLS=${POLYHEAD_SYMBOLS}"
)
if(POLYHEAD_SANITIZE AND TARGET polyhead_python)
    # The interpreter has no ASan: the sanitizer's runtime must be loaded first, and the C++ library with it, or it sees no exceptions.
    # What the interpreter itself never frees is not ours. Signal stacks are left alone: at the end of a thread ASan would unmap one that
    # another library has put in the place of its own. Scripts test what a signal of the compiler, and absurd sizes, become in Python: the sanitizer
    # leaves both alone.
    set(preload "")
    foreach(library libasan.so libstdc++.so)
        execute_process(
            COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=${library}
            OUTPUT_VARIABLE path
            OUTPUT_STRIP_TRAILING_WHITESPACE
        )
        file(REAL_PATH "${path}" path)
        list(APPEND preload "${path}")
    endforeach()
    list(JOIN preload ":" preload)
    list(
        APPEND
        POLYHEAD_PYTHON_ENVIRONMENT
        "LD_PRELOAD=${preload}"
        "ASAN_OPTIONS=detect_leaks=0:use_sigaltstack=0:handle_segv=0:handle_abort=0:allocator_may_return_null=1"
    )
endif()
