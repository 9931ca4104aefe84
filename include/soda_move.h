/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA: a DPU agent fetches data from a program, and places it for others to read.
 *
 * A producer names a buffer in the agent's memory, and hands over lists of pieces of its own
 * memory; each list becomes a step of that buffer, with a number.  The call returns at once,
 * whatever the size.  Consumers, any processes that may read the buffer, wait for the next step and
 * read it.
 *
 *   producer                                          consumer
 *   soda_move_connect("shm:///run/soda.sock", &m)     soda_move_open("shm:///run/soda.sock",
 *   soda_move_reserve(m, "heat", &how, &buffer)                      "heat", 10000, &reader)
 *   loop: soda_move(buffer, pieces, n, &ticket)       loop: soda_move_next(reader, after, ...,
 *         ... compute, elsewhere ...                                      &step)
 *         soda_move_wait(ticket, -1, NULL)                  ... step.data, step.bytes ...
 *   soda_move_disconnect(m)                                 soda_move_release(reader, &step)
 *                                                     soda_move_close(reader)
 *
 * The agent must have memory for this: soda-dpu-agent --move-memory SIZE.  Link with libsoda-move;
 * neither soda_init() nor libsoda is needed, but a program may use both.
 *
 * How the data come.  From a producer on the agent's machine, connected by shm, the agent reads the
 * memory itself, where both have the same user and the kernel lets it (process_vm_readv(2)).
 * Otherwise a thread of this library reads and sends it, which costs the producer's processors the
 * copy (connected by verbs: registers it for the agent's adapter to read); soda_move_way() says
 * which.  Memory of soda_move_alloc() is the agent's, too, where both
 * are on one machine.  The agent copies it, also where the two have different users.
 *
 * Conventions.  Functions that return int return 0 or a negative errno value, and leave errno alone
 * where they succeed.  After a failure soda_move_last_error() has a sentence for the calling
 * thread.  Sizes are in bytes, times in milliseconds.  No function may be called from a signal
 * handler or from the child of a fork (there: -ENOTSUP); else from any thread, unless it says
 * otherwise.
 *
 * A lost connection is final: every function of that mover or reader returns -ENOTCONN from then
 * on, and it is left to close it and to connect anew.  The steps before it may have been shown or
 * not; no step is ever shown in part.
 */
#ifndef SODA_MOVE_H
#define SODA_MOVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SODA_API
#define SODA_API __attribute__((visibility("default")))
#endif

struct soda_mover;	 /* a producer's connection to an agent */
struct soda_move_buffer; /* a buffer that it has reserved, or a range of an object */
struct soda_move_object; /* memory of the agent's memory server */
struct soda_move_ticket; /* a list of pieces that was handed over */
struct soda_move_reader; /* a consumer's connection, to one buffer */

#define SODA_MOVE_NAME_MAX 255u	   /* bytes of a name */
#define SODA_MOVE_COPIES_MAX 64u   /* of a buffer */
#define SODA_MOVE_PIECES_MAX 1024u /* of a list */
#define SODA_MOVE_TICKETS_MAX 64u  /* of a mover, that have not been waited for */

/* struct soda_move_buffer_options.flags: a step that a consumer has not passed is not replaced. */
#define SODA_MOVE_KEEP 0x1u
/*
 * The same: the agent fetches into memory of its own, as large as a step beside the copies, and
 * then puts each piece to its place.  To compare: what it costs where an agent first has the data
 * and then serialises them.
 */
#define SODA_MOVE_STAGE 0x2u

/* What soda_move_reserve() takes. Zero it, then set what is wanted. */
struct soda_move_buffer_options {
	uint64_t bytes;	   /* of each step */
	unsigned copies;   /* steps that the agent has memory for; 0: 2; at most COPIES_MAX */
	unsigned mode;	   /* who may read: 0400 the user, 0040 the group, 0004 others; 0: 0400 */
	unsigned flags;	   /* SODA_MOVE_KEEP, SODA_MOVE_STAGE */
	unsigned reserved; /* zero */
};

/*
 * A piece: `count` elements of `bytes` bytes each, which begin `stride` bytes apart from `from` on,
 * and lie without gaps from `offset` on in the step.  count 0 or 1: one, and stride is not looked
 * at.  from NULL: bytes * count bytes of the value `fill`.  What no piece covers is zeros.
 */
struct soda_move_piece {
	const void *from;
	uint64_t bytes;
	uint64_t stride;
	uint64_t count;
	uint64_t offset;
	unsigned fill;	   /* 0 to 255 */
	unsigned reserved; /* zero */
};

enum soda_move_transfer {
	SODA_MOVE_READS = 1,  /* the agent reads the producer's memory */
	SODA_MOVE_STREAM = 2, /* this library sends it */
};

/* Producers */

/*
 * Connect to an agent, tcp://HOST:PORT or shm:///PATH; NULL: what SODA_DPU says.  *mover_p is the
 * caller's, until soda_move_disconnect().  Starts a thread.  -EINVAL: no such address; -ENOTSUP:
 * the agent has no memory for this (--move-memory), or knows nothing of it; -ECONNREFUSED,
 * -ENOENT, -ETIMEDOUT...: not there; -EPERM: the agent does not serve this user; -ENOMEM.
 */
SODA_API int soda_move_connect(const char *agent, struct soda_mover **mover_p);
/*
 * End the mover: its buffers, and its tickets, which must not be used any more, whatever their
 * state.  What the agent has not shown by then it never shows.  The memory of all pieces may be
 * reused.  May take a second. No other call with this mover may be under way. NULL: nothing.
 */
SODA_API void soda_move_disconnect(struct soda_mover *mover);
/* enum soda_move_transfer */
SODA_API int soda_move_way(const struct soda_mover *mover);

/*
 * Memory to compute in and to hand over: whole pages of zeros, that the agent has made, counts
 * against its --move-memory, and maps, too, so that it copies pieces of them without asking the
 * kernel, and also from a program of another user.  Connected by tcp, it is memory of the program
 * alone, and its pieces travel as others.  A list of a mover with SODA_MOVE_STREAM is copied so
 * where all of its pieces lie in such memory.  The child of a fork shares it.  It lives until
 * soda_move_free(), or the mover's end; also where the connection is lost.  -EINVAL: no bytes, or
 * more than 2^40; -ENOSPC: over the agent's --move-memory; -EBUSY: there are 64; -ENOMEM;
 * -ENOTCONN.
 */
SODA_API int soda_move_alloc(struct soda_mover *mover, uint64_t bytes, void **memory_p);
/*
 * Give memory of soda_move_alloc() back, after the lists that were handed over before have ended.
 * -EINVAL: it is none, and stays; 0, -ENOTCONN: it is gone. NULL: nothing.
 */
SODA_API int soda_move_free(struct soda_mover *mover, void *memory);

/*
 * Reserve a buffer by a name of printable characters of ASCII, without a space.  Waits for the
 * agent, which takes all memory, bytes * copies, and once more with STAGE, now.  *buffer_p lives
 * until soda_move_end() or the mover's end.  -EINVAL: no such name, size, mode or flag; -EEXIST:
 * the name is in use; -ENOSPC: over the agent's --move-memory; -EPERM: connected by tcp, and the
 * mode does not let others read; -EBUSY: too many buffers; -ENOMEM; -ENOTCONN.
 */
SODA_API int soda_move_reserve(struct soda_mover *mover, const char *name,
			       const struct soda_move_buffer_options *how,
			       struct soda_move_buffer **buffer_p);
/*
 * End the buffer, after the lists that were handed over before.  Consumers that have it open read
 * what is complete, then they are told; the name is free. *buffer is gone. 0, -ENOTCONN.
 */
SODA_API int soda_move_end(struct soda_move_buffer *buffer);

/*
 * Hand over n pieces, to become the buffer's next step.  Returns at once.  The list is copied; the
 * memory that it names must stay as it is until the ticket has ended, or the step's content is that
 * of various moments.  Lists of one mover are fetched in the order of these calls.  Memory that
 * cannot be read is -EFAULT of the ticket.
 *
 * Pieces may lie in SODA's own objects, resident or not, where libsoda was loaded before
 * soda_move_connect(): they are made resident a part at a time (soda_hold() of soda.h) until they
 * have been fetched, which takes the courier's time and a twentieth of the page buffer.  A page
 * that cannot be had is -EFAULT, too.
 *
 * *ticket_p is for soda_move_test() or _wait(), by one thread at a time.  ticket_p NULL: nobody
 * will ask.  -EINVAL: no pieces, one without bytes, sizes that overflow, pieces that overlap in the
 * step; -E2BIG: more than PIECES_MAX; -EFBIG: a piece ends behind the buffer; -EAGAIN: TICKETS_MAX
 * tickets have not ended yet: wait for one; -ENOTSUP: a piece lies in an object that is sealed
 * (soda_is_sealed() of soda.h), or in any of SODA's, and SODA_SEAL was on at soda_move_connect();
 * -ENOMEM; -ENOTCONN.
 */
SODA_API int soda_move(struct soda_move_buffer *buffer, const struct soda_move_piece *pieces,
		       size_t n, struct soda_move_ticket **ticket_p);
/*
 * Whether the ticket has ended.  -EINPROGRESS: not that is known here; the agent is asked.  Every
 * other result is how it has ended, and the ticket is gone: 0: the step is complete, and *step_p
 * (may be NULL) its number; -EFAULT: a piece could not be read; -ENOSPC: no copy was free (held by
 * consumers, or kept for them); -ECANCELED; -EPIPE: the buffer was ended before; -ENOTCONN: the
 * connection was lost; -ENOMEM; -EIO.
 */
SODA_API int soda_move_test(struct soda_move_ticket *ticket, uint64_t *step_p);
/* The same, after at most timeout_ms; < 0: no limit but the connection's end. */
SODA_API int soda_move_wait(struct soda_move_ticket *ticket, int timeout_ms, uint64_t *step_p);
/*
 * Ask that the ticket's step be not shown.  Does not wait; the ticket ends, with -ECANCELED or as
 * it would have.  0, or -EALREADY: it has ended.
 */
SODA_API int soda_move_cancel(struct soda_move_ticket *ticket);

/*
 * Objects
 *
 * What is handed over can be placed in fabric-attached memory (FAM) instead of the agent's: in
 * ranges of an object, on the agent's memory server.  Nobody sees it before it is published; then
 * programs of the same user map it by its name, for reading (soda_open_published() of soda.h), and
 * it stays as long as one of them, or this mover, has it.
 *
 *   soda_move_object_alloc(m, bytes, &object)
 *   soda_move_object_range(object, 0, bytes, 0, &buffer)
 *   soda_move(buffer, ...), soda_move_arrow(buffer, ...), soda_move_wait(...)
 *   soda_move_object_publish(object, "heat.17")
 *   soda_move_object_free(object)
 *
 * The agent alone writes the object: it is not mapped in this process, and a program's objects of
 * soda_alloc() are no destination.  A list is gathered in the agent's memory, and then written as a
 * whole: one that fails before that (-EFAULT, -ECANCELED...) leaves the range as it was.  A ticket
 * that ended with 0 is on the memory server.  Objects have a connection of their own, which is made
 * with the first: their lists are placed in their order, and in none with those of other buffers.
 */

/*
 * Make an object of zeros, which counts against what the memory server has.  *object_p lives until
 * soda_move_object_free() or the mover's end.  -EINVAL: no bytes, or more than 2^40; -ENOSPC,
 * -EDQUOT: the server, or the user's share of it, is full; -EBUSY: too many objects; -ENOTSUP:
 * SODA_SEAL was on at soda_move_connect(); the errors of that.
 */
SODA_API int soda_move_object_alloc(struct soda_mover *mover, uint64_t bytes,
				    struct soda_move_object **object_p);
/*
 * A buffer whose lists fill the range [at, at + bytes) of the object: offsets of pieces are from
 * `at` on, and what no piece covers becomes zeros.  It has no name.  copies, 0: 2: so many lists
 * may be gathered and written at once; the agent takes bytes * copies of its --move-memory now.
 * Lives until soda_move_end(), soda_move_object_free() or the mover's end.  -EINVAL: not in the
 * object, or not whole pages of 4096 bytes, but for the object's end; -ENOSPC: over the agent's
 * --move-memory; -EBUSY: too many buffers; -ENOMEM; -ENOTCONN.
 *
 * soda_move() and soda_move_arrow() of such a buffer also return -EROFS: the object is published;
 * its tickets end as others, and with -EIO: the memory server did not take it all, and the object
 * cannot be published any more.
 */
SODA_API int soda_move_object_range(struct soda_move_object *object, uint64_t at, uint64_t bytes,
				    unsigned copies, struct soda_move_buffer **buffer_p);
/*
 * Show the object to programs of this user by a name of printable characters of ASCII, without a
 * space: when all lists that were handed over before have ended.  From now on it does not change.
 * Lists that failed are no error, unless with -EIO.  -EINVAL: no such name; -EEXIST: the name is in
 * use; -EALREADY: it is published; -EIO: see above; -ENOTSUP: the server cannot; -ENOTCONN,
 * -ETIMEDOUT.
 */
SODA_API int soda_move_object_publish(struct soda_move_object *object, const char *name);
/*
 * End the object's ranges, after the lists that were handed over before, and give the object back:
 * published, it stays for those that have it open.  *object is gone. 0, -ENOTCONN. NULL: nothing.
 */
SODA_API int soda_move_object_free(struct soda_move_object *object);

/*
 * Tables
 *
 * A table in the memory layout of Apache Arrow, given by its C data interface, becomes a step that
 * is an Arrow IPC stream or file: any Arrow library reads it.  The metadata are written by this
 * library; the columns are fetched from where they are to where they belong.  Or the step has the
 * C data interface's own structures, beside the columns, for consumers that use this library.
 */

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
	const char *format;
	const char *name;
	const char *metadata;
	int64_t flags;
	int64_t n_children;
	struct ArrowSchema **children;
	struct ArrowSchema *dictionary;
	void (*release)(struct ArrowSchema *);
	void *private_data;
};

