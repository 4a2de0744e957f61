# polyhead_add_kernel() and polyhead_kernel_set(): kernels as CMake targets, in this build and in one that found the package.

# CAUSAL may stand without a value.
if(POLICY CMP0174)
    cmake_policy(SET CMP0174 NEW)
endif()

# Whether kernels for these targets call CUDA, OpenCL or Vulkan, whose runtime is in polyhead::gpu. Metal and WebGPU kernels have a
# Halide runtime of their own instead, and so do kernels for devices of other machines than this one.
function(_polyhead_needs_gpu variable targets)
    set(${variable} FALSE PARENT_SCOPE)
    if("${targets}," MATCHES "-(cuda|opencl|vulkan)[-,]")
        set(${variable} TRUE PARENT_SCOPE)
    endif()
endfunction()

# A build without the generator, for another machine for example, takes one that runs here.
set(POLYHEAD_GENERATE
    ""
    CACHE FILEPATH
    "A polyhead-generate that runs on this machine, where polyhead is built without one"
)
function(_polyhead_find_generator who)
    if(TARGET polyhead::generate)
        return()
    endif()
    if(POLYHEAD_GENERATE STREQUAL "")
        message(
            FATAL_ERROR
            "${who}: this polyhead was built without its generator, expected POLYHEAD_GENERATE to be the path of polyhead-generate"
        )
    endif()
    add_executable(polyhead::generate IMPORTED GLOBAL)
    set_target_properties(polyhead::generate PROPERTIES IMPORTED_LOCATION "${POLYHEAD_GENERATE}")
endfunction()

# The CPU features that kernels are made for. The environment variable is read at configuration, not at build, so that Ninja sees a change.
set(POLYHEAD_CPU_FEATURES
    "$ENV{POLYHEAD_CPU_FEATURES}"
    CACHE STRING
    "CPU features of the target `host`, such as avx2; empty: those of this machine"
)

# Writes NAME.a, NAME.h and NAME.json, and with --backward NAME_backward.h and .json, with the given generate flags: the target NAME_generate. Sets `folder` of the caller to where they are, and
# `runtime` to the target of the library that the kernel needs.
function(_polyhead_generate_files name)
    set(flags ${ARGN})
    if(POLYHEAD_SANITIZE AND NOT "--untested-target" IN_LIST flags)
        list(APPEND flags --untested-target) # of a sanitizer, which this program has
    endif()
    list(FIND flags --target at)
    math(EXPR at "${at} + 1")
    list(GET flags ${at} targets)
    _polyhead_needs_gpu(needs_gpu "${targets}")
    set(runtime polyhead::polyhead)
    if(needs_gpu AND TARGET polyhead::gpu)
        set(runtime polyhead::gpu) # which links polyhead::polyhead
    endif()
    set(folder "${CMAKE_CURRENT_BINARY_DIR}/polyhead_kernels")
    file(MAKE_DIRECTORY "${folder}")
    set(files "${folder}/${name}.a" "${folder}/${name}.h" "${folder}/${name}.json")
    if("--backward" IN_LIST flags)
        list(APPEND files "${folder}/${name}_backward.h" "${folder}/${name}_backward.json")
    endif()
    set(expression "")
    foreach(flag IN ITEMS --expression-file --expression-source --expression-library --tuned)
        list(FIND flags ${flag} at)
        if(at GREATER -1)
            math(EXPR at "${at} + 1")
            list(GET flags ${at} file)
            list(APPEND expression "${file}")
        endif()
    endforeach()
    # The variable POLYHEAD_TUNED at build time has no effect: the file of records is in the flags (--tuned).
    set(environment --unset=POLYHEAD_TUNED ${POLYHEAD_GENERATE_ENVIRONMENT})
    if(NOT POLYHEAD_CPU_FEATURES STREQUAL "")
        list(APPEND environment "POLYHEAD_CPU_FEATURES=${POLYHEAD_CPU_FEATURES}")
    endif()
    add_custom_command(
        OUTPUT ${files}
        COMMAND
            "${CMAKE_COMMAND}" -E env ${environment} $<TARGET_FILE:polyhead::generate> ${name}
            ${flags} -o "${folder}"
        DEPENDS polyhead::generate ${expression}
        COMMENT "Kernel ${name}"
        VERBATIM
    )
    add_custom_target(${name}_generate DEPENDS ${files})
    set(folder "${folder}" PARENT_SCOPE)
    set(runtime ${runtime} PARENT_SCOPE)
