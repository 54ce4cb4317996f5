#pragma once

#if !__has_include(<gperftools/tcmalloc.h>)
#error "tcmalloc's headers are missing: run Deploy/install-dependencies.sh, or install libgoogle-perftools-dev"
#endif
#include <gperftools/tcmalloc.h>
