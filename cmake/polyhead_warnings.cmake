# How our own code is compiled.
#
# polyhead_target_defaults(target [NO_CONVERSION] [NO_SANITIZE] [APART]): warnings and sanitizers; sources are compiled together, except for
# a library of which a program takes single objects (APART).
function(polyhead_target_defaults target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "NO_CONVERSION;NO_SANITIZE;APART" "" "")
    if(POLYHEAD_UNITY AND NOT arg_APART)
        set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    endif()
    target_compile_features(${target} PUBLIC cxx_std_17)
    target_compile_options(
        ${target}
        PRIVATE -Wall -Wextra -Wno-missing-field-initializers $<$<BOOL:${POLYHEAD_WERROR}>:-Werror>
    )
    if(NOT arg_NO_CONVERSION)
        target_compile_options(${target} PRIVATE -Wconversion)
    endif()
    if(POLYHEAD_SANITIZE AND NOT arg_NO_SANITIZE)
        # UBSan checks alignment, too. Its failures end the program, as those of ASan do.
        target_compile_options(
            ${target}
            PRIVATE
                -fsanitize=${POLYHEAD_SANITIZERS}
                -fno-sanitize-recover=all
                -fno-omit-frame-pointer
        )
        target_link_options(${target} PUBLIC -fsanitize=${POLYHEAD_SANITIZERS})
    endif()
endfunction()

# For code that runs for a moment, beside a compiler or a test: there -O1 in place of CMake's -O3 saves time.
function(polyhead_quickly_compiled target)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()
