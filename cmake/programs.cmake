# MPI and the programs.
find_package(MPI REQUIRED COMPONENTS C)
outrider_room(comm_mpi SOURCES comm/comm_mpi.c HEADERS comm/comm_mpi.h
  LINK outrider_comm MPI::MPI_C)

outrider_room(worker FOLDERS worker EXCLUDE "/(main|verifier|slots)\\.c$"
  LINK outrider_verifier outrider_proto outrider_rpc outrider_http outrider_model
       outrider_tokenizer outrider_comm_mpi
       $<IF:$<TARGET_EXISTS:outrider_comm_nccl>,outrider_comm_nccl,outrider_comm_no_nccl>)

# The page's files become a C file of their bytes.
find_program(GZIP gzip REQUIRED)
set(page ${CMAKE_SOURCE_DIR}/coordinator/page)
file(GLOB page_paths CONFIGURE_DEPENDS ${page}/*.html ${page}/*.css ${page}/*.js ${page}/*.svg)
list(TRANSFORM page_paths REPLACE "^.*/" "" OUTPUT_VARIABLE page_names)
list(JOIN page_names "," page_names)
set(page_code ${CMAKE_BINARY_DIR}/generated/page/files.c)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/generated/page)
add_custom_command(OUTPUT ${page_code}
  COMMAND ${CMAKE_COMMAND} -D OUT=${page_code} -D FOLDER=${page} -D NAMES=${page_names}
          -D GZIP=${GZIP} -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${page_paths} cmake/embed.cmake)
outrider_room(page FOLDERS coordinator/page LINK outrider_http)
target_sources(outrider_page PRIVATE ${page_code})

# The rooms of coordinator/, each above those that it links. jobs, signals and sender, which many
# threads share, are libraries of their own in CMakeLists.txt, because they need no gRPC.
outrider_room(discovery FOLDERS coordinator/discovery LINK outrider_proto outrider_rpc)
outrider_room(kv FOLDERS coordinator/kv LINK outrider_backend)
outrider_room(target FOLDERS coordinator/target LINK outrider_discovery outrider_accept)
outrider_room(job FOLDERS coordinator/job EXCLUDE "/(sender|response_stream|answer_message)\\.[ch]$"
  LINK outrider_sender outrider_signals outrider_discovery outrider_lookup outrider_tokenizer)
outrider_room(store FOLDERS coordinator/store EXCLUDE "/(jobs|jobs_record)\\.c$"
  LINK outrider_jobs outrider_job)
outrider_room(grpc FOLDERS coordinator/grpc LINK outrider_store)
outrider_room(openai_request FOLDERS coordinator/openai/request
  LINK outrider_signals outrider_proto outrider_accept outrider_http)
outrider_room(openai FOLDERS coordinator/openai
  LINK outrider_openai_request outrider_store outrider_page)
outrider_room(sequence FOLDERS coordinator/sequence
  LINK outrider_job outrider_kv outrider_accept outrider_planner)
outrider_room(draft FOLDERS coordinator/draft coordinator/draft/finders
  LINK outrider_sequence outrider_model)
outrider_room(schedule FOLDERS coordinator/schedule LINK outrider_draft outrider_target)
outrider_room(round FOLDERS coordinator/round LINK outrider_schedule)
outrider_room(engine FOLDERS coordinator/engine LINK outrider_round)
outrider_room(coordinator FOLDERS coordinator EXCLUDE "/main\\.c$"
  LINK outrider_engine outrider_grpc outrider_openai)
# The ranks of one container; it starts mpirun and needs no library of it.
outrider_room(launch FOLDERS launch EXCLUDE "/main\\.c$" LINK outrider_base)
outrider_room(client FOLDERS client client/jobs client/plan client/link client/figures client/bench
  client/record client/chat EXCLUDE "/main\\.c$"
  LINK outrider_proto outrider_rpc outrider_speculation outrider_lookup outrider_tokenizer
       outrider_export outrider_launch)
# The commands that compute with models.
outrider_room(skip FOLDERS client/skip LINK outrider_client outrider_model)
outrider_room(replay FOLDERS client/replay LINK outrider_client outrider_model)
outrider_room(heads FOLDERS client/heads LINK outrider_client outrider_model)
# The command that starts and supervises the other programs.
outrider_room(serve FOLDERS client/serve LINK outrider_client outrider_config_file)

foreach(program coordinator worker client)
  add_executable(outrider-${program} ${program}/main.c)
  target_link_libraries(outrider-${program}
    PRIVATE outrider_${program} outrider_config_file outrider_warnings)
  set_target_properties(outrider-${program} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endforeach()
target_link_libraries(outrider_client PRIVATE PkgConfig::EDIT) # lines that are typed
# main.c opens the world of --target mpi; coordinator_open is given it.
target_link_libraries(outrider-coordinator PRIVATE outrider_comm_mpi)
target_link_libraries(outrider-client PRIVATE outrider_skip outrider_replay outrider_heads
  outrider_serve)
set_target_properties(outrider-client PROPERTIES OUTPUT_NAME outrider)

add_executable(outrider-group launch/main.c)
target_link_libraries(outrider-group PRIVATE outrider_launch outrider_warnings)
set_target_properties(outrider-group PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# Programs that a cluster needs, without the tests and benchmarks, which take most of a build's
# time.
add_custom_target(programs
  DEPENDS outrider-coordinator outrider-worker outrider-client outrider-group)
