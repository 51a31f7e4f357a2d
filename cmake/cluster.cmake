# proto/ (gRPC C core, protobuf-c), MPI and the three programs.
# Debian's gRPCConfig.cmake needs C++ files that we do not, so the libraries are found by name.
add_compile_definitions(OUTRIDER_VERSION="${PROJECT_VERSION}")
find_library(GRPC_LIB grpc REQUIRED)
find_library(GPR_LIB gpr REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
find_program(PROTOC_C protoc-c REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)

set(PROTO_GEN ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${PROTO_GEN}/proto)
set(PROTO_C)
foreach(schema target generation health)
  add_custom_command(
    OUTPUT ${PROTO_GEN}/proto/${schema}.pb-c.c ${PROTO_GEN}/proto/${schema}.pb-c.h
    COMMAND ${PROTOC_C} --proto_path=${CMAKE_SOURCE_DIR} --c_out=${PROTO_GEN}
            ${CMAKE_SOURCE_DIR}/proto/${schema}.proto
    DEPENDS ${CMAKE_SOURCE_DIR}/proto/${schema}.proto)
  list(APPEND PROTO_C ${PROTO_GEN}/proto/${schema}.pb-c.c)
endforeach()
add_library(outrider_schemas STATIC ${PROTO_C})
target_include_directories(outrider_schemas SYSTEM PUBLIC ${PROTO_GEN})
target_link_libraries(outrider_schemas PUBLIC PkgConfig::PROTOBUF_C)

file(GLOB PROTO_SOURCES CONFIGURE_DEPENDS proto/*.c)
outrider_floor(proto SOURCES ${PROTO_SOURCES} LINK outrider_model outrider_schemas ${GRPC_LIB} ${GPR_LIB})

outrider_floor(comm_mpi SOURCES comm/comm_mpi.c LINK outrider_comm MPI::MPI_C)

foreach(program coordinator worker client)
  file(GLOB PROGRAM_SOURCES CONFIGURE_DEPENDS ${program}/*.c)
  list(FILTER PROGRAM_SOURCES EXCLUDE REGEX "/(main|verifier)\\.c$")
  set(link outrider_proto)
  if(program STREQUAL worker)
    list(APPEND link outrider_verifier $<IF:$<TARGET_EXISTS:outrider_comm_nccl>,outrider_comm_nccl,outrider_comm_no_nccl>)
  endif()
  if(NOT program STREQUAL client)
    list(APPEND link outrider_comm_mpi)
  endif()
  if(PROGRAM_SOURCES)
    outrider_floor(${program} SOURCES ${PROGRAM_SOURCES} LINK ${link})
  endif()
  if(EXISTS ${CMAKE_SOURCE_DIR}/${program}/main.c)
    add_executable(outrider-${program} ${program}/main.c)
    target_link_libraries(outrider-${program} PRIVATE outrider_${program} outrider_warnings)
    set_target_properties(outrider-${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  endif()
endforeach()
if(TARGET outrider-client)
  set_target_properties(outrider-client PROPERTIES OUTPUT_NAME outrider)
endif()
