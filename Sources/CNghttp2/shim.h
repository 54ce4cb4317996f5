#pragma once
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>

// glibc shows accept4(2) only with _GNU_SOURCE, which a module's importer cannot set.
int accept4(int socket, struct sockaddr *address, socklen_t *length, int flags);

static inline int sluice_accept_nonblocking(int socket) {
  return accept4(socket, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
}
