#pragma once
// Linux calls that Swift's Glibc module leaves out.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/prctl.h>

// prctl is variadic, which Swift does not import.
static inline void sluice_set_thread_name(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }
