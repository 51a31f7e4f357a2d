# The CPU kernels are one source compiled for several instruction sets; the choice is made at run time.
# Loops stand at cache lines: an inner loop of 20 dot products that does not is up to a third slower.
# They are optimised in debug builds too: without it the intrinsics are fifty times slower.
set(KERNELS model/backend/cpu/kernels)
set(KERNEL_OPTIONS "$<$<CONFIG:Debug>:-O2>")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_definitions(outrider_kernels PRIVATE OUTRIDER_X86=1)
  set_source_files_properties(${KERNELS}/avx512.c PROPERTIES COMPILE_OPTIONS
    "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512bf16;-mfma;-mavx2;-mf16c;-falign-loops=64;${KERNEL_OPTIONS}")
  set_source_files_properties(${KERNELS}/quant_avx512.c PROPERTIES COMPILE_OPTIONS
    "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mfma;-mavx2;-falign-loops=64;${KERNEL_OPTIONS}")
  set_source_files_properties(${KERNELS}/avx2.c ${KERNELS}/quant_avx2.c
    PROPERTIES COMPILE_OPTIONS     "-mavx2;-mfma;-mf16c;${KERNEL_OPTIONS}")
endif()
set_source_files_properties(${KERNELS}/plain.c ${KERNELS}/quant_plain.c ${KERNELS}/kernels.c
  model/numerics/quant.c PROPERTIES COMPILE_OPTIONS "${KERNEL_OPTIONS}")
