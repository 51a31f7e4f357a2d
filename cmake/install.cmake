# `cmake --install` and `cpack -G DEB`: programs, pages for man, completions, units, models, and the
# scripts that need no checkout.
include(GNUInstallDirs)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON) # of `programs` alone
set(OUTRIDER_PROGRAMS outrider-client outrider-coordinator outrider-worker outrider-group)

set(OUTRIDER_MAINTAINER "The Outrider authors <maintainers@outrider.invalid>" CACHE STRING
  "Name and address in the Debian package")

set(pages ${CMAKE_BINARY_DIR}/man)
add_custom_command(OUTPUT ${pages}/outrider.1.gz
  COMMAND ${CMAKE_COMMAND} -D BIN=${CMAKE_BINARY_DIR}/bin -D OUT=${pages} -D GZIP=${GZIP}
          -P ${CMAKE_SOURCE_DIR}/cmake/pages.cmake
  DEPENDS ${OUTRIDER_PROGRAMS} cmake/pages.cmake)
add_custom_target(pages ALL DEPENDS ${pages}/outrider.1.gz)
add_dependencies(programs pages)

install(TARGETS ${OUTRIDER_PROGRAMS} RUNTIME)
install(DIRECTORY ${pages}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES deploy/shell/outrider.bash RENAME outrider
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)

set(share ${CMAKE_INSTALL_DATADIR}/outrider)
install(DIRECTORY deploy/models/tales DESTINATION ${share}/models)
install(PROGRAMS deploy/models/get DESTINATION ${share}/models)
install(FILES deploy/models/published DESTINATION ${share}/models)
install(DIRECTORY deploy/grafana deploy/prometheus DESTINATION ${share}
  PATTERN "*_test.yaml" EXCLUDE)
install(PROGRAMS deploy/mpirun/group deploy/mpirun/one DESTINATION ${share}/mpirun)
install(FILES deploy/mpirun/common deploy/mpirun/preflight deploy/mpirun/hosts.example
  DESTINATION ${share}/mpirun)
install(PROGRAMS deploy/tls/make-ca DESTINATION ${share}/tls)
# As callers import them: --proto_path=share/outrider.
install(FILES proto/generation.proto proto/target.proto DESTINATION ${share}/proto)
install(FILES rpc/health.proto DESTINATION ${share}/rpc)

file(GLOB documents CONFIGURE_DEPENDS docs/*.md)
install(FILES README.md ${documents} DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The rest depends on the prefix, which is known only when things are installed.
install(CODE "
  set(SOURCE \"${CMAKE_SOURCE_DIR}\")
  set(WORK \"${CMAKE_BINARY_DIR}/installed\")
  set(BINDIR \"${CMAKE_INSTALL_BINDIR}\")
  set(DATADIR \"${CMAKE_INSTALL_DATADIR}\")
  set(DOCDIR \"${CMAKE_INSTALL_DOCDIR}\")
  set(GZIP \"${GZIP}\")
  set(VERSION \"${PROJECT_VERSION}\")
  set(MAINTAINER \"${OUTRIDER_MAINTAINER}\")
  include(\"${CMAKE_SOURCE_DIR}/cmake/install_prefix.cmake\")")

# ---- the Debian package ----

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_NAME outrider)
set(CPACK_PACKAGE_VENDOR Outrider)
set(CPACK_PACKAGE_CONTACT ${OUTRIDER_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed server for large language models")
set(CPACK_PACKAGE_DESCRIPTION
"Outrider answers requests to large language models faster through speculative
decoding: a small draft model guesses tokens, and a group of workers with the
target model checks all guesses in one step. The text is exactly what the
target model would have written on its own.

It serves over gRPC and OpenAI's API. The package has the coordinator, the
worker, the client, and a pair of small models to try them with.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin) # mpirun, for groups of several ranks
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
  "bash-completion, curl, openssh-client, openssl, prometheus, unzip")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles ${CMAKE_SOURCE_DIR}/deploy/debian/postinst
  ${CMAKE_SOURCE_DIR}/deploy/debian/prerm ${CMAKE_SOURCE_DIR}/deploy/debian/postrm)
include(CPack)
