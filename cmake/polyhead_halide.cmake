# Halide from its wheel on PyPI. Only this file deals with Halide's CMake package and its place.

# The wheel in this checkout's .venv, unless Halide_DIR is set. The package in the wheel's share/cmake/Halide requires Python's
# headers, which we do not need.
if(NOT Halide_DIR)
    file(
        GLOB _polyhead_halide
        "${CMAKE_CURRENT_LIST_DIR}/../.venv/lib*/python3*/site-packages/halide/lib*/cmake/Halide"
    )
    if(_polyhead_halide)
        list(GET _polyhead_halide 0 _polyhead_halide)
        get_filename_component(_polyhead_halide "${_polyhead_halide}" REALPATH)
        set(Halide_DIR "${_polyhead_halide}" CACHE PATH "Folder of HalideConfig.cmake")
    endif()
endif()
set(CMAKE_DISABLE_FIND_PACKAGE_Halide_Python TRUE)
find_package(Halide 21 QUIET COMPONENTS Halide shared)
if(NOT Halide_FOUND)
    message(
        FATAL_ERROR
        "polyhead: Halide 21 was not found, and the generator needs it: run `./polyhead setup`, or `pip install halide==21.0.0` and set Halide_DIR, or build the runtime alone with -DPOLYHEAD_BUILD_GENERATOR=OFF"
    )
endif()
message(STATUS "polyhead: Halide ${Halide_VERSION} in ${Halide_DIR}")

# Folder of HalideRuntime.h, and libHalide itself.
get_target_property(POLYHEAD_HALIDE_INCLUDE_DIR Halide::Runtime INTERFACE_INCLUDE_DIRECTORIES)
string(
    REGEX REPLACE
    "^\\$<BUILD_INTERFACE:(.*)>$"
    "\\1"
    POLYHEAD_HALIDE_INCLUDE_DIR
    "${POLYHEAD_HALIDE_INCLUDE_DIR}"
)
get_target_property(POLYHEAD_HALIDE_LIBRARY Halide::Halide IMPORTED_LOCATION_RELEASE)
set(POLYHEAD_HALIDE_VERSION "${Halide_VERSION}")

# The targets of the kernels of this build, and the machine of the Halide runtime inside libpolyhead_gpu. The runtime's target has no CPU
# features: a kernel has its own instructions, and the runtime must start on every machine.
set(POLYHEAD_TARGETS
    host
    CACHE STRING
    "Targets of kernels that name none, best first, separated by commas"
)
set(POLYHEAD_DEFAULT_TARGET "${POLYHEAD_TARGETS}")
set(_polyhead_runtime_target host)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$" AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(_polyhead_runtime_target x86-64-linux)
endif()
# Targets of the GPU kernels of the table. CUDA code of capability 8.0 runs on every newer device, where the driver compiles it.
set(POLYHEAD_GPU_TARGETS
    "${_polyhead_runtime_target}-opencl,${_polyhead_runtime_target}-cuda-cuda_capability_80"
    CACHE STRING
    "Targets of the table's GPU kernels, separated by commas; empty: no GPU kernels"
)
set(_polyhead_untested "")
set(_polyhead_gpu_runtime_target "${_polyhead_runtime_target}-cuda-opencl-vulkan")
if(POLYHEAD_SANITIZE)
    set(_polyhead_sanitizer asan)
    set(_polyhead_untested --untested-target)
    if(POLYHEAD_SANITIZERS STREQUAL "thread")
        set(_polyhead_sanitizer tsan)
    endif()
    string(
        REPLACE
        ","
        "-${_polyhead_sanitizer},"
        POLYHEAD_DEFAULT_TARGET
        "${POLYHEAD_DEFAULT_TARGET}-${_polyhead_sanitizer}"
    )
    string(APPEND _polyhead_gpu_runtime_target -${_polyhead_sanitizer})
endif()
# For polyhead_add_kernel() in a project that took this one by add_subdirectory().
set(POLYHEAD_DEFAULT_TARGET "${POLYHEAD_DEFAULT_TARGET}" CACHE INTERNAL "")

# Sets VARIABLE to the object file of the Halide runtime with the GPU APIs, which is inside libpolyhead_gpu. Its symbols are weak: those that
# libpolyhead has too are libpolyhead's.
function(polyhead_halide_gpu_runtime variable)
    set(object "${CMAKE_BINARY_DIR}/polyhead_halide_gpu_runtime.o")
    add_custom_command(
        OUTPUT "${object}"
        COMMAND
            polyhead-generate --runtime "${object}" --target ${_polyhead_gpu_runtime_target}
            ${_polyhead_untested}
        DEPENDS polyhead-generate
        COMMENT "Halide runtime for ${_polyhead_gpu_runtime_target}"
        VERBATIM
    )
    # For CMake generators other than Ninja, which order by target and not by file.
    add_custom_target(polyhead_halide_gpu_runtime DEPENDS "${object}")
    set(${variable} "${object}" PARENT_SCOPE)
endfunction()
