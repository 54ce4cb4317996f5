// Preloaded into a process, this sets its wall clock ahead by SLUICE_TEST_CLOCK_OFFSET seconds; the monotonic clock and
// all that waits go on as ever. libfaketime does not do for librdkafka: it changes what timespec_get says, and not until
// when cnd_timedwait waits.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t offset(void) {
    static time_t seconds = -1;
    if (seconds < 0) {
        const char *text = getenv("SLUICE_TEST_CLOCK_OFFSET");
        seconds = text ? atoll(text) : 0;
    }
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}

// Until an instant of the kernel's wall clock, for those who were told ours. Monotonic instants are far smaller.
int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait) wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec real = *until;
    if (real.tv_sec > 1000000000) real.tv_sec -= offset();
    return wait(condition, mutex, &real);
}
