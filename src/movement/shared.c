/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory of the agent's that is mapped here; and of it that which programs compute in: areas
 * (wire/movement.h).  Where the agent cannot share memory, an area is the program's own, and its
 * pieces travel as any others.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "movement/mover.h"
#include "wire/field.h"

/* Mapping */

/* A touch of it must be no fault: whole, and of a size that nobody can change. */
static bool is_sound(int fd, uint64_t bytes)
{
	const int resized = F_SEAL_SHRINK | F_SEAL_GROW;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	return seals >= 0 && (seals & resized) == resized && fstat(fd, &st) == 0 &&
	       st.st_size >= 0 && (uint64_t)st.st_size >= bytes;
}

int soda_shared_map(int fd, uint64_t bytes, int protection, void **memory_p)
{
	void *memory;

	if (!is_sound(fd, bytes))
		return -EPROTO;
	memory = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	*memory_p = memory;
	return 0;
}

/* Areas */

struct soda_move_area {
	struct soda_move_area *next; /* guarded by the mover's lock, and so the next one */
	bool leaves;		     /* the program frees it: no list is to name it any more */
	/* constant */
	uint8_t *memory;
	uint64_t bytes;			  /* in whole pages */
	struct soda_move_area_tail *tail; /* NULL: it is not shared */
	uint32_t number;
};

static void unmap(struct soda_move_area *a)
{
	munmap(a->memory, a->bytes + (a->tail ? SODA_MOVE_AREA_TAIL_BYTES : 0));
	free(a);
}

static int no_memory(uint64_t bytes)
{
	return soda_move_failed(-ENOMEM, "no memory for %llu bytes to move from",
				(unsigned long long)bytes);
}

/* Map what the agent has made. */
static int map_area(const struct soda_errand *e, struct soda_move_area *a)
{
	void *memory;
	int ret = -EPROTO;

	a->number = e->reply_bytes == sizeof(uint32_t) ? soda_wire_get_u32(e->reply) : UINT32_MAX;
	if (e->fd >= 0 && a->number < SODA_MOVE_AREAS)
		ret = soda_shared_map(e->fd, a->bytes + SODA_MOVE_AREA_TAIL_BYTES,
				      PROT_READ | PROT_WRITE, &memory);
	if (e->fd >= 0)
		close(e->fd);
	if (ret == -ENOMEM)
		return no_memory(a->bytes);
	if (ret < 0)
		return soda_move_failed(-ENOTCONN, "the agent's answer makes no sense");
	a->memory = memory;
	a->tail = (struct soda_move_area_tail *)(void *)(a->memory + a->bytes);
	return 0;
}

static int run_free(struct soda_mover *m, uint32_t number)
{
	uint8_t body[sizeof(uint32_t)];
	struct soda_errand e = { .type = SODA_MSG_MOVE_FREE,
				 .body = { { body, sizeof(body) } },
				 .body_n = 1 };

	soda_wire_put_u32(body, number);
	return soda_mover_run(m, &e);
}

static int share(struct soda_mover *m, struct soda_move_area *a)
{
	uint8_t body[sizeof(uint64_t)];
	struct soda_errand e = { .type = SODA_MSG_MOVE_ALLOC,
				 .body = { { body, sizeof(body) } },
				 .body_n = 1,
				 .fd = -1 };
	int ret;

	soda_wire_put_u64(body, a->bytes);
	ret = soda_mover_run(m, &e);
	if (ret < 0)
		return ret;
	ret = map_area(&e, a);
	if (ret == -ENOMEM)
		run_free(m, a->number);
	return ret;
}

static int make_own(struct soda_move_area *a)
{
	void *memory =
		mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return no_memory(a->bytes);
	a->memory = memory;
	return 0;
}

static int make(struct soda_mover *m, struct soda_move_area *a)
{
	int ret = share(m, a);

	return ret == -ENOTSUP ? make_own(a) : ret;
}

static struct soda_move_area *new_area(uint64_t bytes)
{
	struct soda_move_area *a;

	if (!bytes || bytes > SODA_MOVE_BYTES_MAX) {
		errno = EINVAL;
		return NULL;
	}
	a = calloc(1, sizeof(*a));
	if (a)
		a->bytes = soda_move_area_tail_at(bytes);
	return a;
}

SODA_API int soda_move_alloc(struct soda_mover *m, uint64_t bytes, void **memory_p)
{
	struct soda_move_area *a;
	int saved = errno, ret = soda_mover_check(m);

	if (ret < 0)
		return ret;
	a = new_area(bytes);
	if (!a)
		return errno == EINVAL ? soda_move_failed(-EINVAL,
							  "memory to move from has 1 to"
							  " %llu bytes",
							  SODA_MOVE_BYTES_MAX)
				       : no_memory(bytes);
	ret = make(m, a);
	if (ret < 0) {
		free(a);
	} else {
		*memory_p = a->memory;
		pthread_mutex_lock(&m->lock);
		a->next = m->areas;
		m->areas = a;
		pthread_mutex_unlock(&m->lock);
	}
	errno = saved;
	return ret;
}

