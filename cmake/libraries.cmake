# The small libraries of the rooms of model/ and libcheck: from the system through pkg-config, or
# static archives from OUTRIDER_PREFIX (tests/prefix), for machines where nothing can be
# installed.
find_package(Threads REQUIRED)

# outrider_library(NAME pkg-config-name library...) makes the target PkgConfig::NAME.
function(outrider_library name module)
  if(NOT OUTRIDER_PREFIX)
    find_package(PkgConfig REQUIRED)
    pkg_check_modules(${name} REQUIRED IMPORTED_TARGET GLOBAL ${module})
    return()
  endif()
  add_library(PkgConfig::${name} INTERFACE IMPORTED GLOBAL)
  set_target_properties(PkgConfig::${name} PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${OUTRIDER_PREFIX}/include)
  foreach(library ${ARGN})
    find_library(${name}_${library} ${library} PATHS ${OUTRIDER_PREFIX}/lib
      NO_DEFAULT_PATH REQUIRED)
    set_property(TARGET PkgConfig::${name}
      APPEND PROPERTY INTERFACE_LINK_LIBRARIES ${${name}_${library}})
  endforeach()
  set_property(TARGET PkgConfig::${name}
    APPEND PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads m rt)
endfunction()

outrider_library(JANSSON jansson jansson)
outrider_library(PCRE2 libpcre2-8 pcre2-8)
outrider_library(XXHASH libxxhash xxhash)
if(OUTRIDER_PREFIX)
  set(UTF8PROC_LIB ${OUTRIDER_PREFIX}/lib/libutf8proc.a)
else()
  find_library(UTF8PROC_LIB utf8proc REQUIRED)
endif()
