/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection's verbs objects: set up by librdmacm, waited on, torn down. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/own_fd.h"
#include "transport/api/rawsys.h"
#include "transport/stream/stream.h"
#include "transport/verbs/link/link.h"

enum { REJECTED_BY_PEER = 28, REJECTED_NO_LISTENER = 8 }; /* IB_CM_REJ_... */

void soda_verbs_link_none(struct soda_verbs_link *l)
{
	*l = (struct soda_verbs_link){ .end_fd = -1, .wake_fd = -1, .poke_fd = -1, .fd = -1 };
}

static int nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* Reaching the peer */

static int await_event(struct soda_verbs_link *l, uint64_t deadline_ns,
		       struct rdma_cm_event **event_p)
{
	struct pollfd p = { .fd = l->events->fd, .events = POLLIN };

	for (;;) {
		int ms;

		if (rdma_get_cm_event(l->events, event_p) == 0)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		ms = soda_deadline_ms(deadline_ns);
		if (ms == 0)
			return -ETIMEDOUT;
		if (poll(&p, 1, ms) < 0 && errno != EINTR)
			return -errno;
	}
}

/* The next event must be this one. */
static int await_step(struct soda_verbs_link *l, enum rdma_cm_event_type wanted,
		      uint64_t deadline_ns)
{
	struct rdma_cm_event *event;
	int ret = await_event(l, deadline_ns, &event);

	if (ret < 0)
		return ret;
	if (event->event != wanted)
		ret = event->status < 0 ? event->status : -EHOSTUNREACH;
	rdma_ack_cm_event(event);
	return ret;
}

static int open_id(struct soda_verbs_link *l, struct soda_why *why)
{
	int ret;

	/* before anything of verbs: fork(2) must not move what the device writes to */
	ibv_fork_init();
	l->events = rdma_create_event_channel();
	if (!l->events) {
		ret = errno ? -errno : -ENODEV;
		soda_why_set(why,
			     "no RDMA on this machine (/dev/infiniband/rdma_cm: %s): the module "
			     "rdma_ucm and an RDMA device are needed; use tcp:// without them",
			     soda_strerror(ret));
		return ret;
	}
	ret = nonblocking(l->events->fd);
	if (ret == 0 && rdma_create_id(l->events, &l->id, NULL, RDMA_PS_TCP) < 0)
		ret = -errno;
	if (ret < 0)
		soda_why_set(why, "cannot make an RDMA connection: %s", soda_strerror(ret));
	return ret;
}

void soda_verbs_link_patience(struct rdma_cm_id *id)
{
	uint8_t ack_timeout = SODA_VERBS_ACK_TIMEOUT;

	rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
			sizeof(ack_timeout));
}

void soda_verbs_link_rnr(struct rdma_cm_id *id)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = SODA_VERBS_RNR_TIMER };

	ibv_modify_qp(id->qp, &attr, IBV_QP_MIN_RNR_TIMER);
}

static int resolve_one(struct soda_verbs_link *l, const struct addrinfo *a, uint64_t deadline_ns)
{
	int ms = soda_deadline_ms(deadline_ns), ret;

	if (ms == 0)
		return -ETIMEDOUT;
	if (rdma_resolve_addr(l->id, NULL, a->ai_addr, ms) < 0)
		return -errno;
	ret = await_step(l, RDMA_CM_EVENT_ADDR_RESOLVED, deadline_ns);
	if (ret < 0)
		return ret;
	soda_verbs_link_patience(l->id);
	ms = soda_deadline_ms(deadline_ns);
	if (rdma_resolve_route(l->id, ms ? ms : 1) < 0)
		return -errno;
	return await_step(l, RDMA_CM_EVENT_ROUTE_RESOLVED, deadline_ns);
}

/* A reason that helps: which device, which network. */
static void explain(const char *rest, int ret, struct soda_why *why)
{
	bool device = ret == -ENODEV || ret == -EADDRNOTAVAIL;

	soda_why_set(why, "cannot connect to verbs://%.100s: %s%s", rest, soda_strerror(ret),
		     device ? "; no RDMA device of this machine is on the way there (rdma link)"
			    : "; is the server running there, on an address of its RDMA device?");
}

int soda_verbs_link_resolve(struct soda_verbs_link *l, const char *rest, uint64_t deadline_ns,
			    struct soda_why *why)
{
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM,
					.ai_flags = AI_NUMERICHOST };
	struct addrinfo *list;
	char host[256], port[8];
	int ret = soda_inet_split(SODA_VERBS_PREFIX, rest, host, port, why);

	soda_verbs_link_none(l);
	if (ret < 0)
		return ret;
	ret = getaddrinfo(host, port, &hints, &list); /* an address: names.h has found it */
	if (ret) {
		soda_why_set(why, "verbs://%.100s: the name \"%.64s\" cannot be resolved: %s", rest,
			     host, gai_strerror(ret));
		return -EHOSTUNREACH;
	}
	ret = open_id(l, why);
	if (ret == 0) {
		ret = resolve_one(l, list, deadline_ns);
		if (ret < 0)
			explain(rest, ret, why);
	}
	freeaddrinfo(list);
	return ret;
}

