/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulated code is compiled with -fsanitize=thread and linked without its runtime: these
 * are the functions that the compiler calls.  An atomic operation is a point where another
 * thread may go on; a plain access is nothing.  Only one thread runs at a time, so that the
 * operations themselves need no order: what a weakly ordered machine may do besides is not seen.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "fibers.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

const volatile void *sim_watched;

/* Somebody changes the word that --watch asked for. */
static void changed(const volatile void *p, uint64_t from, uint64_t to, const void *by)
{
	if (p == sim_watched)
		sim_note("watched: %08llx -> %08llx at %s", (unsigned long long)from,
			 (unsigned long long)to, sim_place(by));
}

#define CHANGED(p, from, to) changed(p, from, to, __builtin_return_address(0))

#define NOTHING(name)                                                                              \
	void name(void *p)                                                                         \
	{                                                                                          \
	}
#define PLAIN(n)                                                                                   \
	NOTHING(__tsan_read##n)                                                                    \
	NOTHING(__tsan_write##n)                                                                   \
	NOTHING(__tsan_unaligned_read##n)                                                          \
	NOTHING(__tsan_unaligned_write##n)                                                         \
	NOTHING(__tsan_read_write##n)                                                              \
	NOTHING(__tsan_unaligned_read_write##n)                                                    \
	NOTHING(__tsan_volatile_read##n)                                                           \
	NOTHING(__tsan_volatile_write##n)

PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
NOTHING(__tsan_func_entry)

void __tsan_init(void)
{
}

void __tsan_func_exit(void)
{
}

void __tsan_read_range(void *p, unsigned long n)
{
}

void __tsan_write_range(void *p, unsigned long n)
{
}

void __tsan_vptr_update(void **p, void *v)
{
}

void __tsan_atomic_thread_fence(int order)
{
	sim_point();
}

void __tsan_atomic_signal_fence(int order)
{
}

#define ATOMIC(bits)                                                                               \
	uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t *p, int order)     \
	{                                                                                          \
		sim_point();                                                                       \
		return *p;                                                                         \
	}                                                                                          \
	void __tsan_atomic##bits##_store(volatile uint##bits##_t *p, uint##bits##_t v, int order)  \
	{                                                                                          \
		sim_point();                                                                       \
		CHANGED(p, *p, v);                                                                 \
		*p = v;                                                                            \
	}                                                                                          \
	uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t *p,                  \
						      uint##bits##_t v, int order)                 \
	{                                                                                          \
		uint##bits##_t old;                                                                \
                                                                                                   \
		sim_point();                                                                       \
		old = *p;                                                                          \
		CHANGED(p, old, v);                                                                \
		*p = v;                                                                            \
		return old;                                                                        \
	}                                                                                          \
	bool __tsan_atomic##bits##_compare_exchange_strong(volatile uint##bits##_t *p,             \
							   uint##bits##_t *expected,               \
							   uint##bits##_t v, int yes, int no)      \
	{                                                                                          \
		sim_point();                                                                       \
		if (*p == *expected) {                                                             \
			CHANGED(p, *p, v);                                                         \
			*p = v;                                                                    \
			return true;                                                               \
		}                                                                                  \
		*expected = *p;                                                                    \
		return false;                                                                      \
	}                                                                                          \
	bool __tsan_atomic##bits##_compare_exchange_weak(volatile uint##bits##_t *p,               \
							 uint##bits##_t *expected,                 \
							 uint##bits##_t v, int yes, int no)        \
	{                                                                                          \
		sim_point();                                                                       \
		if (*p == *expected) {                                                             \
			CHANGED(p, *p, v);                                                         \
			*p = v;                                                                    \
			return true;                                                               \
		}                                                                                  \
		*expected = *p;                                                                    \
		return false;                                                                      \
	}

#define CHANGE(bits, name, op)                                                                     \
	uint##bits##_t __tsan_atomic##bits##_fetch_##name(volatile uint##bits##_t *p,              \
							  uint##bits##_t v, int order)             \
	{                                                                                          \
		uint##bits##_t old;                                                                \
                                                                                                   \
		sim_point();                                                                       \
		old = *p;                                                                          \
		CHANGED(p, old, (uint##bits##_t)(old op v));                                       \
		*p = (uint##bits##_t)(old op v);                                                   \
		return old;                                                                        \
	}

#define ALL(bits)                                                                                  \
	ATOMIC(bits)                                                                               \
	CHANGE(bits, add, +)                                                                       \
	CHANGE(bits, sub, -)                                                                       \
	CHANGE(bits, and, &)                                                                       \
	CHANGE(bits, or, |)                                                                        \
	CHANGE(bits, xor, ^)

ALL(8)
ALL(16)
ALL(32)
ALL(64)