endfunction()

# The target NAME of these files, for this build alone.
function(_polyhead_generate_kernel name)
    _polyhead_generate_files(${name} ${ARGN})
    add_library(${name} STATIC IMPORTED GLOBAL)
    add_dependencies(${name} ${name}_generate)
    set_target_properties(
        ${name}
        PROPERTIES
            IMPORTED_LOCATION "${folder}/${name}.a"
            INTERFACE_INCLUDE_DIRECTORIES "${folder}"
            INTERFACE_LINK_LIBRARIES ${runtime}
    )
endfunction()

# The target NAME of these files as a library of the project, which it can install and export. CMake exports no library that it did not make, so
# it makes one of an empty source, and the generated archive takes the place of that.
function(_polyhead_kernel_library name)
    _polyhead_generate_files(${name} ${ARGN})
    get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
    set(source "${folder}/${name}_made.c")
    if("CXX" IN_LIST languages)
        string(APPEND source pp)
    endif()
    file(CONFIGURE OUTPUT "${source}" CONTENT "// The code of the kernel is in ${name}.a.\n" @ONLY)
    set_source_files_properties("${source}" PROPERTIES OBJECT_DEPENDS "${folder}/${name}.a")
    add_library(${name} STATIC "${source}")
    add_dependencies(${name} ${name}_generate)
    set_target_properties(
        ${name}
        PROPERTIES
            ARCHIVE_OUTPUT_DIRECTORY "${folder}"
            INTERPROCEDURAL_OPTIMIZATION OFF
            UNITY_BUILD OFF
    )
    target_include_directories(${name} SYSTEM INTERFACE "$<BUILD_INTERFACE:${folder}>")
    target_link_libraries(${name} INTERFACE ${runtime})
    add_custom_command(
        TARGET ${name}
        POST_BUILD
        COMMAND "${CMAKE_COMMAND}" -E copy "${folder}/${name}.a" "$<TARGET_FILE:${name}>"
        VERBATIM
    )
endfunction()

# Sets arg_EXPRESSION_FILE, or arg_EXPRESSION_SOURCE and arg_EXPRESSION_LIBRARY, to the files for the flags. Only polyhead_add_kernel
# calls it. A text is written to a file, because its statements end with semicolons, and a CMake list would be split there.
macro(_polyhead_expression name)
    set(_polyhead_given "")
    foreach(_polyhead_key IN ITEMS EXPRESSION EXPRESSION_FILE EXPRESSION_SOURCE)
        if(DEFINED arg_${_polyhead_key})
            list(APPEND _polyhead_given ${_polyhead_key})
        endif()
    endforeach()
    list(LENGTH _polyhead_given _polyhead_count)
    if(_polyhead_count GREATER 1)
        list(JOIN _polyhead_given " and " _polyhead_given)
        message(
            FATAL_ERROR
            "polyhead_add_kernel(${name}): found ${_polyhead_given}, expected one of them"
        )
    endif()
    if(DEFINED arg_EXPRESSION)
        _polyhead_expression_text(arg_EXPRESSION_FILE ${name} "${arg_EXPRESSION}")
        unset(arg_EXPRESSION)
    elseif(_polyhead_count EQUAL 1)
        get_filename_component(arg_${_polyhead_given} "${arg_${_polyhead_given}}" ABSOLUTE)
        if(NOT EXISTS "${arg_${_polyhead_given}}" OR IS_DIRECTORY "${arg_${_polyhead_given}}")
            message(
                FATAL_ERROR
                "polyhead_add_kernel(${name}): ${_polyhead_given} ${arg_${_polyhead_given}} is not a file"
            )
        endif()
    endif()
    if(DEFINED arg_EXPRESSION_SOURCE)
        _polyhead_expression_library(arg_EXPRESSION_LIBRARY ${name} "${arg_EXPRESSION_SOURCE}")
    endif()
endmacro()

function(_polyhead_expression_text variable name text)
    set(path "${CMAKE_CURRENT_BINARY_DIR}/polyhead_kernels/${name}.expression")
    file(CONFIGURE OUTPUT "${path}" CONTENT "@text@\n" @ONLY)
    set(${variable} "${path}" PARENT_SCOPE)
endfunction()

# Compiles C++ of Halide Exprs to a module that the generator loads. An error of the C++ compiler ends the build before the kernel is made.
function(_polyhead_expression_library variable name source)
    if(NOT TARGET Halide::Halide)
        message(
            FATAL_ERROR
            "polyhead_add_kernel(${name}): EXPRESSION_SOURCE needs Halide's headers, call find_package(Halide) first"
        )
    endif()
    add_library(${name}_expression MODULE EXCLUDE_FROM_ALL "${source}")
    target_compile_features(${name}_expression PRIVATE cxx_std_17)
    target_include_directories(${name}_expression PRIVATE "${POLYHEAD_EXPRESSION_INCLUDE_DIR}")
    target_link_libraries(${name}_expression PRIVATE Halide::Halide)
    set(${variable} "$<TARGET_FILE:${name}_expression>" PARENT_SCOPE)
endfunction()

# polyhead_add_kernel(NAME OP sdpa|mha|linear|sdpa_backward|linear_backward|mha_backward
#     [EMBED_DIM n] [NUM_HEADS n] [NUM_KV_HEADS n] [GROUP_SIZE n] [HEAD_DIM n] [HEAD_DIM_V n] [KDIM n] [VDIM n] [OUT_FEATURES n]
#     [VALUE_IN_KEY] [CROSS] [BIAS] [CAUSAL [bottom_right|top_left]] [KV_LENGTHS] [LSE] [SEQ_LEN_Q n] [SEQ_LEN_KV n] [DTYPE f32|f16|bf16]
#     [WINDOW] [POSITION_OFFSETS] [MASK bool|additive] [MASK_BROADCAST q|kv|q,kv] [SCORE_BIAS] [SCORE_BIAS_BROADCAST q|kv|q,kv]
#     [SOFTCAP] [ALIBI] [SINKS] [ROPE interleaved|half_split|interleaved_trailing|half_split_trailing] [ROTARY_DIM n] [ROPE_SECTIONS contiguous|interleaved|parts]
#     [SECTION_1 n] [SECTION_2 n] [SECTION_3 n] [HEAD_GATE] [GATE heads|entries] [QUERY_NORM rms|rms_plus_one|layer]
#     [KEY_NORM rms|rms_plus_one|layer] [VALUE_NORM] [NORM_OF_PROJECTION] [VALUE_FROM_KEY] [KEEP_HEADS]
#     [PAGE_SIZE n] [CACHE] [SHARED_CACHE] [INT8_CACHE] [SCALE_CHANNELS n]
#     [SCORES scaled|capped|logits|weights] [WEIGHTS_MEAN] [EXPRESSION "text" | EXPRESSION_FILE file | EXPRESSION_SOURCE file.cpp]
#     [BACKWARD] [SEQ_LEN_Q_RANGE min:max] [TARGETS target...] [UNTESTED_TARGET] [TILING "key=value ..." | TUNED file]
#     [LIMIT_SECONDS n] [LIMIT_MEGABYTES n])
# The generator checks the values when it builds the kernel.
function(polyhead_add_kernel name)
    include("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/polyhead_problem_words.cmake")
    set(switches "UNTESTED_TARGET;BACKWARD;${POLYHEAD_PROBLEM_SWITCHES}")
    set(values
        ${POLYHEAD_PROBLEM_VALUES}
        EXPRESSION
        EXPRESSION_FILE
        EXPRESSION_SOURCE
        SEQ_LEN_Q_RANGE
        TILING
        TUNED
        LIMIT_SECONDS
        LIMIT_MEGABYTES
    )
    cmake_parse_arguments(PARSE_ARGV 1 arg "${switches}" "${values}" "TARGETS")
    set(who "polyhead_add_kernel(${name})")
    _polyhead_find_generator("${who}")
    if(TARGET ${name})
        message(FATAL_ERROR "${who}: there is already a target of this name")
    endif()
    if(arg_UNPARSED_ARGUMENTS)
        message(
            FATAL_ERROR
            "${who}: unknown argument ${arg_UNPARSED_ARGUMENTS}; known are ${values} ${switches} TARGETS"
        )
    endif()
    set(given "")
    foreach(index RANGE 1 ${ARGC})
        string(CONCAT word "${ARGV${index}}") # set() would take CACHE for its own word
        if(word IN_LIST values AND word IN_LIST given)
            message(FATAL_ERROR "${who}: ${word} is given twice, expected it once")
        endif()
        list(APPEND given "${word}")
    endforeach()
    if("CAUSAL" IN_LIST arg_KEYWORDS_MISSING_VALUES)
        set(arg_CAUSAL bottom_right)
        list(REMOVE_ITEM arg_KEYWORDS_MISSING_VALUES CAUSAL)
    endif()
    if(arg_KEYWORDS_MISSING_VALUES)
        message(FATAL_ERROR "${who}: ${arg_KEYWORDS_MISSING_VALUES} needs a value")
    endif()
    _polyhead_expression(${name})
    _polyhead_require(${name} OP)
    if(arg_OP STREQUAL "sdpa" OR arg_OP STREQUAL "sdpa_backward")
        _polyhead_require(${name} HEAD_DIM)
        if(NOT DEFINED arg_GROUP_SIZE)
            _polyhead_require(${name} NUM_HEADS)
        endif()
    elseif(arg_OP STREQUAL "mha" OR arg_OP STREQUAL "mha_backward")
        _polyhead_require(${name} EMBED_DIM NUM_HEADS)
    elseif(arg_OP STREQUAL "linear" OR arg_OP STREQUAL "linear_backward")
        _polyhead_require(${name} EMBED_DIM OUT_FEATURES)
    else()
        message(
            FATAL_ERROR
            "${who}: OP is ${arg_OP}, expected sdpa, mha, linear, sdpa_backward, linear_backward or mha_backward"
        )
    endif()

    _polyhead_tuned(${name})
    set(flags "")
    foreach(key IN LISTS values switches ITEMS EXPRESSION_LIBRARY)
        string(TOLOWER "${key}" option)
        string(REPLACE "_" "-" option "--${option}")
        if(key IN_LIST switches)
            if(arg_${key})
                list(APPEND flags ${option})
            endif()
        elseif(DEFINED arg_${key})
            list(APPEND flags ${option} "${arg_${key}}")
        endif()
    endforeach()
    if(arg_NO_TUNED)
        list(APPEND flags --no-tuned)
    endif()
    if(NOT arg_TARGETS)
        set(arg_TARGETS "${POLYHEAD_DEFAULT_TARGET}")
    endif()
    list(JOIN arg_TARGETS "," targets)
    _polyhead_needs_gpu(needs_gpu "${targets}")
    if(needs_gpu AND NOT TARGET polyhead::gpu)
        message(
            FATAL_ERROR
            "${who}: ${targets} needs polyhead::gpu, which this polyhead was built without"
        )
    endif()
    _polyhead_kernel_library(${name} ${flags} --target ${targets})
