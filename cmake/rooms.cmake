# outrider_room(NAME FOLDERS folder... [EXCLUDE regex] LINK library... [HIDDEN library...])
# outrider_room(NAME SOURCES file... [HEADERS file...] LINK library... [HIDDEN library...])
# makes the library outrider_NAME of the folders' own .c files, without those of folders
# inside them.
#
# A room sees the headers of the rooms that it links, and of those that they link, and no others:
# each room offers its headers in a folder of links, build/rooms/NAME, and only the folders of what
# is linked come into the include path. So the compiler refuses an include upward. A library that is
# HIDDEN is linked and its headers are seen by this room, but not by the rooms above it.
# tests/test_rooms.sh is stricter: it allows only the rooms of a room's own row in the table of
# docs/architecture.md. Headers called internal.h are offered to nobody but the room itself.
function(outrider_room name)
  cmake_parse_arguments(ROOM "" "EXCLUDE" "SOURCES;HEADERS;FOLDERS;LINK;HIDDEN" ${ARGN})
  foreach(folder ${ROOM_FOLDERS})
    set(path ${CMAKE_SOURCE_DIR}/${folder})
    file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${path}/*.c)
    file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${path}/*.h ${path}/*.cuh)
    if(ROOM_EXCLUDE)
      list(FILTER sources EXCLUDE REGEX "${ROOM_EXCLUDE}")
      list(FILTER headers EXCLUDE REGEX "${ROOM_EXCLUDE}")
    endif()
    list(APPEND ROOM_SOURCES ${sources})
    list(APPEND ROOM_HEADERS ${headers})
  endforeach()
  set(open ${CMAKE_BINARY_DIR}/rooms/${name})
  set(closed ${CMAKE_BINARY_DIR}/rooms/${name}.internal)
  file(REMOVE_RECURSE ${open} ${closed})
  file(MAKE_DIRECTORY ${open} ${closed})
  foreach(header ${ROOM_HEADERS})
    get_filename_component(folder ${header} DIRECTORY)
    if(header MATCHES "/internal\\.(h|cuh)$")
      set(offer ${closed})
    else()
      set(offer ${open})
    endif()
    file(MAKE_DIRECTORY ${offer}/${folder})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${header} ${offer}/${header} SYMBOLIC)
  endforeach()
  add_library(outrider_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(outrider_${name} PUBLIC ${open} PRIVATE ${closed})
  target_link_libraries(outrider_${name} PUBLIC ${ROOM_LINK}
    PRIVATE ${ROOM_HIDDEN} outrider_warnings)
endfunction()
