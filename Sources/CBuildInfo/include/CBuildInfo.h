#ifndef SLUICE_BUILD_INFO_H
#define SLUICE_BUILD_INFO_H

/// Commit that `make build` built the executable from, with `+` when files differed from it; empty otherwise.
const char *sluice_build_commit(void);

#endif
