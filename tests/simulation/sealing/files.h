/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sealed files, as they lie on the disk: header, table, and blocks that the host has sealed.  The
 * simulation reads them by the ledger of cipher.c, without their key.
 */
#ifndef SODA_SIM_SEALED_FILES_H
#define SODA_SIM_SEALED_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the object; 0: the file is not there, or was never committed. */
uint64_t sim_sealed_bytes(const char *name);
/*
 * A word of the object, of a file in which no commit is under way, nor was broken off and not
 * mended: a block that nobody has sealed fails the seed.  stable: as a power cut would leave it.
 */
uint64_t sim_sealed_word(const char *name, uint64_t offset, bool stable);
/* Nowhere in the file is a page as the application has it: it would be zeros but for its ends. */
void sim_sealed_look(const char *name);

#endif
