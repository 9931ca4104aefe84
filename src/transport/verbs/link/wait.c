/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for something to happen on a link, and what a completion's error means. */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/log.h"
#include "transport/api/rawsys.h"
#include "transport/verbs/link/link.h"

int soda_verbs_uncancel(void)
{
	int before = PTHREAD_CANCEL_ENABLE;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

void soda_verbs_recancel(int before)
{
	pthread_setcancelstate(before, NULL);
}

void soda_verbs_link_drain(struct soda_verbs_link *l)
{
	struct ibv_cq *cq;
	void *context;

	while (l->armed && ibv_get_cq_event(l->comp, &cq, &context) == 0) {
		l->comp_events++;
		l->armed = false;
	}
}

void soda_verbs_link_poke(struct soda_verbs_link *l, bool on)
{
	uint64_t count = 1;

	syscall(on ? SYS_write : SYS_read, l->poke_fd, &count, sizeof(count));
}

int soda_verbs_link_arm(struct soda_verbs_link *l)
{
	int ret;

	if (l->armed)
		soda_verbs_link_drain(l);
	if (l->armed)
		return 0;
	ret = ibv_req_notify_cq(l->cq, 0);
	l->armed = ret == 0;
	return -ret;
}

bool soda_verbs_link_ended(const struct soda_verbs_link *l)
{
	struct pollfd p = { .fd = l->end_fd, .events = POLLIN };

	return raw_poll(&p, 1, 0) > 0;
}

int soda_verbs_link_sleep(struct soda_verbs_link *l, int64_t timeout_ns)
{
	struct pollfd p[] = {
		{ .fd = l->comp->fd, .events = POLLIN },
		{ .fd = l->end_fd, .events = POLLIN },
	};

	if (raw_poll(p, 2, timeout_ns) <= 0)
		return 0;
	if (p[0].revents)
		soda_verbs_link_drain(l);
	return p[1].revents ? -ECONNRESET : 0;
}

int soda_verbs_link_error(enum ibv_wc_status status, const char *peer)
{
	switch (status) {
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return -ECONNRESET; /* the peer has gone, or the connection was ended here */
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_OP_ERR:
		soda_log_error("%s does not let us reach its memory: %s; the connection has failed",
			       peer, ibv_wc_status_str(status));
		return -EACCES;
	default:
		soda_log_error("%s: the RDMA connection has failed: %s", peer,
			       ibv_wc_status_str(status));
		return -EIO;
	}
}
