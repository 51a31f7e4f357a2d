# The rooms of model/, from the lowest up.
if(OUTRIDER_CUDA) # sm_80 and sm_90, with PTX for what comes later; before the targets that link it
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
  enable_language(CUDA)
endif()

outrider_floor(numerics FOLDERS model/numerics LINK outrider_base)
outrider_floor(jinja FOLDERS model/jinja LINK outrider_base PkgConfig::JANSSON ${UTF8PROC_LIB})
outrider_floor(tokenizer FOLDERS model/tokenizer
  LINK outrider_base PkgConfig::JANSSON PkgConfig::PCRE2 PkgConfig::XXHASH ${UTF8PROC_LIB}
  HIDDEN outrider_jinja)
outrider_floor(checkpoint FOLDERS model/checkpoint
  LINK outrider_numerics PkgConfig::JANSSON PkgConfig::XXHASH)
outrider_floor(logits FOLDERS model/logits LINK outrider_numerics)
outrider_floor(export FOLDERS model/export LINK outrider_checkpoint outrider_tokenizer)

# What fills the table of operations lies above the table; open.c, which chooses, above both. The
# rooms above open.c link the backends through it and see only the table.
outrider_floor(backend FOLDERS model/backend EXCLUDE "(open|options)\\.c$"
  LINK outrider_comm outrider_checkpoint outrider_logits PkgConfig::XXHASH)
outrider_floor(kernels FOLDERS model/backend/cpu/kernels model/backend/cpu/kernels/quant
  LINK outrider_numerics)
outrider_floor(backend_cpu FOLDERS model/backend/cpu LINK outrider_backend
  HIDDEN outrider_kernels)
outrider_floor(backend_cuda FOLDERS model/backend/cuda LINK outrider_backend)
outrider_floor(backend_open SOURCES model/backend/open.c model/backend/options.c
  LINK outrider_backend HIDDEN outrider_backend_cpu outrider_backend_cuda)
outrider_floor(model FOLDERS model LINK outrider_backend_open)

include(cmake/kernels.cmake)
if(OUTRIDER_CUDA)
  include(cmake/cuda.cmake)
endif()
