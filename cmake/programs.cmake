# MPI and the three programs.
find_package(MPI REQUIRED COMPONENTS C)
outrider_floor(comm_mpi SOURCES comm/comm_mpi.c HEADERS comm/comm_mpi.h
  LINK outrider_comm MPI::MPI_C)

outrider_floor(worker FOLDERS worker EXCLUDE "/(main|verifier)\\.c$"
  LINK outrider_verifier outrider_proto outrider_rpc outrider_model outrider_tokenizer
       outrider_comm_mpi
       $<IF:$<TARGET_EXISTS:outrider_comm_nccl>,outrider_comm_nccl,outrider_comm_no_nccl>)
outrider_floor(coordinator FOLDERS coordinator coordinator/draft
  EXCLUDE "/(main|jobs|jobs_record)\\.c$"
  LINK outrider_jobs outrider_proto outrider_rpc outrider_speculation outrider_model
       outrider_tokenizer)
outrider_floor(client FOLDERS client client/bench EXCLUDE "/main\\.c$"
  LINK outrider_proto outrider_rpc outrider_speculation outrider_tokenizer outrider_export)

foreach(program coordinator worker client)
  add_executable(outrider-${program} ${program}/main.c)
  target_link_libraries(outrider-${program} PRIVATE outrider_${program} outrider_warnings)
  set_target_properties(outrider-${program} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endforeach()
# main.c opens the world of --target mpi; coordinator_open is given it.
target_link_libraries(outrider-coordinator PRIVATE outrider_comm_mpi)
set_target_properties(outrider-client PROPERTIES OUTPUT_NAME outrider)
