# Programs and modules that go to other machines, whose system may be older than that of the build.

# The C++ library of the build is newer than a system's may be, so it is inside. What it calls of a newer C library is, too.
function(polyhead_for_older_systems target)
    target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/python/src/older_systems.c")
    target_link_options(
        ${target}
        PRIVATE -static-libstdc++ LINKER:--wrap=_dl_find_object,--wrap=arc4random
    )
endfunction()
