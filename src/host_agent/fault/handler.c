/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/fault/fault.h"

#include <errno.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "base/tracepoint.h"
#include "base/wait.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/evict.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/stuck.h"
#include "host_agent/pages/install.h"
#include "host_agent/pages/mapping.h"
#include "host_agent/pages/protect.h"
#include "host_agent/pages/shared.h"

enum { MESSAGES = 16, PENDING_MAX = SODA_THREADS_MAX, FAILED_MAX = 1024, STUCK_NS = 2000000 };

/* A thread that sleeps in the kernel until its fault is served. */
struct pending {
	struct soda_fault f;
	struct soda_thread *t;
	char *page;
	uint64_t since_ns;
	uint64_t asked_ns; /* since when the chunk has been FETCHING; 0: it is not */
	bool joined;	   /* the last attempt found that another thread is changing the chunk */
};

/* A page that was made to fail lately.  Where the chunk is not LOST, a later fetch may succeed. */
struct failed {
	char *page;
	uint64_t at_ns;
	uint32_t id; /* of the chunk */
};

static struct {
	pthread_t thread;
	int stop_fd;
	_Atomic bool stop;
	/* used by that thread only, and so below */
	struct pending *pending;
	uint32_t pending_n;
	struct failed failed[FAILED_MAX];
	uint32_t failed_n;
	/* odd while it has faults in hand, of which all may not be counted yet; others read it */
	_Atomic uint32_t turn;
} handler = { .stop_fd = -1 };

/* A release pairs with soda_handler_await(); the word is the thread's own, so no other adds. */
static void begin_turn(void)
{
	uint32_t turn = atomic_load_explicit(&handler.turn, memory_order_relaxed);

	atomic_store_explicit(&handler.turn, (turn + 1) | 1, memory_order_release);
}

static void end_turn(void)
{
	uint32_t turn = atomic_load_explicit(&handler.turn, memory_order_relaxed);

	atomic_store_explicit(&handler.turn, (turn + 1) & ~1u, memory_order_release);
}

static void wake(char *page)
{
	soda_agent.page_ops->wake(page, SODA_WIRE_PAGE);
}

/* Whether the page is mapped; the look itself raises no fault. */
static bool is_there(char *page)
{
	unsigned char there = 0;

	return syscall(SYS_mincore, page, SODA_WIRE_PAGE, &there) == 0 && there & 1;
}

/* Not resident, and to be had. */
static bool is_elsewhere(enum soda_chunk_state s)
{
	return s == SODA_CHUNK_REMOTE || s == SODA_CHUNK_ZERO || s == SODA_CHUNK_SHARED;
}

/* Two threads may wait for one page. */
static bool has_failed(const char *page)
{
	for (uint32_t i = 0; i < handler.failed_n; i++)
		if (handler.failed[i].page == page)
			return true;
	return false;
}

/*
 * Whether the instruction can go on with the page that is there.  If the chunk, in state s, is not
 * resident, the page is left over, because the kernel refused to drop it: a load sees what the
 * server had, but the page is write-protected, and a store would fault again and again.
 */
static bool serves(const struct pending *p, enum soda_chunk_state s)
{
	return !p->f.store || s == SODA_CHUNK_CLEAN || s == SODA_CHUNK_DIRTY ||
	       s == SODA_CHUNK_BUSY;
}

/*
 * fail_page() for a chunk that was in state s.  If s is a state without pages, the caller has made
 * the chunk FETCHING, so that no other thread brings pages.  soda_mapping_fail() replaces the page,
 * and another thread's page would not get there any more: so not while another thread changes the
 * chunk (except for a stopped agent, soda_stuck_has()), and not if such a thread has ended since
 * the last attempt: the next attempt then fetches.  Nobody brings a page back that the program has
 * taken away.  false: not now.
 */
static bool fail_page_of(const struct pending *p, enum soda_chunk_state s)
{
	bool ours = is_elsewhere(s) || s == SODA_CHUNK_LOST;
	bool taken_away = p->f.error == -ENODATA; /* fault.c */

	if (!soda_agent.page_ops->poison(p->page, SODA_WIRE_PAGE))
		return true;
	if (is_there(p->page) ? serves(p, s) : has_failed(p->page))
		return true;
	if (!taken_away &&
	    (ours ? p->joined : s != SODA_CHUNK_FETCHING || !soda_stuck_has(p->f.id)))
		return false;
	soda_mapping_fail(p->page, soda_region_prot(p->f.region));
	return true;
}

/*
 * Make every touch of the page raise SIGBUS, unless another thread has brought the page meanwhile.
 * A chunk that is not resident is FETCHING for as long as that takes, so that no DISCARD makes it
 * zeros meanwhile.  false: not possible now.
 */
