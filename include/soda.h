/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SODA: memory that lives across the network.
 *
 * A program allocates large objects with soda_alloc(); their pages live in the
 * DRAM of a memory server and are fetched when they are touched.  At most
 * `buffer` bytes of them are resident in the program at any time.
 *
 * Conventions.  Functions that return int return 0 or a negative errno value
 * and leave errno alone.  Functions that return a pointer return NULL and set
 * errno.  After either kind of failure soda_last_error() holds a sentence for
 * the calling thread.  Sizes are in bytes.  Every function may be called from
 * any thread at any time unless it says otherwise; none may be called from a
 * signal handler or from the child of a fork (there: -ENOTSUP).
 */
#ifndef SODA_H
#define SODA_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SODA_API __attribute__((visibility("default")))

/* In an integer field of struct soda_config: switched off (0 means default). */
#define SODA_OFF UINT32_MAX

/* How page faults are served (struct soda_config.mode). */
enum soda_mode {
	SODA_MODE_AUTO = 0,    /* inline */
	SODA_MODE_INLINE = 1,  /* the faulting thread serves its own fault */
	SODA_MODE_HANDLER = 2, /* a thread of the library serves all faults */
};

/* What a page that cannot be had does (struct soda_config.on_error). */
enum soda_on_error {
	SODA_ON_ERROR_DEFAULT = 0, /* sigbus */
	SODA_ON_ERROR_SIGBUS = 1,  /* SIGBUS on the faulting thread */
	SODA_ON_ERROR_ABORT = 2,   /* one line on stderr, then abort() */
	SODA_ON_ERROR_WAIT = 3,	   /* wait for the server for ever */
};

/* Severity of a log message. */
enum soda_log_level {
	SODA_LOG_ERROR = 1,
	SODA_LOG_WARNING = 2,
	SODA_LOG_INFO = 3,
	SODA_LOG_DEBUG = 4,
};

/*
 * What soda_init() takes.  Initialise with SODA_CONFIG_INIT; a field that is
 * zero or NULL takes its value from the environment variable in brackets, and
 * if that is unset too, its default.  Strings are copied.
 */
struct soda_config {
	size_t struct_bytes;	  /* set by SODA_CONFIG_INIT */
	const char *server;	  /* [SODA_SERVER] tcp://host:port, verbs://host:port,
				     shm:///path/of.sock;
				     default: a private server for this process */
	const char *dpu;	  /* [SODA_DPU] a DPU agent instead of a server: the same, or
				     unix:///path/of.sock; not both */
	const char *buffer;	  /* [SODA_BUFFER] page buffer: "512M", or a fraction of what is
				     allocated, "1/3"; default 1/3, at least 16 MiB */
	const char *evict;	  /* [SODA_EVICT] replacement policy: ghost (default), fifo */
	const char *mechanisms;	  /* [SODA_MECHANISMS] auto (default); own: a DPU agent
				     installs no pages; copy: nor is anything used that
				     Linux 5.7 has not */
	size_t chunk_bytes;	  /* [SODA_CHUNK] a power of two, 4 KiB to 2 MiB; default 64 KiB */
	uint32_t mode;		  /* [SODA_MODE] enum soda_mode */
	uint32_t on_error;	  /* [SODA_ON_ERROR] enum soda_on_error */
	uint32_t threads;	  /* [SODA_THREADS] application threads that touch FAM at once;
				     default: the processors it may run on */
	uint32_t evict_high_pct;  /* [SODA_EVICT_HIGH] eviction starts; default 95 */
	uint32_t evict_low_pct;	  /* [SODA_EVICT_LOW] and goes down to; default 90 */
	uint32_t prefetch_chunks; /* [SODA_PREFETCH] furthest a stream runs ahead; default 32,
				     or 2 MiB of chunks of less than 64 KiB */
	uint32_t poll_us;	  /* [SODA_POLL] longest busy wait for an answer; default 50 */
	uint32_t connect_timeout_ms; /* [SODA_CONNECT_TIMEOUT] default 5 s */
	uint32_t fault_timeout_ms;   /* [SODA_FAULT_TIMEOUT] default 30 s */
	/* Receives log messages; called from any thread, in inline mode from a signal handler
	   too: it must be async-signal-safe.  NULL: stderr. */
	void (*log)(int level, const char *message, void *log_arg);
	void *log_arg;
	uint32_t log_level; /* [SODA_LOG] enum soda_log_level; default warning */
	uint32_t reserved;  /* zero */
};
/* C++ has designated initialisers from C++20 on only: there every field is named by its place. */
#ifdef __cplusplus
#define SODA_CONFIG_INIT                                                                           \
	{                                                                                          \
		sizeof(struct soda_config), nullptr, nullptr, nullptr, nullptr, nullptr, 0, 0, 0,  \
			0, 0, 0, 0, 0, 0, 0, nullptr, nullptr, 0, 0                                \
	}
