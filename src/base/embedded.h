/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A private memory server: that of a process for which no server is named, or of all processes of
 * one `soda run`.  It is a process of its own, reached over shm, and not a child as wait(2) sees
 * it.  It ends when nobody holds the pipe any more whose other end it reads.
 */
#ifndef SODA_BASE_EMBEDDED_H
#define SODA_BASE_EMBEDDED_H

#include <stdbool.h>
#include <stddef.h>

enum { SODA_EMBEDDED_PATH = 512 };

/*
 * Find the server's program: as given; else beside the library of that path (NULL: nowhere), as it
 * is built or installed; else in the PATH.  false: there is none.
 */
bool soda_embedded_find(const char *given, const char *library, char path[SODA_EMBEDDED_PATH]);

/*
 * Start it.  address receives where it listens; *life_fd_p, closed by exec, is an end of the pipe,
 * the caller's to close.  0; -ETIMEDOUT, -EIO, -EPROTO: it did not say within timeout_ms that it
 * listens; errors of making pipes and processes.
 */
int soda_embedded_start(const char *path, int timeout_ms, char *address, size_t address_bytes,
			int *life_fd_p);

#endif