static bool fail_page(const struct pending *p, bool lost)
{
	struct soda_chunk *c = &soda_agent.table[p->f.id];
	uint32_t w = soda_chunk_load(c);
	enum soda_chunk_state s = soda_chunk_state(w);
	bool done;

	if (lost && s != SODA_CHUNK_LOST)
		return false;
	if (!is_elsewhere(s) && s != SODA_CHUNK_LOST)
		return fail_page_of(p, s);
	if (!soda_chunk_begin(c, &w, SODA_CHUNK_FETCHING))
		return false;
	atomic_store_explicit(&c->channel, SODA_CHANNEL_NONE, memory_order_relaxed);
	done = fail_page_of(p, s);
	soda_chunk_settle(c, s, 0, 0, 0);
	return done;
}

/* Make a failed page a missing one again, if the chunk is not resident. false: not now. */
static bool revive(const struct failed *f)
{
	struct soda_chunk *c = &soda_agent.table[f->id];
	uint32_t w = soda_chunk_load(c);
	enum soda_chunk_state s = soda_chunk_state(w);
	struct soda_region *r = soda_region_of(f->id);
	int ret;

	if (s == SODA_CHUNK_FETCHING || s == SODA_CHUNK_BUSY)
		return false;
	if (!is_elsewhere(s))
		return true; /* the thread that has made it resident has put a page there */
	if (!r || !soda_chunk_begin(c, &w, SODA_CHUNK_FETCHING))
		return false; /* a FETCHING chunk gets no page that soda_mapping_clear would drop */
	atomic_store_explicit(&c->channel, SODA_CHANNEL_NONE, memory_order_relaxed);
	ret = r->shared ? soda_shared_revive(r, f->page)
			: soda_mapping_clear(f->page, SODA_WIRE_PAGE, soda_region_prot(r));
	soda_chunk_settle(c, s, 0, 0, 0);
	if (ret)
		soda_log_error("a page that could not be had once fails for good: %s",
			       soda_strerror(ret));
	return true;
}

/* The threads that waited for these pages have had SIGBUS: let the next touch fetch again. */
static void revive_failed(void)
{
	uint64_t now = handler.failed_n ? soda_now_ns() : 0;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < handler.failed_n; i++) {
		struct failed f = handler.failed[i];

		if (now - f.at_ns < SODA_FAILED_PAGE_MS * SODA_MS_NS || !revive(&f))
			handler.failed[kept++] = f;
	}
	handler.failed_n = kept;
}

/*
 * Give the thread SIGBUS instead of a page; false: it has to wait.  lost: the content is lost, and
 * the chunk becomes LOST.  Else the chunk stays as it is, and the page fails for a moment only.
 *
 * Once the runtime has ended its addresses are unmapped, so that no page gets there.  The fault's
 * thread had its page from an earlier fault, and has gone on, or, woken, gets SIGSEGV.
 */
static bool give_up(struct pending *p, int err, bool lost)
{
	struct soda_chunk *c = &soda_agent.table[p->f.id];
	uint32_t w = soda_chunk_load(c);

	if (atomic_load(&soda_agent.life) == SODA_LIFE_ENDED) {
		wake(p->page);
		return true;
	}
	if (!lost && handler.failed_n == FAILED_MAX)
		return false;
	while (lost && soda_chunk_state(w) == SODA_CHUNK_REMOTE &&
	       !soda_chunk_swap(c, &w, (w & ~SODA_CW_STATE) | SODA_CHUNK_LOST))
		;
	if (!lost)
		soda_mapping_mark(); /* before: who discards the chunk then takes the mark away */
	if (!fail_page(p, lost))
		return false;
	soda_fault_fail(p->t, &p->f, err);
	SODA_TP_FAULT_DONE(p->f.id, err, soda_now_ns() - p->since_ns);
	if (handler.failed_n < FAILED_MAX && !has_failed(p->page))
		handler.failed[handler.failed_n++] =
			(struct failed){ p->page, soda_now_ns(), p->f.id };
	wake(p->page);
	return true;
}

/*
 * The thread may have gone on before, and may have freed the object: then nobody remembers its
 * chunk.  Freeing makes the chunk NONE first, and looks into the rings then, so that one of the two
 * finds it there.
 */
static void remember(const struct pending *p)
{
	soda_thread_remember(p->t, p->f.id, soda_fault_keep());
	atomic_thread_fence(memory_order_seq_cst); /* soda_retire_range(), soda_threads_forget() */
	if (soda_chunk_state(soda_chunk_load(&soda_agent.table[p->f.id])) == SODA_CHUNK_NONE)
		soda_threads_forget(p->f.id, 1);
}

