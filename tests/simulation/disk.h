/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory server's export directory: files in memory that outlive the server's process, behind
 * the system calls, and the io_uring, by which it reads and writes them.
 *
 *   f0  40 pages, anybody may read it        f2  30 pages   f3  12 pages      both the user's
 *   f1  7 pages and a bit, the user's alone  d   a directory in which the user makes files
 */
#ifndef SODA_SIM_DISK_H
#define SODA_SIM_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct open_how;

enum { SIM_DISK_FD = 1 << 21, SIM_DISK_USER = 1000 };

/* What the server calls it. */
#define SIM_DISK_EXPORT "/sim-export"

/* A file with a key for sealed files, and nobody's permissions to look at it. */
#define SIM_DISK_KEY "/sim-key"

/* The files as they are at the beginning: word 0 and 511 of each page have numbers of their own. */
void sim_disk_make(void);
/*
 * The server is gone, and with it its descriptors; what it wrote stays.  But of sealed files, which
 * promise more, sometimes the machine was, too: then of what was not synced any pages may be lost.
 */
void sim_disk_kill(void);
/*
 * Somebody else writes a file anew, with the next numbers, in place and as long as it was; dated:
 * it has the time of its last modification as before (rsync --times).
 */
void sim_disk_rewrite(const char *name, uint64_t *number, bool dated);
/* Whether the server was about to change the file when it ended (mem_server/files/mark.h). */
bool sim_disk_is_being_changed(const char *name);
/* Whole pages of a file; 0: there is none. */
size_t sim_disk_pages(const char *name);
/* A whole file, for a look: *bytes_p may be 0. NULL: there is none. stable: as below. */
const uint8_t *sim_disk_file(const char *name, bool stable, size_t *bytes_p);
/* A word of a file; as it is, or (stable) as a power cut would leave it. */
uint64_t sim_disk_word(const char *name, uint64_t offset, bool stable);

bool sim_disk_owns(int fd);
int sim_disk_close(int fd);
long sim_disk_openat2(int dir, const char *name, const struct open_how *how);

#endif