struct ArrowArray {
	int64_t length;
	int64_t null_count;
	int64_t offset;
	int64_t n_buffers;
	int64_t n_children;
	const void **buffers;
	struct ArrowArray **children;
	struct ArrowArray *dictionary;
	void (*release)(struct ArrowArray *);
	void *private_data;
};

#endif

/* What a step becomes. */
enum soda_move_arrow_form {
	SODA_MOVE_ARROW_STREAM, /* an IPC stream; what is left of the step behind it is zeros */
	SODA_MOVE_ARROW_FILE,	/* an IPC file, which is as long as the step; a gap is zeros */
	/* structures of the C data interface, for soda_move_arrow_schema() and _batch() */
	SODA_MOVE_ARROW_STRUCTS,
};

/*
 * struct soda_move_arrow_options.flags: soda_move_arrow() copies the table together itself, and
 * what is fetched is that copy: the caller's buffers may be reused at once, for the time and the
 * memory of the copy.  To compare, and for tables that do not stay.
 */
#define SODA_MOVE_ARROW_COPY 0x1u

/* How a table is to lie in a step. Zero it, then set what is wanted. */
struct soda_move_arrow_options {
	unsigned align;	   /* of each buffer of a column: 8, 16 ... 4096; 0: 64 */
	unsigned form;	   /* enum soda_move_arrow_form */
	unsigned flags;	   /* SODA_MOVE_ARROW_COPY */
	unsigned reserved; /* zero */
};

