/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/core/link.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/own_fd.h"
#include "host_agent/core/agent.h"

int soda_link_start(struct soda_link *link, const char *address, int connect_ms,
		    const struct soda_server_hooks *hooks)
{
	struct soda_writeback *kept = link->writeback;

	*link = (struct soda_link){ .index = (uint32_t)(link - soda_agent.links),
				    .event_fd = -1,
				    .writeback = kept };
	soda_server_init(&link->server, address, connect_ms, hooks, link);
	link->event_fd = soda_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	return link->event_fd < 0 ? -errno : 0;
}

void soda_link_end(struct soda_link *link)
{
	soda_fd_close(link->event_fd);
	link->event_fd = -1;
}

void soda_link_wake_keeper(struct soda_link *link)
{
	uint64_t one = 1;
	int saved = errno;
	long ignored = syscall(SYS_write, link->event_fd, &one, sizeof(one));

	(void)ignored;
	errno = saved;
}

void soda_link_silent(struct soda_link *link)
{
	soda_server_report(&link->server, -ETIMEDOUT);
}

void soda_link_want_collector(struct soda_link *link)
{
	if (!atomic_exchange(&link->want_collector, 1))
		soda_link_wake_keeper(link);
}

void soda_link_want_keyed(struct soda_link *link)
{
	atomic_store(&link->keyed, true);
	atomic_store(&link->want_keyed, 1);
	soda_link_wake_keeper(link);
}

void soda_link_await_keyed(struct soda_link *link)
{
	uint64_t now = soda_now_ns(),
		 deadline = now + (uint64_t)link->server.connect_ms * SODA_MS_NS;

	while (atomic_load(&link->want_keyed) && now < deadline &&
	       !atomic_load(&link->server.stopping)) {
		soda_futex_wait(&link->want_keyed, 1, (int64_t)(deadline - now));
		now = soda_now_ns();
	}
}

void soda_link_took(struct soda_link *link, uint64_t bytes)
{
	uint64_t had = atomic_load(&link->free_bytes);

	while (!atomic_compare_exchange_weak(&link->free_bytes, &had,
					     had > bytes ? had - bytes : 0))
		;
}

void soda_link_gave(struct soda_link *link, uint64_t bytes)
{
	atomic_fetch_add(&link->free_bytes, bytes);
}