static bool served(struct pending *p)
{
	uint64_t ns = soda_now_ns() - p->since_ns;

	remember(p);
	soda_thread_time(p->t, ns);
	soda_count(p->t, SODA_CNT_STALLED_NS, ns);
	SODA_TP_FAULT_DONE(p->f.id, 0, ns);
	return true;
}

/*
 * Whether the fault's time is over.  If the chunk is FETCHING for that long, the connection on
 * which it was asked for counts as failed, and the chunk goes back to REMOTE; a chunk that an agent
 * is installing cannot, so a FETCHING chunk gets the same time once more.
 */
static bool too_late(struct pending *p)
{
	uint64_t patience = soda_agent.settings.fault_timeout_ms * 1000000ull, now = soda_now_ns();
	bool under_way = soda_chunk_state(soda_chunk_load(&soda_agent.table[p->f.id])) ==
			 SODA_CHUNK_FETCHING;

	if (!under_way) {
		p->asked_ns = 0;
	} else if (!p->asked_ns) {
		p->asked_ns = now;
	} else if (now - p->asked_ns > patience) {
		soda_fetch_abandon(p->f.id);
		p->asked_ns = now;
	}
	return soda_agent.settings.on_error != SODA_ON_ERROR_WAIT &&
	       now - p->since_ns > (under_way ? 2 * patience : patience);
}

/* The process stood still for so long: that does not count as time of the pending faults. */
static void postpone(uint64_t ns)
{
	for (uint32_t i = 0; ns && i < handler.pending_n; i++) {
		struct pending *p = &handler.pending[i];

		p->since_ns += ns;
		p->asked_ns += p->asked_ns ? ns : 0;
	}
}

/*
 * Whether a page of the chunk, which is not resident, has another mapping, because it could not be
 * had and the kernel has no UFFDIO_POISON.  Until revive_failed() undoes that no pages can be put
 * into the chunk: they would end there, with some of the chunk open for stores.
 */
static bool has_failing_page(uint32_t id)
{
	if (!soda_mapping_any_failing() ||
	    !is_elsewhere(soda_chunk_state(soda_chunk_load(&soda_agent.table[id]))))
		return false;
	for (uint32_t i = 0; i < handler.failed_n; i++)
		if (handler.failed[i].id == id)
			return true;
	return false;
}

/* The server has refused the chunk, which is FETCHING for this fault. */
static bool refuse(struct pending *p, int err)
{
	soda_install_cancel(p->f.id);
	return give_up(p, err, false) || (too_late(p) && give_up(p, -ETIMEDOUT, false));
}

/*
 * Serve the fault as far as possible now; true: it has ended.  The thread may have gone on before:
 * installing the page wakes it, and it may even have freed the object.
 */
static bool attempt(struct pending *p)
{
	int ret;

	if (soda_region_of(p->f.id) != p->f.region) {
		wake(p->page);
		return true;
	}
	p->joined = false;
	if (has_failing_page(p->f.id))
		return too_late(p) && give_up(p, -ETIMEDOUT, false);
	switch (soda_fault_step(p->t, &p->f)) {
	case SODA_STEP_DONE:
		wake(p->page);
		return served(p);
	case SODA_STEP_FETCH:
		/* a faulting thread that fetches itself asks once, too */
		ret = soda_fetch_refused(p->f.id, p->since_ns);
		if (ret)
			return refuse(p, ret);
		p->asked_ns = 0; /* it was that of an earlier request */
		soda_fault_run_ahead(p->t, &p->f);
		ret = soda_fetch_post(p->t, p->f.region, p->f.id,
				      p->f.store ? (int)p->f.block : -1);
		if (ret > 0)
			return served(p);
		if (ret && ret != -EAGAIN && ret != -ENOTCONN)
			soda_log_debug("fetch not posted: %s", soda_strerror(ret));
		break;
	case SODA_STEP_ROOM:
		if (soda_now_ns() - p->since_ns > STUCK_NS)
			soda_evict_unstick(p->t);
		break;
	case SODA_STEP_JOIN:
		p->joined = true;
		break;
	case SODA_STEP_DOWN:
		break;
	case SODA_STEP_LOST:
		/* in the node's store a chunk is never LOST: another program may have it still */
		return give_up(p, -EIO, !p->f.region->shared);
	case SODA_STEP_FAILED:
		return give_up(p, p->f.error, false);
	case SODA_STEP_FOREIGN: /* freed meanwhile: the thread, woken, gets SIGSEGV */
		wake(p->page);
		return true;
	}
	return too_late(p) && give_up(p, -ETIMEDOUT, false);
}