/* Objects */

static int watch(int epoll, int fd)
{
	struct epoll_event ev = { .events = EPOLLIN };

	return fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

/* On the connecting side one descriptor for callers that wait with a poll(2) of their own. */
static int open_fds(struct soda_verbs_link *l)
{
	int ret;

	ret = nonblocking(l->comp->fd);
	if (ret < 0 || !l->events)
		return ret;
	l->wake_fd = soda_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	l->poke_fd = soda_fd_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	l->end_fd = soda_fd_own(epoll_create1(EPOLL_CLOEXEC));
	l->fd = soda_fd_own(epoll_create1(EPOLL_CLOEXEC));
	if (l->wake_fd < 0 || l->poke_fd < 0 || l->end_fd < 0 || l->fd < 0)
		return -errno;
	ret = watch(l->end_fd, l->events->fd);
	if (ret == 0)
		ret = watch(l->end_fd, l->wake_fd);
	if (ret == 0)
		ret = watch(l->fd, l->comp->fd);
	if (ret == 0)
		ret = watch(l->fd, l->end_fd);
	return ret == 0 ? watch(l->fd, l->poke_fd) : ret;
}

static int open_queues(struct soda_verbs_link *l, const struct soda_verbs_room *room)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.srq = room->srq,
		.cap = { .max_send_wr = room->sends,
			 .max_recv_wr = room->srq ? 0 : room->receives,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = SODA_VERBS_INLINE },
	};

	if (!l->pd) {
		l->pd = ibv_alloc_pd(l->id->verbs);
		l->own_pd = l->pd != NULL;
	}
	l->comp = ibv_create_comp_channel(l->id->verbs);
	if (!l->pd || !l->comp)
		return -errno;
	l->cq = ibv_create_cq(l->id->verbs, (int)(room->sends + room->receives + room->others),
			      NULL, l->comp, 0);
	if (!l->cq)
		return -errno;
	attr.send_cq = attr.recv_cq = l->cq;
	if (rdma_create_qp(l->id, l->pd, &attr) < 0) {
		attr.cap.max_inline_data = 0;
		if (rdma_create_qp(l->id, l->pd, &attr) < 0)
			return -errno;
	}
	l->inline_bytes = attr.cap.max_inline_data;
	return 0;
}

int soda_verbs_link_prepare(struct soda_verbs_link *l, const struct soda_verbs_room *room,
			    struct soda_why *why)
{
	int ret = open_queues(l, room);

	if (ret == 0)
		ret = open_fds(l);
	if (ret < 0)
		soda_why_set(why, "the RDMA device %s has no queue pair for %u requests: %s",
			     l->id->verbs->device->name, room->sends, soda_strerror(ret));
	return ret;
}

/* Connecting */

static uint8_t least(int a, int b)
{
	return (uint8_t)(a < b ? a : b);
}

void soda_verbs_link_param(const struct soda_verbs_link *l, const struct rdma_conn_param *theirs,
			   struct rdma_conn_param *param_p)
{
	struct ibv_device_attr device = { .max_qp_rd_atom = 1, .max_qp_init_rd_atom = 1 };

	ibv_query_device(l->id->verbs, &device);
	*param_p = (struct rdma_conn_param){
		.responder_resources = least(SODA_VERBS_READS, device.max_qp_rd_atom),
		.initiator_depth = least(SODA_VERBS_READS, device.max_qp_init_rd_atom),
		.retry_count = SODA_VERBS_RETRIES,
		.rnr_retry_count = SODA_VERBS_RETRIES,
	};
	if (!theirs)
		return;
	param_p->responder_resources =
		least(param_p->responder_resources, theirs->responder_resources);
	param_p->initiator_depth = least(param_p->initiator_depth, theirs->initiator_depth);
}

void soda_verbs_refusal(const char *peer, const void *bytes, size_t n, struct soda_why *why)
{
	const unsigned char *in = bytes;
	char text[SODA_VERBS_REASON + 1];

	n = n < SODA_VERBS_REASON ? n : SODA_VERBS_REASON;
	for (size_t i = 0; i < n; i++)
		text[i] = isprint(in[i]) ? (char)in[i] : '?';
	text[n] = 0;
	soda_why_set(why, "%s refused: %s", peer, text);
}

