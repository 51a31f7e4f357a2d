# Compiler flags of docs/style.md. Floating point is never contracted or reassociated: the order of
# every sum is part of the promise (docs/design.md section 4).
add_compile_definitions(_POSIX_C_SOURCE=200809L)
add_compile_options($<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-ffp-contract=off>)
add_library(outrider_warnings INTERFACE)
set(C_WARNINGS
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla
  -Wcast-qual -Wwrite-strings -Wundef -Wformat=2 -Wdouble-promotion -Wimplicit-fallthrough)
if(OUTRIDER_WERROR)
  list(APPEND C_WARNINGS -Werror)
endif()
target_compile_options(outrider_warnings INTERFACE "$<$<COMPILE_LANGUAGE:C>:${C_WARNINGS}>")
string(REPLACE "-O2" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
# The programs do not hold the path of the folder that they were built in, so that two builds of the
# same source are the same bytes.
set(CMAKE_C_FLAGS_RELEASE "-O3 -fno-math-errno -fopenmp-simd -g1 \
-ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_BINARY_DIR}=build")
if(OUTRIDER_SANITIZE)
  add_compile_options(
    -fsanitize=${OUTRIDER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${OUTRIDER_SANITIZE})
  # The largest tiles of integer kernels take minutes to compile with checks.
  add_compile_definitions(OUTRIDER_SMALL_TILES)
endif()
