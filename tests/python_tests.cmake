# Tests of the Python package: unittest scripts with the label python, on devices with theirs. Included by tests/CMakeLists.txt where the
# package is built.

# polyhead_python_test(NAME SCRIPT file [LABEL label] [TIMEOUT seconds] [ENVIRONMENT name=value...] [ARGUMENTS word...] [DEPENDS target...])
function(polyhead_python_test name)
    cmake_parse_arguments(
        PARSE_ARGV
        1
        arg
        ""
        "SCRIPT;LABEL;TIMEOUT"
        "ENVIRONMENT;ARGUMENTS;DEPENDS"
    )
    if(NOT arg_LABEL)
        set(arg_LABEL python)
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 600)
    endif()
    polyhead_script_test(
        "${name}"
        LABEL ${arg_LABEL}
        TIMEOUT ${arg_TIMEOUT}
        DEPENDS polyhead_python ${arg_DEPENDS}
        COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT}" ${arg_ARGUMENTS}
    )
    set_tests_properties(
        "${arg_LABEL}: ${name}"
        PROPERTIES ENVIRONMENT "${POLYHEAD_PYTHON_ENVIRONMENT};${arg_ENVIRONMENT}"
    )
endfunction()

polyhead_python_test("sdpa" SCRIPT python_sdpa.py)
polyhead_python_test("sections" SCRIPT python_sections.py)
polyhead_python_test("kernel objects" SCRIPT python_kernel.py)
polyhead_python_test("options, copies, hostile values" SCRIPT python_options.py)
polyhead_python_test("limits of the compiler" SCRIPT python_limits.py)
polyhead_python_test("the layer" SCRIPT python_layer.py)
polyhead_python_test("16-bit arrays" SCRIPT python_16_bit.py)
if(NOT POLYHEAD_SANITIZE) # which does not follow a child of several threads
    polyhead_python_test("children by fork" SCRIPT python_fork.py)
endif()
polyhead_python_test("kernels in memory" SCRIPT python_cache.py)
if(NOT POLYHEAD_SANITIZE) # whose kernels need the system's linker
    polyhead_python_test("ready kernels beside the package" SCRIPT python_bundle.py)
endif()
polyhead_python_test("the attention of models" SCRIPT python_models.py)
polyhead_python_test("gates and norms" SCRIPT python_gates_norms.py)
polyhead_python_test("gradients of attention, dropout" SCRIPT python_gradients.py)
polyhead_python_test("gradients of a linear layer" SCRIPT python_linear_backward.py)
polyhead_python_test("gradients of a layer" SCRIPT python_layer_gradients.py)
polyhead_python_test("tables of rotations" SCRIPT python_rope_tables.py)
polyhead_python_test("layers of models against Transformers" SCRIPT python_model_references.py)
polyhead_python_test("the table of models" SCRIPT python_model_table.py)
polyhead_python_test("a cache of keys and values" SCRIPT python_kv_cache.py)
polyhead_python_test("random histories of caches" SCRIPT python_histories.py)
polyhead_python_test("a layer with a cache" SCRIPT python_layer_cache.py)
polyhead_python_test("the explain command" SCRIPT python_explain.py)
polyhead_python_test("the example" SCRIPT ../examples/030_python/tour.py)
polyhead_python_test(
    "ONNX Attention and FlexAttention"
    SCRIPT conformance/onnx_test.py
    LABEL conformance
    TIMEOUT 1200
)
polyhead_python_test(
    "the Python package"
    SCRIPT python_devices.py
    LABEL opencl
    ENVIRONMENT POLYHEAD_TEST_DEVICE=opencl ${POLYHEAD_POCL_ENVIRONMENT}
)
polyhead_python_test(
    "a device and fork"
    SCRIPT python_fork_device.py
    LABEL opencl
    ENVIRONMENT POLYHEAD_TEST_DEVICE=opencl ${POLYHEAD_POCL_ENVIRONMENT}
)
polyhead_python_test(
    "the Python package"
    SCRIPT python_devices.py
    LABEL cuda
    ENVIRONMENT POLYHEAD_TEST_DEVICE=cuda "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
)
polyhead_python_test(
    "lifetimes in Python"
    SCRIPT python_lifetimes.py
    LABEL opencl
    ENVIRONMENT POLYHEAD_TEST_DEVICE=opencl ${POLYHEAD_POCL_ENVIRONMENT}
)
polyhead_python_test(
    "lifetimes in Python"
    SCRIPT python_lifetimes.py
    LABEL cuda
    ENVIRONMENT POLYHEAD_TEST_DEVICE=cuda "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
)
polyhead_python_test(
    "what a call costs, and CUDA graphs"
    SCRIPT python_device_calls.py
    LABEL cuda
    ENVIRONMENT
        POLYHEAD_TEST_DEVICE=cuda
        POLYHEAD_CUDA_DRIVER_QUIET=1
        "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
)
polyhead_python_test(
    "the tuner on a device: layers by threads and by warps"
    SCRIPT tuning_device.py
    LABEL cuda
    ENVIRONMENT POLYHEAD_CUDA_DRIVER_QUIET=1 "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
)

polyhead_python_test(
    "large launches"
    SCRIPT python_launches.py
    LABEL cuda
    ENVIRONMENT
        POLYHEAD_TEST_DEVICE=cuda
        POLYHEAD_CUDA_DRIVER_BLOCKS=5
        POLYHEAD_CUDA_DRIVER_QUIET=1
        "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
)

polyhead_python_test(
    "help is what the programs print"
    SCRIPT tool_help.py
    ARGUMENTS --python
)

if(TARGET polyhead_roof)
    include(python_peers_tests.cmake)
endif()
