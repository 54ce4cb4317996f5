#pragma once
// mimalloc's shared library replaces malloc and free of the whole process. It has no pkg-config file in Debian.
#include <mimalloc.h>
