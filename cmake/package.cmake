# What `make install` puts beside the libraries: headers, pkg-config and CMake packages, manual, completion.
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/banyan)

list(JOIN pc_libs " " BANYAN_PC_LIBS)
# Relative to the file itself: an installed tree may be moved, or staged with DESTDIR or --prefix.
file(RELATIVE_PATH BANYAN_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(banyan.pc.in banyan.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/banyan.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/banyan)
configure_package_config_file(cmake/banyan-config.cmake.in ${PROJECT_BINARY_DIR}/banyan-config.cmake
    INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/banyan-config-version.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/banyan-config.cmake ${PROJECT_BINARY_DIR}/banyan-config-version.cmake
    DESTINATION ${package_dir})
install(EXPORT banyan-targets NAMESPACE banyan:: DESTINATION ${package_dir})

# Manual pages and completion are what the program says of itself, so they cannot fall behind it.
set(generated ${PROJECT_BINARY_DIR}/generated)
add_custom_command(TARGET banyan POST_BUILD
    COMMAND sh ${PROJECT_SOURCE_DIR}/cmake/generate.sh $<TARGET_FILE:banyan> ${generated} VERBATIM)
install(DIRECTORY ${generated}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
set(completion_dir ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${generated}/banyan.bash DESTINATION ${completion_dir} RENAME banyan)
install(FILES ${generated}/banyan.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _banyan)
install(FILES ${generated}/banyan.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
