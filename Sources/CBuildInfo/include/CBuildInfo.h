#ifndef SLUICE_BUILD_INFO_H
#define SLUICE_BUILD_INFO_H

/// Commit that the executable was built from, with `+` when files differed from it; empty outside of a git clone.
const char *sluice_build_commit(void);

#endif
