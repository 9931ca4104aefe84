/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "host_agent/core/agent.h"
#include "host_agent/core/thread.h"

enum { TROUBLES = 8 };

struct soda_link soda_link = { .event_fd = -1, .lock = SODA_LOCK_INIT(SODA_RANK_SESSION) };

/* The texts of the last errors, in turn: a reader has time until its own is written over. */
static char troubles[TROUBLES][320];
static _Atomic uint32_t troubles_begun;
static _Atomic(const char *) last_text; /* NULL: none yet */

int soda_link_start(const char *address)
{
	memset(&soda_link, 0, sizeof(soda_link));
	atomic_store(&last_text, NULL);
	snprintf(soda_link.address, sizeof(soda_link.address), "%s", address);
	soda_lock_init(&soda_link.lock, SODA_RANK_SESSION);
	soda_link.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return soda_link.event_fd < 0 ? -errno : 0;
}

void soda_link_end(void)
{
	if (soda_link.event_fd >= 0)
		close(soda_link.event_fd);
	soda_link.event_fd = -1;
}

void soda_link_note_trouble(int err, const char *text)
{
	char *to = troubles[atomic_fetch_add(&troubles_begun, 1) % TROUBLES];

	snprintf(to, sizeof(troubles[0]), "%s: %s", soda_link.address,
		 text && *text ? text : soda_strerror(err));
	atomic_store(&last_text, to);
}

const char *soda_link_trouble(void)
{
	const char *text = atomic_load(&last_text);

	return text ? text : soda_link.address;
}

const char *soda_link_peer(void)
{
	return soda_link.address;
}

void soda_link_wake_keeper(void)
{
	uint64_t one = 1;
	int saved = errno;
	long ignored = syscall(SYS_write, soda_link.event_fd, &one, sizeof(one));

	(void)ignored;
	errno = saved;
}

void soda_link_report(int err)
{
	/* seq_cst, and before `up`: a reconnection looks at it after it has set that */
	atomic_store(&soda_link.failed, true);
	if (atomic_exchange(&soda_link.up, 0))
		soda_link_note_trouble(err, NULL);
	soda_link_wake_keeper();
}

/* In pieces, each of which says whether the process ran: at most a piece's time is lost. */
int soda_link_wait(uint64_t deadline_ns)
{
	const uint64_t look_ns = SODA_COLLECT_LOOK_MS * SODA_MS_NS;

	while (!soda_link_up()) {
		uint64_t now = soda_now_ns(), left;

		if (now >= deadline_ns || atomic_load(&soda_link.stop))
			return -ETIMEDOUT;
		left = deadline_ns - now < look_ns ? deadline_ns - now : look_ns;
		soda_futex_wait(&soda_link.up, 0, (int64_t)left);
		deadline_ns +=
			soda_thread_stood_still(soda_thread_self(), left, soda_now_ns() - now);
	}
	return 0;
}

uint32_t soda_link_restarts(void)
{
	return atomic_load(&soda_link.restarts);
}

void soda_link_want_collector(void)
{
	if (!atomic_exchange(&soda_link.want_collector, 1))
		soda_link_wake_keeper();
}

void soda_link_want_keyed(void)
{
	atomic_store(&soda_link.keyed, true);
	atomic_store(&soda_link.want_keyed, 1);
	soda_link_wake_keeper();
}

void soda_link_await_keyed(void)
{
	uint64_t now = soda_now_ns(),
		 deadline = now + soda_agent.settings.connect_timeout_ms * 1000000ull;

	while (atomic_load(&soda_link.want_keyed) && now < deadline &&
	       !atomic_load(&soda_link.stop)) {
		soda_futex_wait(&soda_link.want_keyed, 1, (int64_t)(deadline - now));
		now = soda_now_ns();
	}
}

struct soda_conn *soda_link_control_acquire(void)
{
	soda_lock_acquire(&soda_link.lock);
	/* not while a reconnection is half done */
	return soda_link_up() ? soda_link.control : NULL;
}

void soda_link_control_release(void)
{
	soda_lock_release(&soda_link.lock);
}

uint32_t soda_link_breaks(void)
{
	return atomic_load(&soda_link.breaks);
}

void soda_link_await_break(uint32_t breaks)
{
	while (atomic_load(&soda_link.breaks) == breaks && !atomic_load(&soda_link.stop))
		soda_futex_wait(&soda_link.breaks, breaks, SODA_KEEPER_TICK_MS * SODA_MS_NS);
}