#else
#define SODA_CONFIG_INIT                                                                           \
	{                                                                                          \
		.struct_bytes = sizeof(struct soda_config)                                         \
	}
#endif

/* Flags of soda_alloc_file(): exactly one of the first three. */
#define SODA_READ_ONLY 0x1u /* many clients; a store is SIGSEGV */
#define SODA_WRITABLE 0x2u  /* one client; the file changes on soda_sync() */
#define SODA_PRIVATE 0x4u   /* preloaded and writable, the file unchanged */
#define SODA_CREATE 0x8u    /* with WRITABLE: make the file if there is none */

/* Flags of soda_alloc(), the first one of soda_alloc_file(), too. */
#define SODA_SEALED 0x100u /* encrypted and authenticated wherever it leaves the process */
/*
 * At most one of these: on a pool of servers, the redundancy of this object, whatever
 * SODA_REDUNDANCY says.  What can be computed again needs none, and where a server's network is the
 * limit lies in stripes; what cannot, lies on n servers, or in pieces on k + m, of different
 * failure domains.
 */
#define SODA_NO_REDUNDANCY 0x10000u
#define SODA_MIRROR(n) (0x20000u | ((unsigned)(n)&0xfu) << 20) /* n is 2 */
/* Erasure codes, ec:K+M: k is 2, 4 or 8; m, how many servers may end, 1 or 2. */
#define SODA_EC(k, m) (0x40000u | ((unsigned)(k)&0xfu) << 20 | ((unsigned)(m)&0xfu) << 24)
/* Each chunk in k pieces on k servers, without parity (stripe:K): k is 2, 4 or 8. */
#define SODA_STRIPE(k) SODA_EC(k, 0)

/* Advice for soda_advise(). */
enum soda_advice {
	SODA_NORMAL = 0,     /* default behaviour */
	SODA_SEQUENTIAL = 1, /* read ahead eagerly */
	SODA_RANDOM = 2,     /* do not read ahead */
	SODA_WILLNEED = 3,   /* as soda_prefetch() */
	SODA_COLD = 4,	     /* evict now, keep the data; what is pinned or held stays */
	SODA_DISCARD = 5,    /* the whole chunks in the range become zeros */
	SODA_PIN = 6,	/* fetch and keep resident; -ENOMEM beyond the buffer less its minimum */
	SODA_UNPIN = 7, /* undo PIN; pins do not count */
	SODA_STATIC_CACHE = 8,	/* keep in the DPU agent; a store is SIGSEGV from then on */
	SODA_DYNAMIC_CACHE = 9, /* let the agent cache the object, and end STATIC_CACHE */
	SODA_NO_CACHE = 10,	/* do not, and end it; without an agent all three: -ENOTSUP */
	SODA_ABANDON = 11,	/* soda_free() and the end of the program write nothing of this
				   WRITABLE file back any more; for one that the server refuses */
};

/*
 * Counters since start-up; sizes in bytes, times in nanoseconds.  Later
 * versions append fields; soda_get_stats() fills as many as the caller has.
 */
