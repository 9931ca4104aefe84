/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of run_victim share: a program that knows nothing of SODA. */
#ifndef SODA_TEST_RUN_VICTIM_H
#define SODA_TEST_RUN_VICTIM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096, BIG = 40 * MIB };

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #cond,       \
				errno);                                                            \
			_exit(99);                                                                 \
		}                                                                                  \
	} while (0)

bool in_fam(const void *p);
/* A pattern in every 64th byte, which verify() knows. */
void fill(unsigned char *p, size_t n, unsigned seed);
void verify(const unsigned char *p, size_t n, unsigned seed);

/* A touch of it is SIGSEGV. */
bool faults(volatile unsigned char *p, bool store);

/*
 * run_victim_small.c: objects in fabric memory and a directory.  The n-th lies over the edge of a
 * page, at most 60000 bytes; name() makes it the path of a file there.  AWAY, an expression: none
 * of them is resident, then the call.
 */
void objects_make(void);
void objects_end(void);
void *object(unsigned n);
char *name(unsigned n, const char *file);
void objects_away(void);
#define AWAY(call) (objects_away(), (call))

/* run_victim_every.c, and its parts in run_victim_prints.c and run_victim_messages.c */
void case_every(void);
void check_prints(void);
void check_streams(void);
void check_ipc(void);
/* run_victim_times.c, run_victim_become.c */
void case_times(void);
void case_become(void);
void case_plain(void);
void case_starts(void);
/* run_victim_descriptors.c */
void case_descriptors(void);
void case_robbed(void);
void case_replaced(void);
/* run_victim_forks.c */
void case_forks(void);
void case_snapshot(void);
/* run_victim_itself.c */
void case_limits(void);
void case_identity(void);
void case_filter(void);
/* run_victim_maps.c */
void case_linux(void);
void case_split(void);
void case_closed(void);
void case_mlockall(void);
/* run_victim_pieces.c */
void case_pieces(void);
/* run_victim_rare.c */
void case_rare(void);
void case_altstack(void);
void case_old_signals(void);
/* run_victim_silent.c */
void case_silent(void);
void case_left(void);
void case_returned(void);
/* run_victim_small.c */
void case_small(void);
/* run_victim_waits.c */
void case_waits(void);
void case_held(void);
void case_once(void);
void case_masks(void);
void case_too_many(void);
/* run_victim_kernel.c */
void case_ioctl(void);
void case_direct(void);
void case_forms(void);
/* run_victim_own.c */
void case_alternate(void);
void case_coroutine(void);
void case_own_uffd(void);
void case_reserved(void);
void case_at_once(void);
/* run_victim_rings.c */
void case_submit(void);
void case_refused(void);
void case_allowed(void);
void case_rings_held(void);
void case_rings_child(void);

#endif
