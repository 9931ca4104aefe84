/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A way to a memory server: a port of its own, whose bytes go to and from the server, until it
 * ends.  Then the server is at this address no more, and lives on.  Behind <cmocka.h>.
 */
#ifndef SODA_TEST_WAY_H
#define SODA_TEST_WAY_H

#include <sys/types.h>

enum { WAY_ADDRESS = 64 };

/* To the server of that address, tcp on loopback. Ends with the test, too. */
pid_t way_begin(const char *server, char address[WAY_ADDRESS]);
/* With all connections. */
void way_end(pid_t way);

#endif