struct soda_stats {
	uint64_t faults;	   /* faults on missing pages that this process took */
	uint64_t faults_joined;	   /* of these, found another thread fetching the chunk */
	uint64_t zero_fills;	   /* chunks of zeros, for first touches: no network traffic */
	uint64_t local_refaults;   /* chunks kept by a store while on their way out: no fetch */
	uint64_t wp_faults;	   /* first stores to a clean chunk or page */
	uint64_t fetches;	   /* chunks fetched because of a fault */
	uint64_t prefetched;	   /* chunks fetched ahead */
	uint64_t prefetch_useless; /* of these, dropped before they are known to be used */
	uint64_t bytes_fetched;
	uint64_t bytes_written_back;
	uint64_t evicted_clean; /* chunks */
	uint64_t evicted_dirty; /* chunks */
	uint64_t evict_waits;	/* faults that waited for a write-back */
	uint64_t reconnects;
	uint64_t errors;	 /* faults that ended in an error */
	uint64_t fam_bytes;	 /* allocated now */
	uint64_t buffer_bytes;	 /* the page buffer's limit now */
	uint64_t resident_bytes; /* in the page buffer now, staging included */
	uint64_t resident_peak_bytes;
	uint64_t pinned_bytes;
	uint64_t metadata_bytes; /* the runtime's own tables */
	uint64_t fault_p50_ns;	 /* of fetching faults */
	uint64_t fault_p99_ns;
	uint64_t polled; /* answers awaited by polling */
	uint64_t slept;	 /* answers awaited asleep */
	uint32_t mode;	 /* enum soda_mode in force */
	uint32_t chunk_bytes;
	uint64_t installed;  /* fetched chunks that a DPU agent put into place itself */
	uint64_t stalled_ns; /* how long threads have waited in faults, all together */
	/* Of files in the store of a DPU agent on this machine, which programs have in common: */
	uint64_t store_maps; /* chunks that were mapped from there */
	uint64_t store_asks; /* of them, those that the agent was asked for, ahead of faults too */
	uint64_t store_bytes_mapped; /* data of store_maps; again each time that it is mapped */
	uint64_t store_bytes_asked;  /* data of store_asks */
	uint64_t store_object_bytes; /* of fam_bytes, the objects that are there now */
	/* redundancy, of slabs of objects */
	uint64_t copies_missing;  /* slabs that have fewer copies than they should, now */
	uint64_t copies_expelled; /* copies that were given up: their server was away, had them no
				     more, refused them, or had others than were sealed */
	uint64_t copies_rebuilt;  /* copies that were made anew... */
	uint64_t rebuilt_bytes;	  /* ...and what was copied for them */
	/* Of sealed objects: */
	uint64_t bytes_sealed;	      /* encrypted, to be sent */
	uint64_t bytes_opened;	      /* fetched, and found to be what was sent */
	uint64_t seal_metadata_bytes; /* of metadata_bytes, their blocks' versions and tags */
	uint64_t fault_max_ns;	      /* the longest fetching fault */
	uint64_t copies_moved; /* parts of objects moved by a drain, or to balance the pool */
	/* what bytes_written_back was sent for: dirty blocks, with erasure codes their chunks, once
	   however many copies or pieces there are */
	uint64_t bytes_cleaned;
};

/*
 * Start the runtime with the given configuration; NULL: the environment's.
 * Optional: the first allocation does it.
 * Returns 0; -EALREADY after an earlier soda_init() or allocation; -EINVAL for
 * a value that is out of range (soda_last_error() names it, and for a buffer
 * below its minimum the number needed); -ETIMEDOUT, -ECONNREFUSED,
 * -EHOSTUNREACH and the like when the server does not answer; -EPERM, -ENOSYS
 * when the kernel refuses userfaultfd; -ENOTSUP for a transport that is not built.
 */
SODA_API int soda_init(const struct soda_config *cfg);

/*
 * An anonymous object in fabric memory, zero-filled and chunk-aligned.
 * flags: 0, or of SODA_SEALED, as all objects where SODA_SEAL is set, and one of
 * SODA_NO_REDUNDANCY, SODA_MIRROR(2), SODA_EC(k, m) and SODA_STRIPE(k), instead of what
 * SODA_REDUNDANCY says.
 * Returns its address; NULL with errno EINVAL (bytes is 0, unknown flags, a chunk too small for k),
 * ENOSPC (over the server's capacity or quota, or redundancy that the servers which can be reached,
 * or their failure domains, cannot give), ENOMEM (no address space; sealed: the page buffer is too
 * small), ENOTSUP (sealed: no OpenSSL; redundancy: with too few servers, or without ISA-L) or an
 * error of soda_init().  The caller owns it until soda_free().
 */
