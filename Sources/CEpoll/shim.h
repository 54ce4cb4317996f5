#pragma once
// Linux calls that Swift's Glibc module leaves out.
#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/prctl.h>

// prctl is variadic, which Swift does not import.
static inline void sluice_set_thread_name(const char *name) { prctl(PR_SET_NAME, name, 0, 0, 0); }
static inline int sluice_set_dumpable(int dumpable) { return prctl(PR_SET_DUMPABLE, dumpable, 0, 0, 0); }
static inline int sluice_is_dumpable(void) { return prctl(PR_GET_DUMPABLE, 0, 0, 0, 0); }

// epoll_wait with a timeout in nanoseconds; negative waits without end. Kernels before 5.11 and sandboxes that do not
// know epoll_pwait2 get whole milliseconds, rounded up: waking before the time would only spin.
static inline int sluice_epoll_wait(int epoll, struct epoll_event *events, int capacity, int64_t nanoseconds) {
#ifdef SYS_epoll_pwait2
    static int is_missing;
    if (nanoseconds > 0 && !__atomic_load_n(&is_missing, __ATOMIC_RELAXED)) {
        struct timespec timeout = {nanoseconds / 1000000000, nanoseconds % 1000000000};
        int count = (int)syscall(SYS_epoll_pwait2, epoll, events, capacity, &timeout, (void *)0, (size_t)8);
        if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return count;
        __atomic_store_n(&is_missing, 1, __ATOMIC_RELAXED);
    }
#endif
    int64_t milliseconds = nanoseconds < 0 ? -1 : (nanoseconds + 999999) / 1000000;
    return epoll_wait(epoll, events, capacity, (int)milliseconds);
}