endfunction()

# Sets arg_TUNED to the file of tuning records: the one of this kernel, else the CMake variable POLYHEAD_TUNED, else the environment
# variable POLYHEAD_TUNED. The kernel depends on the file. The environment is read now; later changes have no effect. "off" is no file, and
# sets arg_NO_TUNED. Only polyhead_add_kernel calls it.
macro(_polyhead_tuned name)
    if(NOT DEFINED arg_TUNED AND NOT "${POLYHEAD_TUNED}" STREQUAL "")
        set(arg_TUNED "${POLYHEAD_TUNED}")
    elseif(
        NOT DEFINED arg_TUNED
        AND NOT DEFINED arg_TILING
        AND NOT "$ENV{POLYHEAD_TUNED}" STREQUAL ""
    )
        set(arg_TUNED "$ENV{POLYHEAD_TUNED}")
    endif()
    set(arg_NO_TUNED "")
    if("${arg_TUNED}" STREQUAL "off")
        unset(arg_TUNED)
        set(arg_NO_TUNED TRUE)
    elseif(DEFINED arg_TUNED)
        get_filename_component(arg_TUNED "${arg_TUNED}" ABSOLUTE)
        if(NOT EXISTS "${arg_TUNED}" OR IS_DIRECTORY "${arg_TUNED}")
            message(
                FATAL_ERROR
                "polyhead_add_kernel(${name}): TUNED ${arg_TUNED} is not a file of tuning records"
            )
        endif()
    endif()
