# Tests of the benches that hold polyhead against other libraries. Included by python_tests.cmake.
polyhead_python_test(
    "the bench of peers"
    SCRIPT python_peers.py
    TIMEOUT 300
    ARGUMENTS --roof $<TARGET_FILE:polyhead_roof> --build "${PROJECT_BINARY_DIR}"
    DEPENDS polyhead_roof polyhead-generate polyhead
)
polyhead_python_test(
    "PyTorch on CUDA as a peer"
    SCRIPT python_torch_cuda.py
    LABEL cuda
    ENVIRONMENT POLYHEAD_TEST_DEVICE=cuda "LD_LIBRARY_PATH=${POLYHEAD_CUDA_DRIVER_DIR}"
)
