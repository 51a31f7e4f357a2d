# rpc/ (gRPC C core) and proto/ (protobuf-c).
# Debian's gRPCConfig.cmake needs C++ files that we do not, so the libraries are found by name.
add_compile_definitions(OUTRIDER_VERSION="${PROJECT_VERSION}")
find_library(GRPC_LIB grpc REQUIRED)
find_library(GPR_LIB gpr REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
outrider_library(EDIT libedit)
find_program(PROTOC_C protoc-c REQUIRED)

# outrider_schemas(TARGET folder/name...): C of the .proto files, which TARGET alone includes.
function(outrider_schemas target)
  set(generated ${CMAKE_BINARY_DIR}/generated/${target})
  set(sources)
  foreach(schema ${ARGN})
    get_filename_component(folder ${schema} DIRECTORY)
    file(MAKE_DIRECTORY ${generated}/${folder})
    add_custom_command(
      OUTPUT ${generated}/${schema}.pb-c.c ${generated}/${schema}.pb-c.h
      COMMAND ${PROTOC_C} --proto_path=${CMAKE_SOURCE_DIR} --c_out=${generated}
              ${CMAKE_SOURCE_DIR}/${schema}.proto
      DEPENDS ${CMAKE_SOURCE_DIR}/${schema}.proto)
    list(APPEND sources ${generated}/${schema}.pb-c.c)
  endforeach()
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} SYSTEM PUBLIC ${generated})
  target_link_libraries(${target} PUBLIC PkgConfig::PROTOBUF_C)
endfunction()

outrider_schemas(outrider_health_schema rpc/health)
outrider_room(rpc FOLDERS rpc LINK outrider_access ${GRPC_LIB} ${GPR_LIB})
target_link_libraries(outrider_rpc PRIVATE outrider_health_schema)

outrider_schemas(outrider_schemas proto/target proto/generation)
outrider_room(proto FOLDERS proto EXCLUDE "/job_end\\.[ch]$"
  LINK outrider_job_end outrider_logits outrider_strategy)
target_link_libraries(outrider_proto PUBLIC outrider_schemas)
