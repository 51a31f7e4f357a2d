# Files as bytes of a C file: cmake -D OUT=... -D FOLDER=... -D NAMES=a,b -D GZIP=... -P embed.cmake
# writes OUT with the table page_files of coordinator/page/internal.h: each file as it is and as
# gzip makes it, under a tag that changes with its bytes.
string(REPLACE "," ";" NAMES "${NAMES}")

# The C initialiser of a file's bytes, eight to a line.
function(read_bytes path out)
  file(READ ${path} hex HEX)
  string(REGEX REPLACE "(................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  set(${out} "{\n${hex}}" PARENT_SCOPE)
endfunction()

set(code "/* Made by cmake/embed.cmake. */\n#include \"coordinator/page/internal.h\"\n")
set(rows "")
set(n 0)
foreach(name ${NAMES})
  execute_process(COMMAND ${GZIP} -9nc ${FOLDER}/${name} OUTPUT_FILE ${OUT}.gz
    COMMAND_ERROR_IS_FATAL ANY)
  read_bytes(${FOLDER}/${name} plain)
  read_bytes(${OUT}.gz packed)
  file(SHA256 ${FOLDER}/${name} tag)
  string(SUBSTRING ${tag} 0 16 tag)
  string(APPEND code "static const unsigned char plain_${n}[] = ${plain};\n"
    "static const unsigned char packed_${n}[] = ${packed};\n")
  string(APPEND rows "    {\"${name}\", \"${tag}\", {plain_${n}, sizeof plain_${n}}, "
    "{packed_${n}, sizeof packed_${n}}},\n")
  math(EXPR n "${n} + 1")
endforeach()
file(REMOVE ${OUT}.gz)
file(WRITE ${OUT} "${code}const struct page_file page_files[] = {\n${rows}};\n"
  "const size_t n_page_files = ${n};\n")