/*
 * Hand over a table, to become the buffer's next step: the schema, n record batches, and an end, in
 * the form that `how` says.  The schema is a struct ("+s"), whose children
 * are the columns, and each batch an array of it.  Types: null, booleans, integers, floating point,
 * decimals, dates, times, timestamps, durations, intervals, fixed-size binary, binary and utf8 with
 * 32- or 64-bit offsets, lists with either, fixed-size lists, structs, maps; -ENOTSUP:
 * dictionaries, unions, views, run-end encoding.  how NULL: defaults.
 *
 * Nothing is released: schema and arrays stay the caller's, and their buffers must stay as they are
 * until the ticket has ended, as pieces must.  The structures themselves are not looked at after
 * the call.  What is copied in this call, and costs time with the number of elements: bitmaps of
 * slices that do not begin at a multiple of 8 elements, and offsets of those that do not begin with
 * 0. Bitmaps whose null_count is -1, or that are read in part, are counted.  Buffers must be as
 * long as the interface says; one that is not is read behind its end.  Offsets are checked where
 * they are copied, else only the first and the last.
 *
 * Returns as soda_move() does, and -EINVAL: malformed structures (released, negative lengths,
 * unknown types, missing buffers, children that are too short, too deep nesting, sizes that
 * overflow); -E2BIG: more than PIECES_MAX buffers, or 1,024 columns; -EFBIG: the table is longer
 * than the step.
 */
