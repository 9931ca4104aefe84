/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data frames on byte streams, the side that listens: server_data.c behind an engine that receives
 * and sends in pieces of any size, for a one-sided or a two-sided daemon.
 *   sides 8 | ops: what 8, then
 *     0..5  receive: length 16, so many bytes of the input as they are
 *     6     receive a frame: READ or WRITE with its fields, and data, or of data that were kept
 *     7     send, at most so many bytes 16
 *     8     answer a request: which 8, status 8       9  free a WRITE: which 8
 *     10    memory for WRITEs comes or goes           11 the stream ends
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fixtures/daemon.h"
#include "fuzz/fuzz.h"
#include "transport/listen/worker.h"

enum { FRAME_DATA_MAX = 64 << 10 };

static struct fuzz_daemon daemon_;
static struct soda_worker worker;
static uint8_t sink[4 << 20];

static void resume(struct soda_peer *peer)
{
	struct soda_stream_conn *c = (struct soda_stream_conn *)peer;

	pthread_mutex_lock(&worker.lock);
	c->resumed = true;
	soda_worker_push_locked(&worker, c);
	pthread_mutex_unlock(&worker.lock);
}

static struct soda_stream_conn *begin(bool one_sided)
{
	static const struct soda_peer_ops ops = { .resume = resume };
	struct soda_stream_conn *c = calloc(1, sizeof(*c));
	struct soda_why why;

	fuzz_daemon_init(&daemon_, one_sided);
	memset(&worker, 0, sizeof(worker));
	worker.listener = &daemon_.listener;
	worker.wake_fd = -1;
	pthread_mutex_init(&worker.lock, NULL);
	MUST(c);
	c->peer = (struct soda_peer){
		.listener = &daemon_.listener, .ops = &ops, .client = &daemon_, .fd = -1
	};
	c->worker = &worker;
	MUST(soda_peer_add(&c->peer, true, &why) == 0);
	return c;
}

/* As many bytes as the connection takes now. False: it takes none. */
static bool receive(struct soda_stream_conn *c, const uint8_t *data, size_t bytes)
{
	while (bytes) {
		size_t n = 0;

		if (!soda_stream_conn_aim_recv(c, worker.scratch, sizeof(worker.scratch)))
			return false;
		for (size_t i = 0; i < c->rx_msg.msg_iovlen && bytes; i++) {
			size_t part = c->rx_iov[i].iov_len < bytes ? c->rx_iov[i].iov_len : bytes;

			memcpy(c->rx_iov[i].iov_base, data, part);
			data += part;
			bytes -= part;
			n += part;
		}
		MUST(n);
		soda_stream_conn_received(c, (int)n);
	}
	return true;
}

static void receive_raw(struct soda_stream_conn *c, struct fuzz_input *in)
{
	size_t n = fuzz_u16(in);

	n = n < in->left ? n : in->left;
	receive(c, in->at, n);
	in->at += n;
	in->left -= n;
}

static void receive_frame(struct soda_stream_conn *c, struct fuzz_input *in)
{
	static uint8_t data[FRAME_DATA_MAX];
	uint8_t head[SODA_WIRE_HEAD_BYTES] = { 0 }, what = fuzz_u8(in);
	struct soda_wire_write w = { .region_id = 1,
				     .page_offset = fuzz_u8(in),
				     .size = (1 + fuzz_u8(in) % 16) * SODA_WIRE_PAGE };
	struct soda_wire_frame f = { .type = what & 1 ? SODA_MSG_WRITE : SODA_MSG_READ,
				     .flags = (uint8_t)((what >> 1 & 5) | (what & 0x30) << 1),
				     .length = SODA_WIRE_READ_BYTES };
	bool kept = what & 0x20; /* a WRITE without data */

	if (what & 0x80)
		w.size = fuzz_u32(in);
	if (what & 1) {
		f.length = SODA_WIRE_WRITE_BYTES + (kept ? 0 : w.size);
		soda_wire_put_write(head + SODA_WIRE_HEAD_BYTES - SODA_WIRE_WRITE_BYTES, &w);
	} else {
		soda_wire_put_read(head + SODA_WIRE_HEAD_BYTES - SODA_WIRE_READ_BYTES,
				   &(struct soda_wire_read){ .region_id = w.region_id,
							     .page_offset = w.page_offset,
							     .dest_addr = fuzz_u16(in),
							     .size = w.size });
	}
	soda_wire_put_frame(head, &f);
	if (receive(c, head, sizeof(head)) && what & 1 && !kept)
		receive(c, data, w.size < FRAME_DATA_MAX ? w.size : FRAME_DATA_MAX);
}

/* True: something went. */
static bool send_some(struct soda_stream_conn *c, size_t most)
{
	size_t n = 0;

	if (!soda_stream_conn_aim_send(c))
		return false;
	for (size_t i = 0; i < c->tx_msg.msg_iovlen && n < most; i++) {
		size_t part = c->tx_iov[i].iov_len < most - n ? c->tx_iov[i].iov_len : most - n;

		MUST(part <= sizeof(sink));
		memcpy(sink, c->tx_iov[i].iov_base, part); /* it can be read */
		n += part;
	}
	soda_stream_conn_sent(c, n ? (int)n : -EAGAIN);
	return n > 0;
}

/* As a worker does: doorbells, and what has become ready. */
static void look_around(void)
{
	soda_worker_ring(&worker);
	while (soda_worker_ready(&worker))
		;
}

static void step(struct soda_stream_conn *c, struct fuzz_input *in)
{
	static const uint8_t statuses[] = { 0, 0, 0, EINVAL, EIO, ESTALE, EACCES };
	unsigned which;

	switch (fuzz_u8(in) % 12) {
	case 6:
		receive_frame(c, in);
		break;
	case 7:
		send_some(c, fuzz_u16(in));
		break;
	case 8:
		which = fuzz_u8(in);
		fuzz_daemon_answer(&daemon_, which, -(int)statuses[fuzz_u8(in) % sizeof(statuses)]);
		break;
	case 9:
		fuzz_daemon_free(&daemon_, fuzz_u8(in));
		break;
	case 10:
		daemon_.no_memory = !daemon_.no_memory;
		if (!daemon_.no_memory)
			soda_peer_resume(&c->peer);
		break;
	case 11:
		if (soda_stream_conn_may_recv(c))
			soda_stream_conn_received(c, 0);
		break;
	default:
		receive_raw(c, in);
	}
	look_around();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };
	bool one_sided = fuzz_u8(&in) & 1;
	struct soda_stream_conn *c = begin(one_sided);

	while (in.left && !c->closing)
		step(c, &in);
	while (fuzz_daemon_answer(&daemon_, 0, 0))
		look_around();
	while (!c->closing && send_some(c, SIZE_MAX))
		look_around();
	c->closing = true;
	MUST(!c->pending);
	soda_stream_conn_destroy(c);
	while (fuzz_daemon_free(&daemon_, 0))
		;
	fuzz_daemon_check_end(&daemon_);
	pthread_mutex_destroy(&worker.lock);
	return 0;
}
