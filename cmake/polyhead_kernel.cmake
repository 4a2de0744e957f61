# polyhead_add_kernel() and polyhead_kernel_set(): kernels as CMake targets, in this build and in one that found the package.

# Whether kernels for these targets call CUDA, OpenCL or Vulkan, whose runtime is in polyhead::gpu. Metal and WebGPU kernels bring a
# Halide runtime of their own instead, as those of foreign machines do.
function(_polyhead_needs_gpu variable targets)
    set(${variable} FALSE PARENT_SCOPE)
    if("${targets}," MATCHES "-(cuda|opencl|vulkan)[-,]")
        set(${variable} TRUE PARENT_SCOPE)
    endif()
endfunction()

# Writes NAME.a, NAME.h, NAME.json with the given generate flags and makes the library target NAME of them.
function(_polyhead_generate_kernel name)
    set(flags ${ARGN})
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
    set(expression "")
    list(FIND flags --expression-file at)
    if(at GREATER -1)
        math(EXPR at "${at} + 1")
        list(GET flags ${at} expression)
    endif()
    add_custom_command(
        OUTPUT ${files}
        COMMAND polyhead::generate ${name} ${flags} -o "${folder}"
        DEPENDS polyhead::generate ${expression}
        COMMENT "Kernel ${name}"
        VERBATIM
    )
    add_custom_target(${name}_generate DEPENDS ${files})
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

# Sets VARIABLE to a file with the user expression of a kernel: the user's own, or one with the text of the call. A text would not
# survive a list: statements end with semicolons.
function(_polyhead_expression_file variable name text file)
    if(file)
        get_filename_component(path "${file}" ABSOLUTE)
        if(NOT EXISTS "${path}" OR IS_DIRECTORY "${path}")
            message(
                FATAL_ERROR
                "polyhead_add_kernel(${name}): EXPRESSION_FILE ${path} is not a file"
            )
        endif()
    else()
        set(path "${CMAKE_CURRENT_BINARY_DIR}/polyhead_kernels/${name}.expression")
        file(CONFIGURE OUTPUT "${path}" CONTENT "@text@\n" @ONLY)
    endif()
    set(${variable} "${path}" PARENT_SCOPE)
endfunction()

# polyhead_add_kernel(NAME OP sdpa|mha|linear
#     [EMBED_DIM n] [NUM_HEADS n] [NUM_KV_HEADS n] [HEAD_DIM n] [HEAD_DIM_V n] [KDIM n] [VDIM n] [OUT_FEATURES n]
#     [CROSS] [BIAS] [CAUSAL [bottom_right|top_left]] [KV_LENGTHS] [LSE] [SEQ_LEN_Q n] [SEQ_LEN_KV n] [DTYPE f32|f16|bf16]
#     [WINDOW] [POSITION_OFFSETS] [MASK bool|additive] [MASK_BROADCAST q|kv|q,kv] [SCORE_BIAS] [SCORE_BIAS_BROADCAST q|kv|q,kv]
#     [SOFTCAP] [ALIBI] [SINKS] [ROPE interleaved|half_split] [ROTARY_DIM n] [HEAD_GATE]
#     [SCORES scaled|capped|logits|weights] [WEIGHTS_MEAN] [EXPRESSION "text" | EXPRESSION_FILE file]
#     [SEQ_LEN_Q_RANGE min:max] [TARGETS target...] [TILING "key=value ..."])
# Values themselves are checked by the generator when it builds the kernel.
function(polyhead_add_kernel name)
    set(switches
        CROSS
        BIAS
        KV_LENGTHS
        LSE
        WINDOW
        POSITION_OFFSETS
        SCORE_BIAS
        SOFTCAP
        ALIBI
        SINKS
        HEAD_GATE
        WEIGHTS_MEAN
    )
    set(values
        OP
        EMBED_DIM
        NUM_HEADS
        NUM_KV_HEADS
        HEAD_DIM
        HEAD_DIM_V
        KDIM
        VDIM
        OUT_FEATURES
        CAUSAL
        MASK
        MASK_BROADCAST
        SCORE_BIAS_BROADCAST
        ROPE
        ROTARY_DIM
        SCORES
        EXPRESSION
        EXPRESSION_FILE
        SEQ_LEN_Q
        SEQ_LEN_KV
        DTYPE
        SEQ_LEN_Q_RANGE
        TILING
    )
    cmake_parse_arguments(PARSE_ARGV 1 arg "${switches}" "${values}" "TARGETS")
    set(who "polyhead_add_kernel(${name})")
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
        set(word "${ARGV${index}}")
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
    if(DEFINED arg_EXPRESSION AND DEFINED arg_EXPRESSION_FILE)
        message(
            FATAL_ERROR
            "${who}: found both EXPRESSION and EXPRESSION_FILE, expected one of them"
        )
    elseif(DEFINED arg_EXPRESSION OR DEFINED arg_EXPRESSION_FILE)
        _polyhead_expression_file(arg_EXPRESSION_FILE ${name} "${arg_EXPRESSION}" "${arg_EXPRESSION_FILE}")
        unset(arg_EXPRESSION)
    endif()
    _polyhead_require(${name} OP)
    if(arg_OP STREQUAL "sdpa")
        _polyhead_require(${name} NUM_HEADS HEAD_DIM)
    elseif(arg_OP STREQUAL "mha")
        _polyhead_require(${name} EMBED_DIM NUM_HEADS)
    elseif(arg_OP STREQUAL "linear")
        _polyhead_require(${name} EMBED_DIM OUT_FEATURES)
    else()
        message(FATAL_ERROR "${who}: OP is ${arg_OP}, expected sdpa, mha or linear")
    endif()

    set(flags "")
    foreach(key IN LISTS values switches)
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
    _polyhead_generate_kernel(${name} ${flags} --target ${targets})
endfunction()

# Ends the configuration when one of the arguments is not there; to be called by polyhead_add_kernel only.
macro(_polyhead_require name)
    foreach(_polyhead_key ${ARGN})
        if(NOT DEFINED arg_${_polyhead_key})
            message(FATAL_ERROR "polyhead_add_kernel(${name}): ${_polyhead_key} is missing")
        endif()
    endforeach()
endmacro()

# polyhead_kernel_set(NAME KERNELS kernel... [HEADER file.h] [ARRAY identifier])
# A target NAME that links all the kernels, with the header NAME.h: `inline constexpr const polyhead::Kernel *NAME[]`, NAME_count.
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
inline constexpr const polyhead::Kernel *@arg_ARRAY@[] = {
@entries@};
inline constexpr size_t @arg_ARRAY@_count = @count@;
"
        @ONLY
    )
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE "${folder}")
    target_link_libraries(${name} INTERFACE ${arg_KERNELS} polyhead::polyhead)
    foreach(kernel IN LISTS arg_KERNELS)
        add_dependencies(${name} ${kernel}_generate)
    endforeach()
endfunction()
