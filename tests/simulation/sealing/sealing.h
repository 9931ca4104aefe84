/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed objects: what servers may have of them, and servers that change what they have.
 *
 * A block of a sealed object is, in a server's memory, zeros or what the host has sealed for that
 * block, in one encryption, as a whole: anything else is plaintext, or a mixture.  But for what
 * the seed itself has changed there: that must be found before anybody sees it.
 *
 * cipher.c is linked into each program's object, ledger.c, state.c, changes.c and files.c into the
 * world.
 */
#ifndef SODA_SIM_SEALING_H
#define SODA_SIM_SEALING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../nodes.h"

/* FAULT: change a block that a server has.  p: of that one alone; SIM_WORLD: of any. */
void sim_seal_change_one(enum sim_process p);
/* The server has, in the region of copy k, a block that is still as the seed has changed it. */
bool sim_seal_is_changed(const struct sim_places *places, unsigned k);
/* Any server has such a block, which nobody has found yet. */
bool sim_seal_any_is_changed(void);
/* The seed has, at any time, changed something of that chunk; of that region of the server. */
bool sim_seal_was_chunk_changed(const struct sim_places *places);
bool sim_seal_was_region_changed(enum sim_process server, uint16_t region);
/* Anything of anybody. */
bool sim_seal_was_changed(void);
/* The object has been freed: its addresses and regions are others' from now on. */
void sim_seal_gone(const char *base, size_t bytes);

/*
 * files.c: sealed files, as they lie on the disk: header, table, and blocks that the host has
 * sealed.  They are read by the ledger of cipher.c, without their key.
 */

/* Where the blocks begin. */
uint64_t sim_sealed_data_at(const char *name);
/* Bytes of the object; 0: the file is not there, or was never committed. */
uint64_t sim_sealed_bytes(const char *name);
/*
 * A word of the object, of a file in which no commit is under way, nor was broken off and not
 * mended: a block that nobody has sealed fails the seed.  stable: as a power cut would leave it.
 */
uint64_t sim_sealed_word(const char *name, uint64_t offset, bool stable);
/* Nowhere in the file is a page as the application has it: it would be zeros but for its ends. */
void sim_sealed_look(const char *name);

/*
 * state.c: the directory of an agent's --seal-state, which is a tmpfs: it stays when the agent is
 * killed.
 */

/* Its name to the agent, and its descriptor. */
#define SIM_STATE "sim-seal-state"
enum { SIM_STATE_FD = 1 << 22 };

/* openat(2), unlinkat(2) and so on, of a file in it. */
int sim_state_open(const char *name, int flags);
int sim_state_unlink(const char *name);
bool sim_state_has(const char *name);
/* It is a descriptor of such a file. */
bool sim_state_owns(int fd);
/* How many files there are. */
unsigned sim_state_files(void);

#endif
