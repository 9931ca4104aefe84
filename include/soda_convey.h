/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA: the interface of conveyors (Maley, DeVinney: Conveyors for Streaming Many-To-Many
 * Communication, IA3 2019; the package bale) over soda_msg.h.  A program that was written for
 * conveyors includes this file in place of convey.h, and links with libsoda-msg.
 *
 *   convey_t *c = convey_new(SIZE_MAX, 0, NULL, 0);
 *   int64_t from, i = 0;
 *
 *   convey_begin(c, sizeof(item), 0);
 *   while (convey_advance(c, i == n)) {
 *           for (; i < n && convey_push(c, &items[i], owner(i)) == convey_OK; i++)
 *                   ;
 *           while (convey_pull(c, &item, &from) == convey_OK)
 *                   use(&item);
 *   }
 *   convey_reset(c);
 *   convey_free(c);
 *
 * A PE is a rank: the program is started by soda msg run, mpirun or srun, and the environment says
 * which agent routes (soda_msg.h).  Each conveyor is a job of its own, named as the environment's
 * with .convey0, .convey1 ... behind it, and takes the agent's memory and two threads of each rank.
 * Where ranks route in their processes, at addresses that are listed, there is one at a time.
 *
 * Collective functions are called by all PEs, in the same order.  One thread at a time calls a
 * function of one conveyor; two conveyors may be two threads'.  Functions that return int return
 * convey_OK and its like, or a negative errno value, for which convey_error_string() has a
 * sentence, and which is told on stderr, once a conveyor, unless it has convey_opt_QUIET.
 *
 * States: dormant (new, reset), working (begin), endgame (advance with done), complete (advance has
 * returned convey_DONE).  A function in another state than the one it needs: -EINVAL.
 */
#ifndef SODA_CONVEY_H
#define SODA_CONVEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <soda_msg.h>