static void note(struct soda_verbs_heard *heard_p, const struct rdma_conn_param *conn)
{
	size_t bytes = conn->private_data_len;

	heard_p->bytes = bytes < sizeof(heard_p->data) ? bytes : sizeof(heard_p->data);
	if (heard_p->bytes)
		memcpy(heard_p->data, conn->private_data, heard_p->bytes);
}

static int rejected(const struct rdma_cm_event *event, const char *rest,
		    const struct soda_verbs_heard *heard, struct soda_why *why)
{
	struct soda_wire_frame frame;
	char peer[128];

	if (event->status == REJECTED_NO_LISTENER) {
		explain(rest, -ECONNREFUSED, why);
		return -ECONNREFUSED;
	}
	snprintf(peer, sizeof(peer), SODA_VERBS_PREFIX "%.100s", rest);
	if (event->status != REJECTED_BY_PEER || heard->bytes < SODA_WIRE_FRAME_BYTES) {
		soda_why_set(why, "%s rejects the connection (reason %d)", peer, event->status);
		return -ECONNREFUSED;
	}
	soda_wire_get_frame(heard->data, &frame);
	if (frame.type == SODA_MSG_CHALLENGE &&
	    frame.length <= heard->bytes - SODA_WIRE_FRAME_BYTES)
		return 0;
	if (frame.type != SODA_MSG_REFUSED || frame.status == SODA_ST_OK ||
	    frame.length > heard->bytes - SODA_WIRE_FRAME_BYTES) {
		soda_why_set(why, "%s answers, but does not speak SODA", peer);
		return -EPROTO;
	}
	soda_verbs_refusal(peer, heard->data + SODA_WIRE_FRAME_BYTES, frame.length, why);
	return -soda_status_to_errno(frame.status);
}

int soda_verbs_link_say(struct soda_verbs_link *l, const char *rest,
			const uint8_t said[SODA_WIRE_HELLO_BYTES], uint64_t deadline_ns,
			struct soda_verbs_heard *heard_p, struct soda_why *why)
{
	struct rdma_conn_param param;
	struct rdma_cm_event *event;
	int ret = 0;

	soda_verbs_link_param(l, NULL, &param);
	param.private_data = said;
	param.private_data_len = SODA_WIRE_HELLO_BYTES;
	if (rdma_connect(l->id, &param) < 0)
		ret = -errno;
	if (ret == 0)
		ret = await_event(l, deadline_ns, &event);
	if (ret < 0) {
		explain(rest, ret, why);
		return ret;
	}
	note(heard_p, &event->param.conn);
	heard_p->accepted = event->event == RDMA_CM_EVENT_ESTABLISHED;
	if (heard_p->accepted) {
		soda_verbs_link_rnr(l->id);
	} else if (event->event == RDMA_CM_EVENT_REJECTED) {
		ret = rejected(event, rest, heard_p, why);
	} else {
		ret = event->status < 0 ? event->status : -EHOSTUNREACH;
		explain(rest, ret, why);
	}
	rdma_ack_cm_event(event);
	return ret;
}

/* Waiting, and what a completion's error means */

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

/* Ending */

void soda_verbs_link_abort(struct soda_verbs_link *l)
{
	uint64_t one = 1;
	int before = soda_verbs_uncancel();

	/* flushes what is under way, and tells the peer */
	rdma_disconnect(l->id);
	syscall(SYS_write, l->wake_fd, &one, sizeof(one));
	soda_verbs_recancel(before);
}

void soda_verbs_link_stop(struct soda_verbs_link *l)
{
	if (!l->id || !l->id->qp)
		return;
	rdma_disconnect(l->id);
	rdma_destroy_qp(l->id);
}

void soda_verbs_link_close(struct soda_verbs_link *l)
{
	soda_verbs_link_stop(l);
	if (l->cq) {
		if (l->comp_events)
			ibv_ack_cq_events(l->cq, l->comp_events);
		ibv_destroy_cq(l->cq);
	}
	if (l->comp)
		ibv_destroy_comp_channel(l->comp);
	if (l->own_pd)
		ibv_dealloc_pd(l->pd);
	if (l->id)
		rdma_destroy_id(l->id);
	if (l->events)
		rdma_destroy_event_channel(l->events);
	soda_fd_close(l->fd);
	soda_fd_close(l->poke_fd);
	if (l->wake_fd >= 0)
		soda_fd_close(l->end_fd); /* else it is not ours */
	soda_fd_close(l->wake_fd);
	soda_verbs_link_none(l);
}

int soda_verbs_link_device(const struct soda_verbs_link *l, char name[SODA_DEVICE_NAME])
{
	snprintf(name, SODA_DEVICE_NAME, "%s", l->id->verbs->device->name);
	return soda_verbs_node(l->id->verbs);
}