SODA_API void *soda_alloc(size_t bytes, unsigned flags);

/*
 * A file of the server's export directory as an object.
 * name: relative to that directory.  bytes: 0 for the file's own size; with
 * SODA_WRITABLE a larger value extends the file.  bytes_p (may be NULL)
 * receives the object's size.  With SODA_SEALED, not for SODA_PRIVATE, a sealed file: its content
 * is encrypted where it lies, too, with the key of SODA_SEAL_KEY_FILE.
 * errno besides those of soda_alloc(): EBADMSG (a sealed file that was changed), ENOENT, EACCES
 * (leaves the export directory, or no permission), EBUSY (open for writing elsewhere, or open
 * elsewhere and wanted for writing), EFBIG (bytes over the file's size
 * without SODA_WRITABLE, or another size than a sealed file's), EINVAL (empty file, flags not as
 * above, a sealed file without SODA_SEALED, another one with it, or no key).
 */
SODA_API void *soda_alloc_file(const char *name, size_t bytes, unsigned flags, size_t *bytes_p);

/*
 * Publish an anonymous object, from its start, under a name: from then on nobody stores to it (a
 * store is SIGSEGV, as with READ_ONLY files), and other programs of the same user that have the
 * same memory server open it by that name.  What was stored before is written back first; a store
 * or a SODA_DISCARD of another thread during the call may or may not be included.
 *
 * name: 1 to 255 printable characters of ASCII without spaces; each user has names of its own.
 * The object and its name last as long as any program has it open, its publisher or another one:
 * the publisher may free it, or end.  A server that starts anew has no published objects.
 *
 * 0; -EINVAL: not the start of a live object (a part of one, a block of the heap), a file's
 * object, or no such name; -EALREADY: it is published; -EEXIST: the user has an object of that
 * name; -EBUSY: a part of it is in the agent's static cache; errors of soda_sync(): not all of it
 * could be written back; -ENOMEM.  After these nothing is published, and stores are allowed again.
 * Where soda_last_error() says that the server has not said whether the object is published
 * (-ETIMEDOUT, -EIO), stores stay forbidden: call again with the same name.
 */
SODA_API int soda_publish(void *obj, const char *name);

/*
 * An object that a program of the same user has published, READ_ONLY; bytes_p as above.  The
 * caller owns it until soda_free(), which ends this use of it.
 * errno besides those of soda_alloc(): ENOENT (no object of the user's has that name), ENOTSUP
 * (wanted over shm or verbs, but its publisher is connected over tcp), EINVAL (no such name).
 */
SODA_API void *soda_open_published(const char *name, size_t *bytes_p);

/*
 * A heap in fabric memory, for what is too small or too numerous to be objects:
 * the functions do as their namesakes of the C library, and the blocks are freed
 * by soda_free() (never by free()).  Small blocks share chunks.  A block may be
 * given to soda_sync(), soda_advise() and soda_prefetch(), which take whole chunks.
 *
 * On failure NULL with errno ENOMEM, an error of soda_alloc(), or ENOTSUP in a
 * library that was built without jemalloc; soda_aligned_alloc() with an
 * alignment that is no power of two, soda_realloc() of what is not in the heap:
 * EINVAL.  soda_realloc(p, 0) frees p and returns NULL.  The memory of a heap that
 * shrinks is discarded a little later, on the server, too; its reservation stays.
 */
SODA_API void *soda_malloc(size_t bytes);
SODA_API void *soda_calloc(size_t n, size_t bytes);
SODA_API void *soda_realloc(void *p, size_t bytes);
SODA_API void *soda_aligned_alloc(size_t alignment, size_t bytes);

/*
 * Free an object, or a block of the heap; a WRITABLE file is written back first.
 * NULL is a no-op.  A pointer that is neither: one line, then abort().  (Inside the
 * heap a pointer that is no live block is undefined, as with free().)
 * No other thread may be using it.
 */
SODA_API void soda_free(void *p);

/*
 * The same with -EINVAL instead of abort(), and the error of a failed
 * write-back of a WRITABLE file, which leaves the object in place; after
 * soda_advise(SODA_ABANDON) it goes, and what was not written back is lost.
 */
