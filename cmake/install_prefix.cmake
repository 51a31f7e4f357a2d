# Part of `cmake --install`: files that name the prefix, or whose place depends on it. As part of
# the system (/usr) they are where Debian has them.
set(FOLDER ${CMAKE_INSTALL_PREFIX})
if(FOLDER STREQUAL "/usr")
  set(SYSCONFDIR /etc)
  set(ZSH_DIR ${FOLDER}/${DATADIR}/zsh/vendor-completions)
else()
  set(SYSCONFDIR ${FOLDER}/etc)
  set(ZSH_DIR ${FOLDER}/${DATADIR}/zsh/site-functions)
endif()
file(REMOVE_RECURSE ${WORK})

# install_filled(PATH FOLDER FILE_OR_PROGRAM): with the paths of this installation.
function(install_filled path folder type)
  get_filename_component(name ${path} NAME)
  file(READ ${SOURCE}/${path} text)
  string(REPLACE "/usr/bin" "${FOLDER}/${BINDIR}" text "${text}")
  string(REPLACE "/usr/share" "${FOLDER}/${DATADIR}" text "${text}")
  string(REPLACE "/etc/outrider" "${SYSCONFDIR}/outrider" text "${text}")
  string(REPLACE "/opt/outrider/build/release" "${FOLDER}" text "${text}")
  file(WRITE ${WORK}/${name} "${text}")
  file(INSTALL ${WORK}/${name} DESTINATION ${folder} TYPE ${type})
endfunction()

foreach(unit outrider-coordinator outrider-group)
  install_filled(deploy/systemd/${unit}.service ${FOLDER}/lib/systemd/system FILE)
endforeach()
foreach(options coordinator group) # those that are there are the administrator's
  if(NOT EXISTS $ENV{DESTDIR}${SYSCONFDIR}/outrider/${options}.conf)
    install_filled(deploy/systemd/${options}.conf ${SYSCONFDIR}/outrider FILE)
  endif()
endforeach()
install_filled(deploy/mpirun/outrider.sbatch ${FOLDER}/${DATADIR}/outrider/mpirun PROGRAM)
file(INSTALL ${SOURCE}/deploy/shell/_outrider DESTINATION ${ZSH_DIR} TYPE FILE)

# bash looks for completions under the name of the program.
foreach(program coordinator worker group)
  file(CREATE_LINK outrider ${WORK}/outrider-${program} SYMBOLIC)
  file(INSTALL ${WORK}/outrider-${program}
    DESTINATION ${FOLDER}/${DATADIR}/bash-completion/completions TYPE FILE)
endforeach()

if(FOLDER STREQUAL "/usr")
  file(INSTALL ${SOURCE}/deploy/debian/copyright DESTINATION ${FOLDER}/${DOCDIR} TYPE FILE)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # heeds SOURCE_DATE_EPOCH
  file(READ ${SOURCE}/deploy/debian/changelog text)
  string(CONFIGURE "${text}" text @ONLY)
  file(WRITE ${WORK}/changelog "${text}")
  execute_process(COMMAND ${GZIP} -9nf ${WORK}/changelog COMMAND_ERROR_IS_FATAL ANY)
  file(INSTALL ${WORK}/changelog.gz DESTINATION ${FOLDER}/${DOCDIR} TYPE FILE)
else()
  file(INSTALL ${SOURCE}/LICENSE DESTINATION ${FOLDER}/${DOCDIR} TYPE FILE)
endif()
