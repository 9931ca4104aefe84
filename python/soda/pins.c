/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranges that stay in the page buffer: those that somebody's buffer has, and those that
 * soda.advise() was told to pin.  Pins do not count in libsoda, and are of whole chunks, so they
 * are counted here, by range: each is entered before it is pinned, and unpinned when no other one
 * is near.
 *
 *   HELD, KEPT --(its buffer ends; "unpin"; the memory is freed)--> OVER --(none is near)--> gone
 *
 * No GIL is needed.  The lock is held over UNPIN, which waits for nobody, and not over PIN.
 */
#include "module.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "soda.h"

enum pin_state {
	PIN_HELD, /* a buffer's */
	PIN_KEPT, /* soda.advise()'s */
	PIN_OVER  /* nobody's, but near one that is not */
};

struct soda_python_pin {
	struct soda_python_pin *next;
	char *start;
	size_t bytes;
	enum pin_state state;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct soda_python_pin *pins; /* guarded by lock */

static bool contains(const struct soda_python_pin *p, const char *start, size_t bytes)
{
	return p->start <= start && start + bytes <= p->start + p->bytes;
}

/* Whether the chunks of two ranges may be the same: to stay pinned for too long is harmless. */
static bool near(const struct soda_python_pin *a, const struct soda_python_pin *b)
{
	const size_t chunk = 2 << 20; /* no chunk is larger */

	return a->start < b->start + b->bytes + chunk && b->start < a->start + a->bytes + chunk;
}

/* Whether another range than this needs what is near it. */
static bool needed_locked(const struct soda_python_pin *p)
{
	for (const struct soda_python_pin *other = pins; other; other = other->next)
		if (other->state != PIN_OVER && near(other, p))
			return true;
	return false;
}

/* Whether an older range that is OVER has all of this one. */
static bool repeats_locked(const struct soda_python_pin *p)
{
	for (const struct soda_python_pin *other = p->next; other; other = other->next)
		if (other->state == PIN_OVER && contains(other, p->start, p->bytes))
			return true;
	return false;
}

/* Unpin what is OVER and near none. What soda_advise() said of the last one. */
static int sweep_locked(void)
{
	int ret = 0;

	for (struct soda_python_pin **at = &pins; *at;) {
		struct soda_python_pin *p = *at;
		bool needed = p->state != PIN_OVER || needed_locked(p);

		if (needed && (p->state != PIN_OVER || !repeats_locked(p))) {
			at = &p->next;
			continue;
		}
		if (!needed)
			ret = soda_advise(p->start, p->bytes, SODA_UNPIN);
		*at = p->next;
		free(p);
	}
	return ret;
}

static struct soda_python_pin *enter_locked(char *start, size_t bytes, enum pin_state state)
{
	struct soda_python_pin *p = malloc(sizeof(*p));

	if (p) {
		*p = (struct soda_python_pin){ pins, start, bytes, state };
		pins = p;
	}
	return p;
}

static int pin(char *start, size_t bytes, enum pin_state state, struct soda_python_pin **pin_p)
{
	struct soda_python_pin *p;
	int ret;

	pthread_mutex_lock(&lock);
	p = enter_locked(start, bytes, state);
	pthread_mutex_unlock(&lock);
	if (!p)
		return -ENOBUFS;
	ret = soda_advise(start, bytes, SODA_PIN);
	if (!ret)
		*pin_p = p;
	else
		soda_python_unpin(p);
	return ret;
}

int soda_python_pin(char *start, size_t bytes, struct soda_python_pin **pin_p)
{
	return pin(start, bytes, PIN_HELD, pin_p);
}

void soda_python_unpin(struct soda_python_pin *p)
{
	pthread_mutex_lock(&lock);
	p->state = PIN_OVER;
	sweep_locked();
	pthread_mutex_unlock(&lock);
}

int soda_python_pin_keep(char *start, size_t bytes)
{
	struct soda_python_pin *unused;

	return pin(start, bytes, PIN_KEPT, &unused);
}

/* The parts of a KEPT range before and behind another one stay KEPT. */
static void keep_rest_locked(const struct soda_python_pin *p, char *start, size_t bytes)
{
	char *end = start + bytes, *p_end = p->start + p->bytes;

	if (p->start < start)
		enter_locked(p->start, (size_t)(start - p->start), PIN_KEPT);
	if (end < p_end)
		enter_locked(end, (size_t)(p_end - end), PIN_KEPT);
}

static bool cut_locked(char *start, size_t bytes)
{
	bool any = false;

	for (struct soda_python_pin *p = pins; p; p = p->next) {
		if (p->state != PIN_KEPT || p->start >= start + bytes ||
		    start >= p->start + p->bytes)
			continue;
		keep_rest_locked(p, start, bytes);
		p->state = PIN_OVER;
		any = true;
	}
	return any;
}

int soda_python_pin_end(char *start, size_t bytes)
{
	int ret = -ENOBUFS;

	pthread_mutex_lock(&lock);
	cut_locked(start, bytes);
	if (enter_locked(start, bytes, PIN_OVER))
		ret = sweep_locked();
	pthread_mutex_unlock(&lock);
	return ret;
}

void soda_python_pins_forget(char *start, size_t bytes)
{
	pthread_mutex_lock(&lock);
	if (pins && cut_locked(start, bytes))
		sweep_locked();
	pthread_mutex_unlock(&lock);
}

/* A child has no pins, and does not wait for what another thread did at the fork. */
static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

int soda_python_pins_begin(void)
{
	return -pthread_atfork(before_fork, after_fork, after_fork);
}
