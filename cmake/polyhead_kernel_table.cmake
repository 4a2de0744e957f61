# The kernel table (kernels/table.txt): one line per kernel, read by builds, tests and benches.
#
# Makes two kernel sets with the same header, kernel_table.h (kernel_table[], kernel_table_count):
#   polyhead_kernel_table         every kernel
#   polyhead_kernel_table_tested  those of POLYHEAD_KERNEL_TIER: `all`, or `fast`: the lines tagged fast, and of the others every
#                                 fourth, chosen by name and POLYHEAD_KERNEL_SAMPLE, so that each commit tests other ones
function(polyhead_kernel_table file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(STRINGS "${file}" lines)
    set(all "")
    set(tested "")
    foreach(line IN LISTS lines)
        if(line MATCHES "^ *(#.*)?$")
            continue()
        endif()
        if(NOT line MATCHES "^([A-Za-z0-9_]+) *\\(([a-z ]*)\\) *: *(.*)$")
            message(FATAL_ERROR "${file}: expected `NAME (tags) : generate flags`, found `${line}`")
        endif()
        set(name "${CMAKE_MATCH_1}")
        separate_arguments(tags UNIX_COMMAND "${CMAKE_MATCH_2}")
        separate_arguments(flags UNIX_COMMAND "${CMAKE_MATCH_3}")
        if(NOT "--target" IN_LIST flags)
            list(APPEND flags --target ${POLYHEAD_DEFAULT_TARGET})
        endif()
        _polyhead_generate_kernel(${name} ${flags})
        list(APPEND all ${name})
        string(MD5 hash "${name} ${POLYHEAD_KERNEL_SAMPLE}")
        if(POLYHEAD_KERNEL_TIER STREQUAL "all" OR "fast" IN_LIST tags OR hash MATCHES "^[0123]")
            list(APPEND tested ${name})
        endif()
    endforeach()
    polyhead_kernel_set(
        polyhead_kernel_table
        HEADER kernel_table.h
        ARRAY kernel_table
        KERNELS ${all}
    )
    polyhead_kernel_set(
        polyhead_kernel_table_tested
        HEADER kernel_table.h
        ARRAY kernel_table
        KERNELS ${tested}
    )
endfunction()