SODA_API int soda_move_arrow(struct soda_move_buffer *buffer, const struct ArrowSchema *schema,
			     const struct ArrowArray *const *batches, size_t n,
			     const struct soda_move_arrow_options *how,
			     struct soda_move_ticket **ticket_p);
/* How many bytes such a table has, to reserve a buffer. The errors of these structures. */
SODA_API int soda_move_arrow_bytes(const struct ArrowSchema *schema,
				   const struct ArrowArray *const *batches, size_t n,
				   const struct soda_move_arrow_options *how, uint64_t *bytes_p);

/* Consumers */

/*
 * A complete step. data is readable until soda_move_release() or _close(); by shm it is the agent's
 * memory, mapped; else a copy.  It stays as it is while the connection does: by shm an agent that
 * has lost the consumer's connection, and lives, fills it anew.  soda_move_release() says whether
 * that was so: what was read is the step's if it returns 0.
 */
struct soda_move_step {
	uint64_t number; /* from 1, one more for each of the buffer's steps */
	uint64_t bytes;
	const void *data;
};

/*
 * Connect to an agent, as soda_move_connect(), and open a buffer there; one that is reserved within
 * timeout_ms (< 0: no limit) is waited for.  -ENOENT: there is none of this name; -EACCES: its mode
 * does not let this user read; the errors of soda_move_connect().
 */