endmacro()

# Ends the configuration when one of the arguments is missing. Only polyhead_add_kernel calls it.
macro(_polyhead_require name)
    foreach(_polyhead_key ${ARGN})
        if(NOT DEFINED arg_${_polyhead_key})
            message(FATAL_ERROR "polyhead_add_kernel(${name}): ${_polyhead_key} is missing")
        endif()
    endforeach()
endmacro()

# polyhead_kernel_set(NAME KERNELS kernel... [HEADER file.h] [ARRAY identifier])
# Makes a target NAME that links all the kernels, with a header NAME.h: `constexpr const polyhead::Kernel *NAME[]`, NAME_count.
function(polyhead_kernel_set name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;ARRAY" "KERNELS")
    set(who "polyhead_kernel_set(${name})")
    if(arg_UNPARSED_ARGUMENTS)
        message(
            FATAL_ERROR
            "${who}: unknown argument ${arg_UNPARSED_ARGUMENTS}; known are KERNELS HEADER ARRAY"
        )
    endif()
    if(NOT arg_KERNELS)
        message(FATAL_ERROR "${who}: KERNELS is missing")
    endif()
    if(NOT arg_HEADER)
        set(arg_HEADER "${name}.h")
    endif()
    if(NOT arg_ARRAY)
        set(arg_ARRAY "${name}")
    endif()
    set(includes "")
    set(entries "")
    foreach(kernel IN LISTS arg_KERNELS)
        if(NOT TARGET ${kernel})
            message(
                FATAL_ERROR
                "${who}: ${kernel} is not a kernel; add it with polyhead_add_kernel() first"
            )
        endif()
        string(APPEND includes "#include <${kernel}.h>\n")
        string(APPEND entries "    &::${kernel},\n")
    endforeach()
    list(LENGTH arg_KERNELS count)
    set(folder "${CMAKE_CURRENT_BINARY_DIR}/polyhead_kernel_sets/${name}")
    file(
        CONFIGURE
        OUTPUT "${folder}/${arg_HEADER}"
        CONTENT
            "// The kernel set @arg_ARRAY@, written by polyhead_kernel_set().
#pragma once

#include <cstddef>

@includes@
constexpr const polyhead::Kernel *@arg_ARRAY@[] = {
@entries@};
constexpr size_t @arg_ARRAY@_count = @count@;
"
        @ONLY
    )
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE "$<BUILD_INTERFACE:${folder}>")
    target_link_libraries(${name} INTERFACE ${arg_KERNELS} polyhead::polyhead)
    foreach(kernel IN LISTS arg_KERNELS)
        add_dependencies(${name} ${kernel}_generate)
    endforeach()
endfunction()
