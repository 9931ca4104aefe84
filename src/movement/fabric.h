/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pieces that lie in SODA's own objects, which may not be resident: then neither the agent nor a
 * system call can read them.  libsoda holds them (soda_hold() of soda.h), a *window* of a list at a
 * time, because only a small part of the page buffer may be held.
 *
 * libsoda is not linked: it is used where the program has loaded it before it connected.
 *
 * Thread: one at a time for a window.
 */
#ifndef SODA_MOVEMENT_FABRIC_H
#define SODA_MOVEMENT_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "wire/movement.h"

/* Of libsoda; NULL: the program has none. */
struct soda_fabric {
	int (*hold)(const void *addr, size_t bytes);
	int (*unhold)(const void *addr, size_t bytes);
	int (*is_sealed)(const void *addr, size_t bytes);
};

void soda_fabric_find(struct soda_fabric *f);
/* Whether an object is there. */
bool soda_fabric_has(const struct soda_fabric *f, uint64_t from);
/* Whether a piece begins in an object. */
bool soda_fabric_any(const struct soda_fabric *f, const struct soda_wire_piece *pieces, size_t n);
/* Whether a sealed object lies where a piece does, or between a piece's elements. */
bool soda_fabric_any_sealed(const struct soda_fabric *f, const struct soda_wire_piece *pieces,
			    size_t n);

enum { SODA_FABRIC_RANGES = 64 };

struct soda_fabric_window {
	struct iovec ranges[SODA_FABRIC_RANGES];
	bool held[SODA_FABRIC_RANGES]; /* else it needs no soda_unhold() */
	unsigned n;
	uint64_t most;	/* bytes that a window covers; 0 before the first one */
	uint64_t bound; /* the same, as much as may be held */
	unsigned ranges_most;
};

/*
 * Make the next spans of a walk resident, and hold them; the walk stands behind them then.
 * *bytes_p: how many bytes; 0: the walk was at its end.  -EFAULT: they cannot be had, or so many
 * are held by others for so long that these cannot be.  The window is empty then.
 */
int soda_fabric_hold(const struct soda_fabric *f, struct soda_piece_walk *walk,
		     struct soda_fabric_window *w, uint64_t *bytes_p);
/* What was held, but not for long enough, is tried in smaller windows, until they are read again.
 */
void soda_fabric_narrow(struct soda_fabric_window *w);
void soda_fabric_widen(struct soda_fabric_window *w);
/* Give all of the window back; it is empty then. */
void soda_fabric_release(const struct soda_fabric *f, struct soda_fabric_window *w);

/*
 * Write the first bytes of an iovec, at most a page, to fd at a position, after a system call has
 * not found them.  How many; -EFAULT: they are in no object, or cannot be had; errors of pwrite(2).
 */
ssize_t soda_fabric_write(const struct soda_fabric *f, int fd, const struct iovec *iov, off_t at);

#endif
