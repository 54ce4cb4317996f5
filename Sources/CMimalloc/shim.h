#pragma once

#if !__has_include(<mimalloc.h>)
#error "mimalloc's header is missing: run Deploy/install-dependencies.sh, or install libmimalloc-dev"
#endif
// mimalloc's shared library replaces malloc and free of the whole process. It has no pkg-config file in Debian.
#include <mimalloc.h>
