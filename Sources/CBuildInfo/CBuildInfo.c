#include "CBuildInfo.h"

#ifndef SLUICE_COMMIT
#define SLUICE_COMMIT ""
#endif

const char *sluice_build_commit(void) { return SLUICE_COMMIT; }