SODA_API int soda_move_open(const char *agent, const char *name, int timeout_ms,
			    struct soda_move_reader **reader_p);
/*
 * The oldest complete step that the agent still has with a number above `after`; waited for for at
 * most timeout_ms (< 0: no limit).  A producer that is faster than its consumers replaces steps
 * that nobody has: so step_p->number may leap.  It is not replaced before soda_move_release(),
 * and counts against the buffer's copies.  -ETIMEDOUT: none came; -EPIPE: the producer has ended,
 * and none is left; -EBUSY: the reader holds this step already; -ENOMEM; -ENOTCONN.  One thread at
 * a time for a reader.
 */
SODA_API int soda_move_next(struct soda_move_reader *reader, uint64_t after, int timeout_ms,
			    struct soda_move_step *step_p);
/*
 * Give a step of soda_move_next() back. 0: it has stayed as it was; -EINVAL: the reader does not
 * hold it; -ENOTCONN: by shm, what was read of it may be of later steps in part.
 */
SODA_API int soda_move_release(struct soda_move_reader *reader, const struct soda_move_step *step);
/* End the reader, and give back the steps that it holds. NULL: nothing. */
SODA_API void soda_move_close(struct soda_move_reader *reader);

/*
 * Tables that lie in a step as structures of the C data interface (SODA_MOVE_ARROW_STRUCTS).  What
 * a step says is checked as what a stranger wrote: schema, counts, sizes, every offset of texts and
 * lists; so the calls take time with the number of those offsets, and with nothing else's.
 *
 * The columns are the step's memory, nothing is copied: buffers are readable until the step is
 * released.  The structures are the caller's, who releases each by its own `release`, also after
 * the step.
 */

/* The schema, and *batches_p, how many batches. -EINVAL: the step has no such table; -ENOMEM. */
SODA_API int soda_move_arrow_schema(const struct soda_move_step *step, struct ArrowSchema *schema_p,
				    size_t *batches_p);
/* Batch i. -EINVAL: the step has no such table, or not so many batches; -ENOMEM. */
SODA_API int soda_move_arrow_batch(const struct soda_move_step *step, size_t i,
				   struct ArrowArray *batch_p);

/* The calling thread's last failure here, or "". Valid until its next call of a soda_move function.
 */
SODA_API const char *soda_move_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