/* How many bytes the elements of a piece reach over. */
static uint64_t extent(const struct soda_wire_piece *p)
{
	return (p->count - 1) * p->stride + p->bytes;
}

static bool is_named_locked(const struct soda_mover *m, const struct soda_move_area *a)
{
	uint64_t from = (uintptr_t)a->memory;

	for (unsigned i = 0; i < SODA_MOVE_TICKETS_MAX; i++) {
		const struct soda_move_ticket *t = m->tickets[i];

		if (!t || t->state == SODA_TICKET_ENDED)
			continue;
		for (const struct soda_wire_piece *p = t->pieces; p < t->pieces + t->pieces_n; p++)
			if (soda_wire_piece_in_area(p)
				    ? a->tail && p->fill - SODA_WIRE_PIECE_AREA == a->number
				    : soda_wire_piece_copies(p) && p->from < from + a->bytes &&
					      p->from + extent(p) > from)
				return true;
	}
	return false;
}

static void await_unnamed_locked(struct soda_mover *m, const struct soda_move_area *a)
{
	m->waiting++;
	pthread_cond_signal(&m->work);
	while (is_named_locked(m, a))
		pthread_cond_wait(&m->ended, &m->lock);
	m->waiting--;
}

/* Lists of objects' ranges, by the connection that these have. */
static void await_unnamed_in_pages(struct soda_mover *m, const struct soda_move_area *a)
{
	struct soda_mover *pages;

	pthread_mutex_lock(&m->lock);
	pages = m->pages;
	pthread_mutex_unlock(&m->lock);
	if (!pages)
		return;
	pthread_mutex_lock(&pages->lock);
	await_unnamed_locked(pages, a);
	pthread_mutex_unlock(&pages->lock);
}

/* Take it out of the list, when no ticket needs it any more; all end when the connection does. */
static struct soda_move_area *take_out(struct soda_mover *m, const void *memory)
{
	struct soda_move_area **at, *a;

	pthread_mutex_lock(&m->lock);
	for (a = m->areas; a && (a->memory != memory || a->leaves);)
		a = a->next;
	if (a) {
		a->leaves = true;
		pthread_mutex_unlock(&m->lock);
		await_unnamed_in_pages(m, a);
		pthread_mutex_lock(&m->lock);
		await_unnamed_locked(m, a);
		for (at = &m->areas; *at != a;)
			at = &(*at)->next;
		*at = a->next;
	}
	pthread_mutex_unlock(&m->lock);
	return a;
}

SODA_API int soda_move_free(struct soda_mover *m, void *memory)
{
	struct soda_move_area *a;
	int saved = errno, ret = soda_mover_check(m);

	if (ret < 0 || !memory)
		return ret;
	a = take_out(m, memory);
	if (!a)
		return soda_move_failed(-EINVAL, "no soda_move_alloc() of this connection has"
						 " given this memory");
	ret = a->tail ? run_free(m, a->number) : 0;
	unmap(a);
	errno = saved;
	return ret;
}

/* The shared area that all elements of a piece lie in, or NULL. */
static const struct soda_move_area *find_locked(const struct soda_mover *m,
						const struct soda_wire_piece *p)
{
	const struct soda_move_area *a = m->areas;

	while (a && (!a->tail || a->leaves || p->from < (uintptr_t)a->memory ||
		     p->from + extent(p) > (uintptr_t)a->memory + a->bytes))
		a = a->next;
	return a;
}

void soda_mover_areas_name_locked(struct soda_mover *m, struct soda_move_ticket *t)
{
	struct soda_wire_piece *const end = t->pieces + t->pieces_n;
	const struct soda_move_area *a;
	uint64_t shared = 0;

	for (const struct soda_wire_piece *p = t->pieces; p < end && m->areas; p++)
		if (soda_wire_piece_copies(p) && find_locked(m, p))
			shared += p->bytes * p->count;
	t->streamed = m->way == SODA_WAY_STREAM && shared < t->copied;
	if (!shared || t->streamed || t->fabric)
		return;
	for (struct soda_wire_piece *p = t->pieces; p < end; p++) {
		a = soda_wire_piece_copies(p) ? find_locked(m, p) : NULL;
		if (a) {
			p->from -= (uintptr_t)a->memory;
			p->fill = SODA_WIRE_PIECE_AREA + a->number;
		}
	}
}

void soda_mover_areas_take_back_locked(struct soda_mover *m)
{
	/* full barriers, as of the token: the agent looks after it has copied (its areas.c) */
	for (struct soda_move_area *a = m->areas; a; a = a->next)
		if (a->tail)
			atomic_exchange(&a->tail->stands, 0);
}

void soda_mover_areas_unmap(struct soda_mover *m)
{
	while (m->areas) {
		struct soda_move_area *next = m->areas->next;

		unmap(m->areas);
		m->areas = next;
	}
}
