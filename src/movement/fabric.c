/* SPDX-License-Identifier: BSD-3-Clause */
#include "movement/fabric.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/limits.h"

enum {
	WINDOW = 4 << 20,
	LEAST = 4096, /* of a window, which then is one chunk or two */
	NEAR = 4096,  /* elements so close to each other are in one range */
	PAGE = 4096,
	TRIES = 16, /* to read what may go again at once */
};

static void look(struct soda_fabric *f, void *lib)
{
	*(void **)&f->hold = dlsym(lib, "soda_hold");
	*(void **)&f->unhold = dlsym(lib, "soda_unhold");
	*(void **)&f->is_sealed = dlsym(lib, "soda_is_sealed");
}

void soda_fabric_find(struct soda_fabric *f)
{
	void *lib;

	look(f, RTLD_DEFAULT);
	if (!f->hold && (lib = dlopen("libsoda.so.0", RTLD_LAZY | RTLD_NOLOAD))) {
		/* of a program that has loaded it for itself alone (RTLD_LOCAL) */
		look(f, lib);
		dlclose(lib);
	}
	if (!f->hold || !f->unhold || !f->is_sealed)
		*f = (struct soda_fabric){ NULL, NULL, NULL };
}

static void *address(uint64_t from)
{
	return (void *)(uintptr_t)from;
}

bool soda_fabric_has(const struct soda_fabric *f, uint64_t from)
{
	return f->hold && f->hold(address(from), 0) == 0;
}

bool soda_fabric_any(const struct soda_fabric *f, const struct soda_wire_piece *pieces, size_t n)
{
	for (size_t i = 0; f->hold && i < n; i++)
		if (pieces[i].fill == SODA_WIRE_PIECE_COPY && soda_fabric_has(f, pieces[i].from))
			return true;
	return false;
}

/* From a piece's first byte to its last; pieces that were checked do not overflow 64 bits. */
static size_t reach(const struct soda_wire_piece *p)
{
	return p->count ? p->stride * (p->count - 1) + p->bytes : p->bytes;
}

bool soda_fabric_any_sealed(const struct soda_fabric *f, const struct soda_wire_piece *pieces,
			    size_t n)
{
	for (size_t i = 0; f->is_sealed && i < n; i++)
		if (pieces[i].fill == SODA_WIRE_PIECE_COPY &&
		    f->is_sealed(address(pieces[i].from), reach(&pieces[i])))
			return true;
	return false;
}

void soda_fabric_release(const struct soda_fabric *f, struct soda_fabric_window *w)
{
	for (unsigned i = 0; i < w->n; i++)
		if (w->held[i])
			f->unhold(w->ranges[i].iov_base, w->ranges[i].iov_len);
	w->n = 0;
}

/* Hold all ranges, or none. */
static int hold_all(const struct soda_fabric *f, struct soda_fabric_window *w)
{
	unsigned n = w->n;
	int ret = 0;

	for (w->n = 0; ret >= 0 && w->n < n;) {
		ret = f->hold(w->ranges[w->n].iov_base, w->ranges[w->n].iov_len);
		w->held[w->n] = ret == 0;
		w->n += ret >= 0;
	}
	if (ret < 0)
		soda_fabric_release(f, w);
	return ret < 0 ? ret : 0;
}

/*
 * Have a range cover the span: the last one, if it is of the same piece (`same`) and close, else a
 * new one.  false: the window, which covers `covered` bytes, has no room.  *grows_p: by how many
 * bytes it has grown.
 */
static bool cover(struct soda_fabric_window *w, const struct soda_piece_span *span, bool same,
		  uint64_t *grows_p, uint64_t covered)
{
	struct iovec *last = same ? &w->ranges[w->n - 1] : NULL;
	uint64_t begin = last ? (uintptr_t)last->iov_base : 0, to;

	if (last && span->from >= begin && span->from <= begin + last->iov_len + NEAR) {
		to = span->from + span->bytes - begin;
		*grows_p = to > last->iov_len ? to - last->iov_len : 0;
		if (covered + *grows_p > w->most)
			return false;
		last->iov_len += *grows_p;
		return true;
	}
	if (w->n == w->ranges_most)
		return false;
	w->ranges[w->n++] = (struct iovec){ address(span->from), span->bytes };
	*grows_p = span->bytes;
	return true;
}

/*
 * The spans of a walk that a window of w->most bytes covers: their ranges in *w, not held. How many
 * bytes the spans have.
 */
static uint64_t gather(const struct soda_fabric *f, struct soda_piece_walk *walk,
		       struct soda_fabric_window *w)
{
	struct soda_piece_walk before = *walk;
	uint64_t bytes = 0, covered = 0;
	struct soda_piece_span span;
	bool fabric = false, ranged = false;
	size_t piece = SIZE_MAX;

	w->n = 0;
	while (covered < w->most && soda_piece_walk_next(walk, w->most - covered, &span)) {
		uint64_t grows = span.bytes;

		if (span.piece != piece) { /* ranges of two pieces may be in two objects */
			piece = span.piece;
			fabric = soda_fabric_has(f, span.from);
			ranged = false;
		}
		if (fabric && !cover(w, &span, ranged, &grows, covered)) {
			*walk = before;
			break;
		}
		ranged = fabric;
		covered += grows;
		bytes += span.bytes;
		before = *walk;
	}
	return bytes;
}

int soda_fabric_hold(const struct soda_fabric *f, struct soda_piece_walk *walk,
		     struct soda_fabric_window *w, uint64_t *bytes_p)
{
	int ret = -ENOMEM;

	if (!w->most) {
		w->most = w->bound = WINDOW;
		w->ranges_most = SODA_FABRIC_RANGES;
	}
	for (int ms = 0; ret == -ENOMEM && ms < SODA_MOVE_HOLD_MS;) {
		struct soda_piece_walk at = *walk;
		uint64_t bytes = gather(f, &at, w);

		ret = hold_all(f, w);
		if (ret == 0) {
			*walk = at;
			*bytes_p = bytes;
		} else if (ret == -ENOMEM && (w->most > LEAST || w->ranges_most > 1)) {
			w->most = w->bound = w->most > LEAST ? w->most / 2 : LEAST;
			w->ranges_most = w->ranges_most > 1 ? w->ranges_most / 2 : 1;
		} else if (ret == -ENOMEM) {
			poll(NULL, 0, 1);
			ms++;
		}
	}
	return ret ? -EFAULT : 0;
}

void soda_fabric_narrow(struct soda_fabric_window *w)
{
	w->most = w->most / 4 > LEAST ? w->most / 4 : LEAST;
}

void soda_fabric_widen(struct soda_fabric_window *w)
{
	w->most = w->most < w->bound / 2 ? w->most * 2 : w->bound;
}

ssize_t soda_fabric_write(const struct soda_fabric *f, int fd, const struct iovec *iov, off_t at)
{
	size_t bytes = PAGE - (uintptr_t)iov->iov_base % PAGE;
	ssize_t got = -EFAULT;

	if (bytes > iov->iov_len)
		bytes = iov->iov_len;
	for (int i = 0; f->hold && got == -EFAULT && i < TRIES; i++) {
		int ret = f->hold(iov->iov_base, bytes);

		if (ret < 0)
			break;
		got = pwrite(fd, iov->iov_base, bytes, at);
		if (got < 0)
			got = -errno;
		if (ret == 0)
			f->unhold(iov->iov_base, bytes);
	}
	return got;
}
