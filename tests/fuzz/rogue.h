/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A memory server that is an input: it answers each connection with what the input has for it, all
 * at once, whatever it is asked, says no more, and takes no other connection.  For the targets of
 * its clients.
 *
 *   of each connection: length 8, then answers: what 8
 *     0      OK: length 8, body
 *     1      a welcome: fields 8, numbers
 *     2      refused: status 8, length 8, text
 *     3      opened: bytes 32, ids 8
 *     4      advised: page 8, pages 8, key 8
 *     5      bytes as they are: length 8
 *     6      a list of regions: how many 8, of each: id 16, flags 8, bytes 32, file 8
 *     +16    with it memory (not over TCP): kind 8, pages 8
 */
#ifndef SODA_TESTS_FUZZ_ROGUE_H
#define SODA_TESTS_FUZZ_ROGUE_H

#include "fuzz.h"

enum { ROGUE_ADDRESS = 64 };

/* Once; where it is goes to address. tcp: or, as shm://, by a UNIX socket. */
void rogue_start(bool tcp, char address[ROGUE_ADDRESS]);
/* Takes the answers to so many connections from the input's front. */
void rogue_begin(struct fuzz_input *in, unsigned connections);
/* It closes what it has, and takes no connection until the next input. */
void rogue_end(void);

#endif