#ifdef __cplusplus
extern "C" {
#endif

enum convey_status {
	convey_DONE = 0, /* of advance: all items of all PEs have been pulled */
	convey_FAIL = 0, /* of push: no room now; of pull: no item now; of unpull: not possible */
	convey_OK = 1,
	convey_NEAR = 2, /* is never returned: a conveyor is DONE, or more may come */
};

enum convey_feature {
	convey_ELASTIC = 0x01, /* epush, epull */
	convey_STEADY = 0x02,  /* items arrive although nobody says that he is done: always */
	convey_THRIFTY = 0x04, /* compresses: never */
};

enum convey_option {
	convey_opt_RECKLESS = 0x01, /* nothing is checked less */
	convey_opt_DYNAMIC = 0x02,  /* no effect: buffers are the agent's */
	convey_opt_QUIET = 0x04,    /* errors are returned, and not told on stderr */
	convey_opt_SCATTER = 0x08,  /* no effect */
	convey_opt_PROGRESS = 0x10, /* no effect: all are steady */
	convey_opt_ALERT = 0x20,    /* no effect */
	convey_opt_COMPRESS = 0x40, /* no effect */
};

enum convey_statistic {
	convey_BEGINS = 0, /* since convey_reset(), and so the next ones */
	convey_PUSHES,
	convey_PULLS,
	convey_UNPULLS,
	convey_ADVANCES,
	convey_COMMS,	   /* transfers to the agent, always cumulative */
	convey_SYNCS,	   /* -1: not counted */
	convey_BYTES,	   /* of these transfers, always cumulative */
	convey_CUMULATIVE, /* added to one of the above: since convey_new() */
};

typedef struct soda_convey convey_t;
typedef struct convey_alc8r convey_alc8r_t;

typedef struct {
	size_t bytes;
	void *data; /* valid until the next pull or unpull of this conveyor */
	int64_t from;
} convey_item_t;

#define CONVEY_MAX_ALIGN (UINT64_C(64))

/*
 * A conveyor, dormant.  Collective.  max_bytes, n_local and alloc have no effect: memory is the
 * agent's.  options: enum convey_option.  NULL: soda_msg_last_error() says why.
 * elastic: items of convey_epush() have at most item_bound bytes.
 */
SODA_API convey_t *soda_convey_new(size_t max_bytes, size_t n_local, const convey_alc8r_t *alloc,
				   uint64_t options);
SODA_API convey_t *soda_convey_new_elastic(size_t item_bound, size_t max_bytes, size_t n_local,
					   const convey_alc8r_t *alloc, uint64_t options);

/*
 * From dormant to working.  Collective.  Items have item_bytes each, at most SODA_MSG_BYTES_MAX,
 * the same on all PEs; 0: only of an elastic one.  align: of what convey_apull() and convey_epull()
 * give, a power of two that divides item_bytes, at most CONVEY_MAX_ALIGN; another one, 0 too: the
 * largest. -EMSGSIZE.
 */
SODA_API int soda_convey_begin(convey_t *c, size_t item_bytes, size_t align);

/*
 * Send an item to a PE: convey_OK, it is copied; convey_FAIL: there is no room now, pull and
 * advance, then try again.  Only while working.  -EINVAL: no such PE; -EMSGSIZE.  Errors of
 * soda_msg_push().
 */
SODA_API int soda_convey_push(convey_t *c, const void *item, int64_t pe);
SODA_API int soda_convey_epush(convey_t *c, size_t bytes, const void *item, int64_t pe);

/*
 * The next item: convey_OK; convey_FAIL: there is none now.  Not while dormant.  pull copies it;
 * apull (NULL: none) and epull point to it, until the next pull or unpull.  from may be NULL.
 * pull and apull of an elastic one fail as long as the next item is not of the size that
 * convey_begin() said. -EIO: an item of another size, of a PE whose convey_begin() said so.
 */
SODA_API int soda_convey_pull(convey_t *c, void *item, int64_t *from);
SODA_API void *soda_convey_apull(convey_t *c, int64_t *from);
SODA_API int soda_convey_epull(convey_t *c, convey_item_t *result);
/* The item pulled last can be pulled again: convey_OK; convey_FAIL: no pull went before. */
SODA_API int soda_convey_unpull(convey_t *c);

/*
 * Have what was pushed sent.  done: this PE pushes no more; in endgame and later only true.
 * convey_OK: go on; convey_DONE: all PEs are done, and this one has pulled all.  A thread that
 * finds nothing to do again and again sleeps here, at most a millisecond at a time.
 */
SODA_API int soda_convey_advance(convey_t *c, bool done);

/* From complete to dormant.  Collective. */
SODA_API int soda_convey_reset(convey_t *c);
/* The conveyor is dormant or complete; NULL: convey_OK.  Collective. */
SODA_API int soda_convey_free(convey_t *c);

SODA_API size_t soda_convey_item_size(convey_t *c);  /* 0: dormant */
SODA_API uint64_t soda_convey_features(convey_t *c); /* enum convey_feature */
/* which: enum convey_statistic.  -1: not counted. */
SODA_API int64_t soda_convey_statistic(convey_t *c, int which);
/* Valid until the thread's next call of a function of this library. */
SODA_API const char *soda_convey_error_string(convey_t *c, int error);

/* Not of conveyors: which PE this is, of how many, as the launcher says.  Negative: it does not. */
SODA_API int64_t soda_convey_pe(void);
SODA_API int64_t soda_convey_pes(void);
/* The job below a conveyor, for collectives. Neither pushed to nor pulled from nor ended. */
SODA_API struct soda_msg_job *soda_convey_job(convey_t *c);

/* The names of conveyors: a program may link with another library that has them, too. */
#define convey_new soda_convey_new
#define convey_new_elastic soda_convey_new_elastic
#define convey_begin soda_convey_begin
#define convey_push soda_convey_push
#define convey_epush soda_convey_epush
#define convey_pull soda_convey_pull
#define convey_apull soda_convey_apull
#define convey_epull soda_convey_epull
#define convey_unpull soda_convey_unpull
#define convey_advance soda_convey_advance
#define convey_reset soda_convey_reset
#define convey_free soda_convey_free
#define convey_item_size soda_convey_item_size
#define convey_features soda_convey_features
#define convey_statistic soda_convey_statistic
#define convey_error_string soda_convey_error_string

#ifdef __cplusplus
}
#endif
#endif
