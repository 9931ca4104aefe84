/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of another process of this user, as the kernel gives it: what stands there, and
 * changes behind its back.  Each fails the running cmocka test where it cannot be had.
 */
#ifndef SODA_TEST_MEMORY_H
#define SODA_TEST_MEMORY_H

#include <stddef.h>
#include <sys/types.h>

/* A sanitizer's shadow is terabytes, all of which the others would read: skip the test there. */
void memory_skip_with_sanitizers(void);

enum { MEMORY_MARK = 16 };

/* How often the mark stands in it, at multiples of its length. */
size_t memory_count_marks(pid_t pid, const char mark[MEMORY_MARK]);

/*
 * How often these 32 bytes, each XORed with MEMORY_HIDE here, stand in what the process may read
 * and its mappings' VmFlags (proc(5)) do not have: "dd": what a core file has; "lo": what may be
 * swapped.
 */
enum { MEMORY_KEY = 32, MEMORY_HIDE = 0x5a };
size_t memory_count_keys(pid_t pid, const unsigned char hidden[MEMORY_KEY], const char *without);

/*
 * Change a bit of each page that no compression would make shorter, as ciphertext is, and the
 * process's own data are not.  How many pages.
 */
size_t memory_spoil_ciphertext(pid_t pid);

#endif