SODA_API int soda_try_free(void *p);

/* Name an object for rules, statistics and reports; at most 255 bytes, copied. -EINVAL. */
SODA_API int soda_set_name(void *obj, const char *name);

/*
 * Wait until the dirty data of the range is on the server, and for WRITABLE
 * files in the file on stable storage.  (NULL, 0): everything.
 * -EINVAL: outside every object.  -EIO, -ETIMEDOUT, -ENOTCONN, -ENOSPC: not
 * written; the data stays dirty and resident.
 * Stores made during the call may or may not be included.
 */
SODA_API int soda_sync(void *addr, size_t bytes);

/*
 * Advise on a range of one object; enum soda_advice.  Works on whole chunks:
 * DISCARD on those inside the range, the others on those that it touches.
 * -EINVAL: outside every object, unknown advice, or ABANDON of an object that
 * is not a WRITABLE file; -ENOMEM: PIN beyond the buffer; -EIO, -ETIMEDOUT,
 * -ENOTCONN: PIN of a page that cannot be had, nothing is pinned; -ENOTSUP: needs
 * a DPU agent, or STATIC_CACHE of an object with redundancy; -EACCES: DISCARD of
 * a read-only object or of a range in the static cache; -ENOSPC: STATIC_CACHE
 * over the agent's capacity, nothing is loaded; -EBUSY: a static range lies
 * across the edge; COLD and STATIC_CACHE: the errors of soda_sync() where dirty
 * data could not be written back.
 */
SODA_API int soda_advise(void *addr, size_t bytes, int advice);

/*
 * Start fetching the chunks of the range.  Asynchronous: never waits for the
 * network; what is over the budget is left out.  0, -EINVAL outside every object.
 */
SODA_API int soda_prefetch(const void *addr, size_t bytes);

/*
 * The same for n ranges, of any objects, with one doorbell: many short ones cost a
 * fraction of as many calls.  -EINVAL, and nothing is fetched, if one is outside every object.
 */
SODA_API int soda_prefetchv(const struct iovec *ranges, int n);

/*
 * Make a range of one object resident, and keep it so until soda_unhold() of the same range: then
 * what takes no faults can read it, a system call or another process (process_vm_readv(2)).  Each
 * hold needs its own soda_unhold(); what is held in the meantime by others stays.  For the length
 * of one such use: all together may hold a twentieth of the page buffer, at least two chunks, so
 * large ranges are held and used a part at a time.  Stores of the program's go on as usual.
 *
 * 0; 1: it is resident now, and may go any time, because the node's store has it (a reader that
 * finds it gone asks again), and there is nothing to undo; -EINVAL: not inside one object (bytes 0:
 * nothing is held, and this is a question whether addr is in one); -ENOMEM: more than may be held,
 * or no memory: nothing is held; -EIO, -ETIMEDOUT, -ENOTCONN: a page cannot be had; -EFAULT: the
 * program has closed it with mprotect().
 */
SODA_API int soda_hold(const void *addr, size_t bytes);
/* Undo one soda_hold() of the same range; also of an object that was freed. 0; -EINVAL. */
SODA_API int soda_unhold(const void *addr, size_t bytes);

/*
 * Whether an object that is sealed (SODA_SEALED, SODA_SEAL) lies in the range, which may be any
 * memory of the program: what hands content of objects to others asks this first.  0: none; 1.
 */
SODA_API int soda_is_sealed(const void *addr, size_t bytes);

/* Fill the first out_bytes bytes of *out. -EINVAL: out is NULL. Not an atomic snapshot. */
SODA_API int soda_get_stats(struct soda_stats *out, size_t out_bytes);

/* The calling thread's last failure as a sentence, or "". Valid until its next call of SODA. */
SODA_API const char *soda_last_error(void);

/* "MAJOR.MINOR.PATCH" */
SODA_API const char *soda_version(void);

/*
 * Write WRITABLE files back, drop the anonymous objects, end the runtime.
 * Also at exit.  The objects' addresses are SIGSEGV from then on.  Returns the
 * error of a failed write-back; the runtime is ended all the same.  It does
 * not start again in this process.
 */
SODA_API int soda_shutdown(void);

#ifdef __cplusplus
}
#endif
#endif
