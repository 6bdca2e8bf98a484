# What is installed, and the Debian package of it: make deb.
include(GNUInstallDirs)
# Installing builds nothing: tests and benchmarks are no part of it. `make deb` has built the two.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

install(TARGETS softhca RUNTIME DESTINATION bin)
# Where softhca looks for it (run/program.h). Nobody links with it, so it is no library of the system.
install(TARGETS softhca_preload LIBRARY DESTINATION lib/softhca)
install(FILES packaging/completion/softhca DESTINATION share/bash-completion/completions)
install(FILES packaging/lintian-overrides DESTINATION share/lintian/overrides RENAME softhca)
install(FILES examples/libibverbs/hello_rdma.c DESTINATION share/doc/softhca/examples/libibverbs)
# Man pages, pages, changelog.
install(CODE "execute_process(COMMAND \"${CMAKE_SOURCE_DIR}/packaging/installed.py\" \"$<TARGET_FILE:softhca>\"
                                      ${PROJECT_VERSION} \"${CMAKE_BINARY_DIR}/installed\" COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY ${CMAKE_BINARY_DIR}/installed/share DESTINATION .)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME softhca)
set(CPACK_PACKAGE_CONTACT "The softhca developers <softhca@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "RDMA devices in software, for unmodified programs and drivers")
set(CPACK_PACKAGE_DESCRIPTION
    "Runs programs of libibverbs and librdmacm without RDMA hardware, root or kernel module, on a ConnectX-4 in software "
    "(softhca run), and shows such devices to virtual machines (softhca serve).")
string(REPLACE ";" "" CPACK_PACKAGE_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The provider of libibverbs that the device is for, and what to try first.
set(CPACK_DEBIAN_PACKAGE_DEPENDS ibverbs-providers)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ibverbs-utils, perftest, rdmacm-utils")
include(CPack)
