/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own_fd.h"
#include "base/page_trace.h"
#include "host_agent/core/thread.h"
#include "host_agent/object/region.h"

/* soda_trace_start sets it; then only the mapped file changes. */
static struct trace {
	const struct soda_page_ops *below; /* to which each call is passed on */
	struct soda_page_trace_head *head;
	uint64_t *records;
	uint64_t bytes; /* of the mapping */
	int fd;		/* -1: no trace */
} trace = { .fd = -1 };

static void note(enum soda_page_trace_kind kind, const struct soda_region *r, uint32_t id)
{
	struct soda_thread *t = soda_thread_self();
	uint64_t at = __atomic_fetch_add(&trace.head->asked, 1, __ATOMIC_RELAXED);

	if (at < trace.head->limit)
		trace.records[at] =
			soda_page_trace_record(kind, t ? t->index : 0, r->id, id - r->first);
}

static int traced_copy(void *dst, const void *src, size_t bytes, bool protect)
{
	const struct soda_region *r = soda_region_of(soda_chunk_of(dst));
	uint32_t first = soda_chunk_of(dst), last = soda_chunk_of((char *)dst + bytes - 1);
	bool store = r && !protect && !(r->flags & SODA_READ_ONLY);

	for (uint32_t id = first; r && id <= last; id++) {
		bool backed = soda_chunk_load(&soda_agent.table[id]) & SODA_CW_BACKED;

		note(backed ? SODA_PAGE_TRACE_FETCH : SODA_PAGE_TRACE_ZERO, r, id);
		if (store)
			note(SODA_PAGE_TRACE_STORE, r, id);
	}
	return trace.below->copy(dst, src, bytes, protect);
}

static int traced_protect(void *addr, size_t bytes, bool on)
{
	const struct soda_region *r = on ? NULL : soda_region_of(soda_chunk_of(addr));

	if (r)
		note(SODA_PAGE_TRACE_STORE, r, soda_chunk_of(addr));
	return trace.below->protect(addr, bytes, on);
}

static int map_file(uint64_t bytes)
{
	/* Reserved now: a store to the mapping on a disk that is full later would be SIGBUS. */
	int err = posix_fallocate(trace.fd, 0, (off_t)bytes);
	void *p;

	if (err)
		return -err;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, trace.fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	madvise(p, bytes, MADV_DONTFORK);
	trace.head = p;
	trace.records = (uint64_t *)(trace.head + 1);
	trace.bytes = bytes;
	return 0;
}

int soda_trace_start(const char *path, uint64_t bytes, const struct soda_page_ops **ops_p,
		     struct soda_why *why)
{
	static struct soda_page_ops traced;
	int ret;

	trace.fd = soda_fd_own(open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
	ret = trace.fd < 0 ? -errno : map_file(bytes);
	if (ret) {
		snprintf(why->text, sizeof(why->text), "trace (SODA_TRACE): cannot make %.120s: %s",
			 path, soda_strerror(ret));
		if (trace.fd >= 0)
			unlink(path);
		soda_trace_forget();
		return ret;
	}
	*trace.head = (struct soda_page_trace_head){
		.magic = SODA_PAGE_TRACE_MAGIC,
		.version = SODA_PAGE_TRACE_VERSION,
		.head_bytes = sizeof(*trace.head),
		.chunk_bytes = (uint32_t)soda_chunk_bytes(),
		.pid = (uint32_t)getpid(),
		.limit = (bytes - sizeof(*trace.head)) / sizeof(uint64_t),
	};
	trace.below = *ops_p;
	traced = *trace.below;
	traced.copy = traced_copy;
	traced.protect = traced_protect;
	*ops_p = &traced;
	return 0;
}

void soda_trace_stop(void)
{
	uint64_t asked, n;

	if (trace.fd < 0)
		return;
	asked = __atomic_load_n(&trace.head->asked, __ATOMIC_RELAXED);
	n = asked < trace.head->limit ? asked : trace.head->limit;
	/* Other threads may still write records: from now on into memory that is not the file's. */
	if (mmap(trace.head, trace.bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		return;
	if (ftruncate(trace.fd, (off_t)(sizeof(*trace.head) + n * sizeof(uint64_t))))
		soda_log_warning("the trace keeps zeros at its end: %s", soda_strerror(errno));
	if (n < asked)
		soda_log_warning("the trace was full: %llu of %llu records are in it; "
				 "SODA_TRACE_LIMIT makes room for more",
				 (unsigned long long)n, (unsigned long long)asked);
	soda_trace_forget();
}

void soda_trace_forget(void)
{
	soda_fd_close(trace.fd);
	trace.fd = -1;
}