static void retry_pending(void)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < handler.pending_n; i++)
		if (!attempt(&handler.pending[i]))
			handler.pending[kept++] = handler.pending[i];
	handler.pending_n = kept;
}

/* closings: soda_protect_closings() before it was read. */
static void accept_fault(const struct uffd_msg *m, uint64_t closings)
{
	char *addr = (char *)(uintptr_t)m->arg.pagefault.address;
	struct pending p = {
		.page = (char *)((uintptr_t)addr & ~(uintptr_t)(SODA_WIRE_PAGE - 1)),
		.since_ns = soda_now_ns(),
	};
	bool store = m->arg.pagefault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP);

	p.t = soda_agent.uffd.thread_id ? soda_thread_of((pid_t)m->arg.pagefault.feat.ptid)
					: soda_thread_self();
	if (!p.t)
		p.t = soda_thread_self();
	if (!soda_fault_describe(&p.f, addr, store)) {
		/* the object was freed meanwhile: the thread, woken, gets SIGSEGV */
		wake(p.page);
		return;
	}
	p.f.closings = closings;
	if (!attempt(&p))
		handler.pending[handler.pending_n++] = p;
}

/* false: there were none to read, or there is no room for more. */
static bool read_faults(void)
{
	struct uffd_msg m[MESSAGES];
	uint64_t closings = soda_protect_closings();
	ssize_t n = handler.pending_n + MESSAGES <= PENDING_MAX
			    ? read(soda_agent.uffd.fd, m, sizeof(m))
			    : -1;

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(m[0]); i++)
		if (m[i].event == UFFD_EVENT_PAGEFAULT)
			accept_fault(&m[i], closings);
	return n > 0;
}

/* Take in answers that faults may wait for: on channel 0, and of READs ahead on the others. */
static void collect(struct soda_thread *t)
{
	if (soda_fetch_outstanding(0))
		soda_fetch_collect(t, 0, 0, 0);
	if (handler.pending_n)
		soda_fetch_collect_idle(t);
}

static void *run(void *arg)
{
	struct soda_thread *t = soda_thread_internal();

	while (!atomic_load(&handler.stop)) {
		struct pollfd fds[3] = {
			{ .fd = soda_agent.uffd.fd, .events = POLLIN },
			{ .fd = handler.stop_fd, .events = POLLIN },
			{ .fd = soda_fetch_outstanding(0) ? soda_fetch_fd(0) : -1,
			  .events = POLLIN },
		};
		/* Faults that wait for something else than answers on channel 0. */
		bool others = handler.pending_n > soda_fetch_outstanding(0);
		int timeout_ms = others		     ? 1
				 : handler.pending_n ? 50
				 : handler.failed_n  ? SODA_FAILED_PAGE_MS
						     : SODA_HANDLER_IDLE_MS;
		uint64_t from = soda_now_ns();

		poll(fds, 3, timeout_ms);
		postpone(soda_thread_stood_still(t, (uint64_t)timeout_ms * 1000000u,
						 soda_now_ns() - from));
		begin_turn();
		collect(t);
		revive_failed();
		retry_pending();
		while (read_faults()) {
			begin_turn(); /* the next one */
			collect(t);
		}
		end_turn();
	}
	return NULL;
}

void soda_handler_await(void)
{
	uint64_t end = soda_now_ns() + SODA_HANDLER_TURN_MS * SODA_MS_NS;
	uint32_t turn = atomic_load_explicit(&handler.turn, memory_order_acquire);
	int saved = errno;

	if (atomic_load(&soda_agent.life) != SODA_LIFE_RUNNING)
		return;
	while (turn & 1 && atomic_load_explicit(&handler.turn, memory_order_acquire) == turn &&
	       soda_now_ns() < end)
		poll(NULL, 0, 1);
	errno = saved;
}

int soda_handler_start(void)
{
	int ret;

	handler.stop = false;
	handler.pending_n = handler.failed_n = 0;
	handler.pending = calloc(PENDING_MAX, sizeof(*handler.pending));
	handler.stop_fd = soda_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (!handler.pending || handler.stop_fd < 0)
		return -ENOMEM;
	ret = soda_helper_start(&handler.thread, "soda-handler", run, NULL);
	if (ret) {
		soda_fd_close(handler.stop_fd);
		handler.stop_fd = -1;
	}
	return ret;
}

void soda_handler_stop(void)
{
	uint64_t one = 1;

	if (handler.stop_fd < 0)
		return;
	atomic_store(&handler.stop, true);
	if (write(handler.stop_fd, &one, sizeof(one)) == sizeof(one))
		soda_wait_join(handler.thread, "the thread that serves faults to end");
	soda_fd_close(handler.stop_fd);
	handler.stop_fd = -1;
	free(handler.pending);
}
