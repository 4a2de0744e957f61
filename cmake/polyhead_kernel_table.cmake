# The kernel table (kernels/table.txt): one line per kernel, read by builds, tests and benches.
#
# Makes four kernel sets with the same header, kernel_table.h (kernel_table[], kernel_table_count):
#   polyhead_kernel_table         every CPU kernel
#   polyhead_kernel_table_tested  the CPU kernels of POLYHEAD_KERNEL_TIER. `all`: every kernel. `fast`: the lines tagged fast, and
#                                 about every sixteenth of the others; name and POLYHEAD_KERNEL_SAMPLE choose them, so that each
#                                 commit tests different ones
#   polyhead_kernel_table_gpu     every GPU kernel: NAME_gpu, for POLYHEAD_GPU_TARGETS, for each line tagged gpu or gpu_only
#   polyhead_kernel_table_gpu_tested  the GPU kernels of POLYHEAD_KERNEL_TIER. `all`: every NAME_gpu. `fast`: every third of the lines tagged fast
#                                 and every sixteenth of the others, beginning where POLYHEAD_KERNEL_SAMPLE says, each for one API in
#                                 turns: NAME_opencl or NAME_cuda
# A set without kernels is not made; without polyhead::gpu the sets of GPU kernels are not made. The global properties
# POLYHEAD_TABLE_TESTED and POLYHEAD_TABLE_GPU_TESTED have the names of the kernels of the tier. The target property POLYHEAD_FLAGS of each
# GPU kernel has its flags.

# Generates the GPU kernel of a line under this name: with the flags of the line, without --target and its value, with the targets and with the
# listings in which tests/gpu_sources reads how kernels are launched.
function(_polyhead_gpu_kernel name targets)
    set(flags "")
    set(skip FALSE)
    foreach(flag IN LISTS ARGN)
        if(skip)
            set(skip FALSE)
        elseif(flag STREQUAL "--target")
            set(skip TRUE)
        else()
            list(APPEND flags "${flag}")
        endif()
    endforeach()
    list(APPEND flags --target "${targets}" --emit stmt)
    _polyhead_generate_kernel(${name} ${flags})
    set_target_properties(${name} PROPERTIES POLYHEAD_FLAGS "${flags}")
endfunction()

# Sets `name`, `tags` and `flags` of the caller to those of one line.
function(_polyhead_table_line file line)
    if(NOT line MATCHES "^([A-Za-z0-9_]+) *\\(([a-z_ ]*)\\) *: *(.*)$")
        message(FATAL_ERROR "${file}: expected `NAME (tags) : generate flags`, found `${line}`")
    endif()
    set(name "${CMAKE_MATCH_1}" PARENT_SCOPE)
    separate_arguments(tags UNIX_COMMAND "${CMAKE_MATCH_2}")
    # Statements of an expression end with semicolons, which would split the list of flags.
    string(REPLACE ";" "$<SEMICOLON>" text "${CMAKE_MATCH_3}")
    separate_arguments(flags UNIX_COMMAND "${text}")
    foreach(tag IN LISTS tags)
        if(NOT tag MATCHES "^(fast|speed|gpu|gpu_only)$")
            message(
                FATAL_ERROR
                "${file}: expected tags fast, speed, gpu or gpu_only, found `${line}`"
            )
        endif()
    endforeach()
    set(tags "${tags}" PARENT_SCOPE)
    set(flags "${flags}" PARENT_SCOPE)
endfunction()

# Generates the GPU kernel of a line for one of POLYHEAD_GPU_TARGETS, that of this number, and sets `variable` to its name.
function(_polyhead_kernel_for_one_api variable name number)
    string(REPLACE "," ";" targets "${POLYHEAD_GPU_TARGETS}")
    list(LENGTH targets count)
    math(EXPR chosen "${number} % ${count}")
    list(GET targets ${chosen} target)
    string(REGEX MATCH "opencl|cuda|vulkan" api "${target}")
    _polyhead_gpu_kernel(${name}_${api} "${target}" ${ARGN})
    set(${variable} ${name}_${api} PARENT_SCOPE)
endfunction()

function(polyhead_kernel_table file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(STRINGS "${file}" lines)
    foreach(set "" _tested _gpu _gpu_tested)
        set(kernels${set} "")
    endforeach()
    # Lines of the GPU tier are counted from here: each device has as many at every commit.
    string(MD5 hash "${POLYHEAD_KERNEL_SAMPLE}")
    string(SUBSTRING "${hash}" 0 6 digits)
    math(EXPR number_fast "0x${digits} % 96")
    set(number_other ${number_fast})
    foreach(line IN LISTS lines)
        if(line MATCHES "^ *(#.*)?$")
            continue()
        endif()
        _polyhead_table_line("${file}" "${line}")
        string(MD5 hash "${name} ${POLYHEAD_KERNEL_SAMPLE}")
        set(tested FALSE)
        if(POLYHEAD_KERNEL_TIER STREQUAL "all" OR "fast" IN_LIST tags OR hash MATCHES "^0")
            set(tested TRUE)
        endif()
        if(NOT "gpu_only" IN_LIST tags)
            set(cpu_flags ${flags})
            if(NOT "--target" IN_LIST flags)
                list(APPEND cpu_flags --target ${POLYHEAD_DEFAULT_TARGET})
            endif()
            _polyhead_generate_kernel(${name} ${cpu_flags})
            list(APPEND kernels ${name})
            if(tested)
                list(APPEND kernels_tested ${name})
            endif()
        endif()
        if(POLYHEAD_GPU_TARGETS AND ("gpu" IN_LIST tags OR "gpu_only" IN_LIST tags))
            # The GPU kernel gets the same --tiling. A line with both kernels may therefore only set knobs that all frames have.
            _polyhead_gpu_kernel(${name}_gpu "${POLYHEAD_GPU_TARGETS}" ${flags})
            list(APPEND kernels_gpu ${name}_gpu)
            # The fast tier takes a part of them, by the commit, each for one API: devices are emulated, and CUDA takes three times as
            # long to generate as OpenCL.
            set(kind other)
            set(step 16)
            if("fast" IN_LIST tags)
                set(kind fast)
                set(step 3)
            endif()
            math(EXPR number_${kind} "${number_${kind}} + 1")
            math(EXPR turn "${number_${kind}} / ${step}")
            math(EXPR rest "${number_${kind}} % ${step}")
            if(POLYHEAD_KERNEL_TIER STREQUAL "all")
                list(APPEND kernels_gpu_tested ${name}_gpu)
            elseif(rest EQUAL 0)
                _polyhead_kernel_for_one_api(one_api ${name} ${turn} ${flags})
                list(APPEND kernels_gpu_tested ${one_api})
            endif()
        endif()
    endforeach()
    set_property(GLOBAL PROPERTY POLYHEAD_TABLE_TESTED ${kernels_tested})
    set_property(GLOBAL PROPERTY POLYHEAD_TABLE_GPU_TESTED ${kernels_gpu_tested})
    foreach(set "" _tested _gpu _gpu_tested)
        if(kernels${set} AND (NOT set MATCHES "gpu" OR TARGET polyhead::gpu))
            polyhead_kernel_set(
                polyhead_kernel_table${set}
                HEADER kernel_table.h
                ARRAY kernel_table
                KERNELS ${kernels${set}}
            )
        endif()
    endforeach()
endfunction()
