# cmake --install, find_package(polyhead) and pkg-config: libpolyhead.a, libpolyhead_gpu.a, headers, the generator and polyhead_add_kernel().
#
# The generator needs libHalide.so. By default a copy is installed with it (lib/polyhead, about 160 MB), so that the package needs
# nothing else. With POLYHEAD_INSTALL_HALIDE=OFF the installed generator keeps an rpath to the libHalide.so of this build. Programs
# that use kernels never need it. Components: runtime (libraries, headers, CMake package) and generator, which needs the other.
include(CMakePackageConfigHelpers)

set(_polyhead_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/polyhead")
set(_polyhead_installed polyhead)
if(POLYHEAD_BUILD_GENERATOR)
    file(
        RELATIVE_PATH
        _polyhead_bin_to_lib
        "/${CMAKE_INSTALL_BINDIR}"
        "/${CMAKE_INSTALL_LIBDIR}/polyhead"
    )
    get_filename_component(_polyhead_halide_dir "${POLYHEAD_HALIDE_LIBRARY}" DIRECTORY)
    if(POLYHEAD_WHEEL)
        set(_polyhead_halide_dir "${POLYHEAD_WHEEL_HALIDE_RPATH}")
    endif()
    # A program of its own for the installation: CMake would leave an empty element in the RUNPATH of a program whose RUNPATH it changes later, and
    # an empty element is the current folder.
    add_executable(polyhead_generate_installed $<TARGET_OBJECTS:polyhead-generate>)
    polyhead_target_defaults(polyhead_generate_installed NO_SANITIZE)
    target_link_libraries(
        polyhead_generate_installed
        PRIVATE polyhead_library_writer polyhead_generators
    )
    target_link_options(polyhead_generate_installed PRIVATE LINKER:--build-id)
    if(POLYHEAD_WHEEL)
        polyhead_for_older_systems(polyhead_generate_installed)
    endif()
    set_target_properties(
        polyhead_generate_installed
        PROPERTIES
            OUTPUT_NAME polyhead-generate
            RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/installed"
            LINKER_LANGUAGE CXX
            EXPORT_NAME generate
            BUILD_WITH_INSTALL_RPATH ON
            INSTALL_RPATH
                "$<IF:$<BOOL:${POLYHEAD_INSTALL_HALIDE}>,$ORIGIN/${_polyhead_bin_to_lib},${_polyhead_halide_dir}>"
    )
    if(POLYHEAD_INSTALL_HALIDE)
        install(
            FILES "${POLYHEAD_HALIDE_LIBRARY}"
            DESTINATION "${CMAKE_INSTALL_LIBDIR}/polyhead"
            COMPONENT generator
        )
    endif()
    install(
        TARGETS polyhead_generate_installed
        EXPORT polyheadGeneratorTargets
        RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT generator
    )
    install(
        EXPORT polyheadGeneratorTargets
        NAMESPACE polyhead::
        DESTINATION "${_polyhead_package_dir}"
        COMPONENT generator
    )
endif()

set_target_properties(polyhead PROPERTIES EXPORT_NAME polyhead)
if(TARGET polyhead_gpu)
    set_target_properties(polyhead_gpu PROPERTIES EXPORT_NAME gpu)
    list(APPEND _polyhead_installed polyhead_gpu)
endif()
install(
    TARGETS ${_polyhead_installed}
    EXPORT polyheadTargets
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime
)
install(
    DIRECTORY "${PROJECT_SOURCE_DIR}/runtime/include/"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    COMPONENT runtime
)
install(
    DIRECTORY "${PROJECT_SOURCE_DIR}/generators/include/"
    DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    COMPONENT generator
)
if(NOT POLYHEAD_WHEEL) # which has them among its metadata
    install(
        FILES "${PROJECT_SOURCE_DIR}/LICENSE" "${PROJECT_SOURCE_DIR}/NOTICE"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        COMPONENT runtime
    )
endif()
# For builds without CMake. The libraries are static and written in C++, so a program in C names the C++ library, too.
file(RELATIVE_PATH _polyhead_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
foreach(_polyhead_library IN LISTS _polyhead_installed)
    string(REPLACE "_" "-" _polyhead_pc ${_polyhead_library})
    configure_file(
        "${PROJECT_SOURCE_DIR}/cmake/${_polyhead_pc}.pc.in"
        "${PROJECT_BINARY_DIR}/${_polyhead_pc}.pc"
        @ONLY
    )
    install(
        FILES "${PROJECT_BINARY_DIR}/${_polyhead_pc}.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT runtime
    )
endforeach()
install(
    EXPORT polyheadTargets
    NAMESPACE polyhead::
    DESTINATION "${_polyhead_package_dir}"
    COMPONENT runtime
)
configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/polyheadConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/polyheadConfig.cmake"
    INSTALL_DESTINATION "${_polyhead_package_dir}"
)
write_basic_package_version_file(
    "${PROJECT_BINARY_DIR}/polyheadConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion
)
install(
    FILES
        "${PROJECT_BINARY_DIR}/polyheadConfig.cmake"
        "${PROJECT_BINARY_DIR}/polyheadConfigVersion.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/polyhead_kernel.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/polyhead_problem_words.cmake"
    DESTINATION "${_polyhead_package_dir}"
    COMPONENT runtime
)

# cpack, in the build folder: .deb and .tar.gz of each component.
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_COMPONENTS_ALL runtime)
if(POLYHEAD_BUILD_GENERATOR)
    list(APPEND CPACK_COMPONENTS_ALL generator)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_VENDOR polyhead)
set(CPACK_PACKAGE_CONTACT "the authors of polyhead")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libpolyhead-dev)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION
    "libraries, headers and CMake package of polyhead, for programs that link its kernels"
)
set(CPACK_DEBIAN_GENERATOR_PACKAGE_NAME polyhead-generator)
set(CPACK_DEBIAN_GENERATOR_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_GENERATOR_PACKAGE_DEPENDS
    "libpolyhead-dev (= ${PROJECT_VERSION}), libc6, libstdc++6, libgcc-s1"
)
set(CPACK_DEBIAN_GENERATOR_DESCRIPTION
    "generator of attention kernels, with the Halide that it needs"
)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
include(CPack)
